"""A stream over journals of both sides of a partition: nothing left out, nothing twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from parted import Parted
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ringcast.core.ids import Position
from ringcast.journal.writer import readers
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.stream.source import RingcastSource, RingcastStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")  # all of it, for the groups parted once


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Parted:
    return Parted(tmp_path_factory.mktemp("parted"))


def reader(*folders: Path) -> RingcastStreamReader:
    source = RingcastSource(
        {"path": ",".join(map(str, folders)), "views": "false", "reader": "test"}
    )
    schema: Any = source.schema()
    return source.streamReader(schema)


def again(offset: dict[str, Any]) -> dict[str, Any]:
    """As it comes out of a checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


@pytest.mark.parametrize("most", [5, 1000])
def test_what_the_other_side_put_before_it_is_read_too(
    parted: Parted, tmp_path: Path, most: int
) -> None:
    """At every step the query starts anew from its checkpoint, and repeats its last batch."""
    folders = [tmp_path / "one", tmp_path / "two"]
    found: list[tuple[Position, bytes]] = []
    at: dict[str, Any] | None = None
    for step in range(len(parted.steps)):
        parted.show(step, folders)
        stream = reader(*folders)
        at = stream.initialOffset() if at is None else again(at)
        while (end := stream.latestOffset(at, ReadMaxRows(most))) != at:
            first, repeated = (rows(each, at, end) for each in (stream, reader(*folders)))
            assert first == repeated
            stream.commit(end)
            found += first
            at = again(end)
    assert sorted(body for _, body in found) == sorted(parted.sent)
    order = [place for place, _ in found]
    assert order != sorted(order), "one side was behind the other"
    ends = [str(readers(folder)["test"]) for folder in folders]
    assert [position for position, _ in (at or {}).values()] == ends


def rows(
    stream: RingcastStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[Position, bytes]]:
    return [
        (Position(**row["position"]), row["body"])
        for part in stream.partitions(start, end)
        for batch in stream.read(part)
        for row in batch.to_pylist()
    ]


def test_a_checkpoint_of_other_journals_is_refused(parted: Parted, tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    parted.show(0, [one, two])
    parted.show(0, [two, three])
    both = reader(one, two)
    at = both.latestOffset(both.initialOffset(), ReadAllAvailable())
    assert reader(two, one).latestOffset(again(at), ReadAllAvailable()) == at
    for other in (reader(one, three), reader(one), reader(one, two, three)):
        with pytest.raises(PipelineError, match="name the same journals"):
            other.latestOffset(again(at), ReadAllAvailable())
    with pytest.raises(PipelineError, match="is of one journal"):
        both.latestOffset(reader(one).initialOffset(), ReadAllAvailable())
    with pytest.raises(PipelineError, match="named twice"):
        reader(one, one)


def test_spark_goes_on_behind_its_checkpoint(
    spark: SparkSession, parted: Parted, tmp_path: Path
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for step in range(len(parted.steps)):
        parted.show(step, folders)
        query = (
            spark.readStream.format("ringcast")
            .option("path", ",".join(map(str, folders)))
            .option("views", "false")
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(600)
    found = spark.read.parquet(str(tmp_path / "rows")).select("body").collect()
    assert sorted(bytes(row.body) for row in found) == sorted(parted.sent)
    table = spark.read.format("ringcast").option("path", ",".join(map(str, folders)))
    rows = table.option("views", "false").load().orderBy("position").select("body").collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(parted.sent)
