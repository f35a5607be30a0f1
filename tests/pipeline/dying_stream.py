"""A source and a sink that die as by SIGKILL, once, where a file in a folder says so.

Spark carries the classes to its workers, so nothing in the package has to know of them.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql.types import StructType

from ringcast.journal.writer import commit
from ringcast.pipeline.stream.options import to_read, to_write
from ringcast.pipeline.stream.sink import RingcastStreamWriter
from ringcast.pipeline.stream.source import Offset, RingcastSource, RingcastStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "ringcast-dying"


def die_at(place: Path) -> None:
    with suppress(FileNotFoundError):
        place.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class DyingReader(RingcastStreamReader):
    """Dies in the middle of ``commit``: the mark stands in one of its journals, not in others."""

    fire: Path

    def commit(self, end: Offset) -> None:
        if (self.fire / "source commit").exists():
            commit(self.options.folders[0], self.options.reader, self._marks(end)[0])
            die_at(self.fire / "source commit")
        super().commit(end)


class DyingWriter(RingcastStreamWriter):
    """Dies after a step of ``commit``: decided, half, published."""

    fire: Path

    def die_at(self, point: str) -> None:
        die_at(self.fire / point)

    def _decide(self, *what: Any) -> None:
        super()._decide(*what)
        self.die_at("decided")

    def _ask(self, *what: Any) -> None:
        super()._ask(*what)
        self.die_at("half")

    def _publish(self, *what: Any) -> None:
        super()._publish(*what)
        self.die_at("published")


def register(spark: SparkSession, fire: Path) -> None:
    """Let ``format(NAME)`` be the source and the sink that die."""
    register_pickle_by_value(sys.modules[__name__])

    class Source(RingcastSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def streamReader(self, schema: StructType) -> RingcastStreamReader:
            reader = DyingReader(to_read(self._given), schema)
            reader.fire = fire
            return reader

        def streamWriter(self, schema: StructType, overwrite: bool) -> RingcastStreamWriter:
            writer = DyingWriter(to_write(self._given), schema)
            writer.fire = fire
            return writer

    spark.dataSource.register(Source)
