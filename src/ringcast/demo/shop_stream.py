"""The Spark side of ``ringcast demo --stream``: the shop's journals as a stream, kept as tables.

Two queries over the journals of all members, read as one: the stock, folded order by order, and
what was asked for in each second. SIGUSR1 lets them finish what there is and ends the program;
SIGKILL, at any moment, loses nothing and doubles nothing.

    python -m ringcast.demo.shop_stream FOLDER
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from ringcast.demo.shop import GROUP, Shelf, Shop
from ringcast.pipeline.spark.session import Where, open_session
from ringcast.pipeline.stream.table import Change, StreamTable, upsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SHELVES = "item string, left long, refused long, orders long"
ASKED = "second long, item string, count long"
ORDER = "item string, count long, at double"

CORES = 2
STARTED = "spark-started"
"""A file that is there as soon as the queries are."""


def tables(folder: Path) -> tuple[StreamTable, StreamTable]:
    """The stock, and what was asked for."""
    return StreamTable(folder / "shelves", SHELVES), StreamTable(folder / "asked", ASKED)


def read(folder: Path) -> Shop:
    """The shop as the tables have it now."""
    shelves, asked = (table.rows() for table in tables(folder))
    return Shop(
        {row.pop("item"): msgspec.convert(row, Shelf) for row in shelves},
        {f"{row['second']} {row['item']}": row["count"] for row in asked},
    )


def serve(key: Any, before: Any, orders: Any) -> Any:
    """The shelf of an item after the orders of a batch."""
    import pyarrow as pa

    shelf = Shelf()
    for row in before.drop_columns(["item"]).to_pylist():
        shelf = msgspec.convert(row, Shelf)
    for order in sorted(orders.to_pylist(), key=lambda row: tuple(row["position"].values())):
        shelf.take(order["count"])
    return pa.Table.from_pylist([{"item": key[0].as_py()} | msgspec.to_builtins(shelf)])


def fold(shelves: DataFrame, orders: DataFrame) -> DataFrame:
    """All shelves after a batch."""
    both = shelves.groupBy("item").cogroup(orders.groupBy("item"))
    return both.applyInArrow(serve, shelves.schema)


def by_second(orders: DataFrame) -> DataFrame:
    """What was asked for in each second."""
    from pyspark.sql import functions as F

    timed = orders.select("item", "count", orders["at"].cast("timestamp").alias("at"))
    windows = timed.withWatermark("at", "5 minutes").groupBy(F.window("at", "1 second"), "item")
    second = F.col("window.start").cast("long").alias("second")
    return windows.agg(F.sum("count").alias("count")).select(second, "item", "count")


class Streams:
    """Both queries."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        from pyspark.sql import functions as F

        rows = (
            spark.readStream.format("ringcast")
            .option("path", ",".join(str(each) for each in sorted(folder.glob("journal-*"))))
            .option("group", GROUP)
            .option("views", "false")
            .load()
            .where("length(body) > 0")
        )
        order = F.from_json(F.col("body").cast("string"), ORDER).alias("order")
        orders = rows.select("position", order).select("position", "order.*")
        shelves, asked = tables(folder)
        self._parts: list[tuple[DataFrame, StreamTable, Change]] = [
            (orders, shelves, fold),
            (by_second(orders), asked, upsert("second", "item")),
        ]

    def start(self, **trigger: Any) -> list[StreamingQuery]:
        """Go on behind the checkpoints."""
        return [
            stream.writeStream.outputMode("update")
            .option("checkpointLocation", table.checkpoint)
            .trigger(**trigger)
            .foreachBatch(table.keep(change))
            .start()
            for stream, table, change in self._parts
        ]


def main(folder: Path) -> None:
    """Follow the journals until SIGUSR1, then to their end; raise if a query fails before."""
    finish: SimpleQueue[int] = SimpleQueue()  # a handler may use it while we wait for it
    signal.signal(signal.SIGUSR1, lambda number, frame: finish.put(number))
    with open_session(Where(cores=CORES), "ringcast demo") as spark:
        streams = Streams(spark, folder)
        queries = streams.start(processingTime="500 milliseconds")
        (folder / STARTED).touch()
        while finish.empty():
            for query in queries:
                query.awaitTermination(timeout=1)  # raises if it has failed
        for query in queries:
            query.stop()
        for query in streams.start(availableNow=True):
            query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
