"""The same rows through ``format("ringcast")`` and as Parquet, batch and streaming, in turn."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from made import write_journal, write_parquet
from promises import Book

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

BATCHES = 8
"""Micro-batches of a stream, about; those of both ways have the same rows, one file or more."""


class Tables:
    """One journal and its copy as Parquet."""

    def __init__(self, spark: SparkSession, folder: Path, records: int, size: int) -> None:
        self.spark = spark
        self.size = size
        self.journal, self.parquet = folder / "journal", folder / "parquet"
        self._checkpoint = folder / "checkpoint"
        write_journal(self.journal, records, size)
        write_parquet(self.journal, self.parquet)
        self._rows = records + 1  # a configuration is a row
        self._answer: Row | None = None
        files = sorted(self.parquet.iterdir())
        self._files_at_once = max(1, len(files) // BATCHES)
        self._rows_at_once = sum(
            pq.read_metadata(file).num_rows for file in files[: self._files_at_once]
        )

    def ours(self) -> DataFrame:
        """The batch source."""
        return self.spark.read.format("ringcast").option("path", str(self.journal)).load()

    def theirs(self) -> DataFrame:
        """``spark.read.parquet``."""
        return self.spark.read.parquet(str(self.parquet))

    def look_at(self, frame: DataFrame) -> None:
        """Every value of every row, and the answer is always the same."""
        (found,) = frame.selectExpr("count(*)", "bit_xor(xxhash64(*))").collect()
        self._answer = self._answer or found
        if found != self._answer or found[0] != self._rows:
            raise RuntimeError(f"not the same table: {found}, {self._answer}")

    def drop(self, frame: DataFrame) -> None:
        """All rows, unseen: of Parquet no value is ever taken out of its column."""
        frame.write.format("noop").mode("overwrite").save()

    def ours_streaming(self) -> DataFrame:
        """The streaming source, with limited batches."""
        source = self.spark.readStream.format("ringcast").option("path", str(self.journal))
        return source.option("maxRowsPerBatch", self._rows_at_once).load()

    def theirs_streaming(self) -> DataFrame:
        """Spark's file source, with limited batches."""
        schema = self.spark.read.parquet(str(self.parquet)).schema
        source = self.spark.readStream.schema(schema)
        limited = source.option("maxFilesPerTrigger", self._files_at_once)
        return limited.parquet(str(self.parquet))

    def drain(self, frame: DataFrame) -> None:
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

    def turns(self, book: Book, repeats: int) -> None:
        """Each way warms up, then they take turns; rates in thousands of rows a second."""
        ways: dict[str, Callable[[], None]] = {
            "ours batch": lambda: self.look_at(self.ours()),
            "parquet batch": lambda: self.look_at(self.theirs()),
            "ours unseen": lambda: self.drop(self.ours()),
            "parquet unseen": lambda: self.drop(self.theirs()),
            "ours stream": lambda: self.drain(self.ours_streaming()),
            "parquet stream": lambda: self.drain(self.theirs_streaming()),
        }
        for number in range(repeats + 1):
            for name, way in ways.items():
                began_s = time.perf_counter()
                way()
                rate = self._rows / (time.perf_counter() - began_s)
                if number:
                    book.note(f"{name} {self.size}", rate / 1000)
