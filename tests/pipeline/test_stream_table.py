"""Tables that a stream keeps up to date: each batch once, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from ringcast.pipeline.stream.table import StreamTable, upsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "item string, count long"


def add(table: DataFrame, rows: DataFrame) -> DataFrame:
    """Counts are summed, so a batch that came twice would show."""
    return table.unionByName(rows).groupBy("item").agg({"count": "sum"}).toDF("item", "count")


def counts(table: StreamTable) -> dict[str, int]:
    return {row["item"]: row["count"] for row in table.rows()}


def test_a_batch_that_is_repeated_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    table = StreamTable(tmp_path / "t", SCHEMA)
    assert table.batch == -1 and table.rows() == [] and table.read(spark).count() == 0
    keep = table.keep(add)
    for batch in (0, 1, 1, 2, 1):
        keep(spark.createDataFrame([("a", 1), (f"b{batch}", batch)], SCHEMA), batch)
    assert counts(table) == {"a": 3, "b0": 0, "b1": 1, "b2": 2}
    assert {row["item"]: row["count"] for row in table.read(spark).collect()} == counts(table)
    assert StreamTable(tmp_path / "t", SCHEMA).batch == 2
    assert len([*(tmp_path / "t").glob("version-*")]) == 2, "the last, and the one before"


def test_a_batch_that_was_not_finished_is_done_again(spark: SparkSession, tmp_path: Path) -> None:
    """Killed when the new version was there, and not yet named."""
    table = StreamTable(tmp_path / "t", SCHEMA)
    rows = spark.createDataFrame([("a", 1)], SCHEMA)
    table.keep(add)(rows, 0)
    (tmp_path / "t" / "version-1").mkdir()
    (tmp_path / "t" / "version-1" / "part-0.parquet").write_bytes(b"half of it")
    assert counts(table) == {"a": 1}
    table.keep(add)(rows, 1)
    assert counts(table) == {"a": 2}


def test_upsert_replaces_by_key(spark: SparkSession, tmp_path: Path) -> None:
    table = StreamTable(tmp_path / "t", SCHEMA)
    for batch, rows in enumerate(([("a", 1), ("b", 1)], [("b", 7), ("c", 9)])):
        table.keep(upsert("item"))(spark.createDataFrame(rows, SCHEMA), batch)
    assert counts(table) == {"a": 1, "b": 7, "c": 9}


def test_the_update_of_a_stopped_query_does_not_take_the_table_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark lets the function of foreachBatch run on when it stops a query."""
    table = StreamTable(tmp_path / "t", SCHEMA)
    rows = spark.createDataFrame([("a", 1)], SCHEMA)
    under_way, overtaken = Event(), Event()

    def slowly(before: DataFrame, rows: DataFrame) -> DataFrame:
        under_way.set()
        overtaken.wait(2)  # in vain, if the next one waits for us
        return add(before, rows)

    def next_query() -> None:
        for batch in (0, 1):
            table.keep(add)(rows, batch)
        overtaken.set()

    stopped = Thread(target=table.keep(slowly), args=(rows, 0))
    stopped.start()
    under_way.wait()
    restarted = Thread(target=next_query)
    restarted.start()
    for thread in (stopped, restarted):
        thread.join()
    assert table.batch == 1 and counts(table) == {"a": 2}
