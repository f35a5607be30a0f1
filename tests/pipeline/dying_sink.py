"""A sink that dies as by SIGKILL, once, where a file in a folder says so.

Spark carries the class to its workers, so nothing in the package has to know of it.
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

from ringcast.pipeline.stream.options import to_write
from ringcast.pipeline.stream.sink import RingcastStreamWriter
from ringcast.pipeline.stream.source import RingcastSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "ringcast-dying"


class DyingWriter(RingcastStreamWriter):
    """Dies after a step of ``commit``: decided, half, published."""

    fire: Path

    def die_at(self, point: str) -> None:
        with suppress(FileNotFoundError):
            (self.fire / point).unlink()
            os.kill(os.getpid(), signal.SIGKILL)

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
    """Let ``format(NAME)`` be the sink that dies."""
    register_pickle_by_value(sys.modules[__name__])

    class Source(RingcastSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def streamWriter(self, schema: StructType, overwrite: bool) -> RingcastStreamWriter:
            writer = DyingWriter(to_write(self._given), schema)
            writer.fire = fire
            return writer

    spark.dataSource.register(Source)
