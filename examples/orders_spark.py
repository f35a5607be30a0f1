"""The orders of a shop as a stream in Spark: what is left, and what was asked, as tables.

Reads the three journals that ``examples/orders.py`` left as one. The tables are as exact as the
members' own state, also if this is killed at any moment and started again.

    python examples/orders_spark.py shop    (without ``availableNow`` it follows a group that runs)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from orders import STOCK
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ringcast.pipeline.spark.session import open_session
from ringcast.pipeline.stream.table import StreamTable, upsert


def serve(key: Any, shelf: pa.Table, orders: pa.Table) -> pa.Table:
    """The shelf of one item after the orders of a batch, taken in the group's order."""
    left, refused = next(((row["left"], row["refused"]) for row in shelf.to_pylist()), (STOCK, 0))
    for order in sorted(orders.to_pylist(), key=lambda row: tuple(row["position"].values())):
        if order["count"] <= left:
            left -= order["count"]
        else:
            refused += 1
    return pa.table({"item": [key[0].as_py()], "left": [left], "refused": [refused]})


def fold(shelves: DataFrame, orders: DataFrame) -> DataFrame:
    """All shelves after a batch."""
    both = shelves.groupBy("item").cogroup(orders.groupBy("item"))
    return both.applyInArrow(serve, shelves.schema)


def by_second(orders: DataFrame) -> DataFrame:
    """How many pieces of each item were asked for in each second."""
    windows = orders.withWatermark("at", "1 minute").groupBy(F.window("at", "1 second"), "item")
    second = F.col("window.start").cast("long").alias("second")
    return windows.agg(F.sum("count").alias("count")).select(second, "item", "count")


def main(folder: Path) -> bool:
    """Run both queries; whether their tables are what each member has."""
    shelves = StreamTable(folder / "shelves", "item string, left long, refused long")
    asked = StreamTable(folder / "asked", "second long, item string, count long")
    with open_session() as spark:
        source = spark.readStream.format("ringcast").option("group", "orders")
        source = source.option("path", ",".join(map(str, folder.glob("journal-*"))))
        body = F.from_json(F.col("body").cast("string"), "item string, count long, at double")
        rows = source.option("views", "false").load().select("position", body.alias("order"))
        orders = rows.select("position", "order.*").withColumn("at", F.col("at").cast("timestamp"))
        for stream, table, change in (
            (orders, shelves, fold),
            (by_second(orders), asked, upsert("second", "item")),
        ):
            query = stream.writeStream.outputMode("update").trigger(availableNow=True)
            query = query.option("checkpointLocation", table.checkpoint)
            query.foreachBatch(table.keep(change)).start().awaitTermination()
        found = {
            "shelves": {r.item: [r.left, r.refused] for r in shelves.read(spark).collect()},
            "asked": {f"{r.second} {r.item}": r["count"] for r in asked.read(spark).collect()},
        }
    same = [json.loads(path.read_text()) for path in folder.glob("member-*.json")] == 3 * [found]
    print(f"Spark:    {found['shelves']}, {'as' if same else 'unlike'} all members")
    return same


if __name__ == "__main__":
    if len(sys.argv) != 2 or not any(Path(sys.argv[1]).glob("journal-*")):
        sys.exit(f"usage: python {sys.argv[0]} FOLDER (that examples/orders.py has left)")
    sys.exit(not main(Path(sys.argv[1])))
