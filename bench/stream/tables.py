"""The same rows through ``format("ringcast")`` and as Parquet, batch and streaming, in turn."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from made import write_journal, write_parquet
from promises import Book

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 8
"""Micro-batches of a stream, about."""


class Tables:
    """One journal and its copy as Parquet."""

    def __init__(self, spark: SparkSession, folder: Path, records: int, size: int) -> None:
        self.spark = spark
        self.records, self.size = records, size
        self.journal, self.parquet = folder / "journal", folder / "parquet"
        self._checkpoint = folder / "checkpoint"
        write_journal(self.journal, records, size)
        write_parquet(self.journal, self.parquet)
        self._rows = records + 1  # a configuration is a row
        self._files = len(list(self.parquet.iterdir()))

    def ours(self) -> None:
        """The batch source; all columns of all rows are made."""
        self._all(self.spark.read.format("ringcast").option("path", str(self.journal)).load())

    def theirs(self) -> None:
        """``spark.read.parquet``."""
        self._all(self.spark.read.parquet(str(self.parquet)))

    def _all(self, frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def ours_streaming(self) -> None:
        """The streaming source, with limited batches."""
        source = self.spark.readStream.format("ringcast").option("path", str(self.journal))
        self._drain(source.option("maxRowsPerBatch", -(-self._rows // BATCHES)).load())

    def theirs_streaming(self) -> None:
        """Spark's file source, with limited batches."""
        schema = self.spark.read.parquet(str(self.parquet)).schema
        source = self.spark.readStream.schema(schema)
        limited = source.option("maxFilesPerTrigger", max(1, self._files // BATCHES))
        self._drain(limited.parquet(str(self.parquet)))

    def _drain(self, frame: DataFrame) -> None:
        """Everything there is, from the start of the query to its end."""
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seen = sum(each.numInputRows for each in query.recentProgress)
        if seen != self._rows:
            raise RuntimeError(f"{seen} rows instead of {self._rows}")

    def check(self) -> None:
        """Both are the same table."""
        ours = self.spark.read.format("ringcast").option("path", str(self.journal)).load()
        theirs = self.spark.read.parquet(str(self.parquet))
        digests = [
            frame.selectExpr("count(*)", "bit_xor(xxhash64(*))").collect()
            for frame in (ours, theirs)
        ]
        if digests[0] != digests[1] or digests[0][0][0] != self._rows:
            raise RuntimeError(f"not the same table: {digests}")

    def turns(self, book: Book, repeats: int) -> None:
        """Each way warms up, then they take turns; rates in thousands of rows a second."""
        self.check()
        ways: dict[str, Callable[[], None]] = {
            "ours batch": self.ours,
            "parquet batch": self.theirs,
            "ours stream": self.ours_streaming,
            "parquet stream": self.theirs_streaming,
        }
        for number in range(repeats + 1):
            for name, way in ways.items():
                began_s = time.perf_counter()
                way()
                rate = self._rows / (time.perf_counter() - began_s)
                if number:
                    book.note(f"{name} {self.size}", rate / 1000)
