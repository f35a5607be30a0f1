"""A table in Parquet that a stream keeps up to date, each batch once.

Every batch leaves a whole new version beside the old one, and then one small file names it: that
rename is the batch. A batch that Spark repeats after a failure finds itself done. So state and
progress cannot part, and a reader never sees half of a version.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from ringcast.files.disk import DISK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Change = Callable[["DataFrame", "DataFrame"], "DataFrame"]
"""The new table out of the table and the rows of a batch."""


class StreamTable:
    """A folder with the versions of one table, and the checkpoint of the query that feeds it.

    They are in one folder because neither is of use without the other.
    """

    def __init__(self, folder: Path | str, schema: str) -> None:
        self.folder = Path(folder)
        self._schema = schema
        """As in SQL: ``item string, left long``."""
        self._updating = Lock()

    @property
    def checkpoint(self) -> str:
        """For the option ``checkpointLocation``."""
        return str(self.folder / "checkpoint")

    @property
    def batch(self) -> int:
        """The last batch that is in the table; -1 before the first."""
        try:
            return int((self.folder / "current").read_text("ascii"))
        except FileNotFoundError:
            return -1

    def read(self, spark: SparkSession) -> DataFrame:
        """The table as of its last batch."""
        batch = self.batch
        if batch < 0:
            return spark.createDataFrame([], self._schema)
        return spark.read.schema(self._schema).parquet(str(self._version(batch)))

    def rows(self) -> list[dict[str, Any]]:
        """The same without Spark, for a table that is small."""
        import pyarrow.parquet as pq

        while (batch := self.batch) >= 0:
            with suppress(FileNotFoundError):  # two batches went by meanwhile
                found: list[dict[str, Any]] = pq.read_table(self._version(batch)).to_pylist()
                return found
        return []

    def keep(self, change: Change) -> Callable[[DataFrame, int], None]:
        """For ``foreachBatch``: the table becomes ``change(table, rows)``, once for each batch.

        A query that is stopped leaves its update running, so the first of the next query waits
        for it: else the old one would take the table back to its batch, behind the checkpoint.
        """

        def update(rows: DataFrame, batch: int) -> None:
            with self._updating:
                before = self.batch
                if batch <= before:
                    return
                new = change(self.read(rows.sparkSession), rows)
                new.write.mode("overwrite").parquet(str(self._version(batch)))
                DISK.replace(self.folder / "current", str(batch).encode())
                kept = (self._version(before), self._version(batch))  # somebody reads the old one
                for old in self.folder.glob("version-*"):
                    if old not in kept:
                        shutil.rmtree(old, ignore_errors=True)

        return update

    def _version(self, batch: int) -> Path:
        return self.folder / f"version-{batch}"


def upsert(*keys: str) -> Change:
    """Rows with these keys take the place of those that were there."""

    def change(table: DataFrame, rows: DataFrame) -> DataFrame:
        return rows.unionByName(table.join(rows, list(keys), "left_anti"))

    return change
