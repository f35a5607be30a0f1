"""What a stream holds back from trimming, and how little it reads for what is wanted of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from groups import KEEP_LITTLE, entries, place, read, reader, wanted, write
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructField, StructType

from ringcast.core.ids import START
from ringcast.journal.format.frame import KINDS
from ringcast.journal.format.selection import MOST, MOST_GROUPS, Selection
from ringcast.journal.service import Seek
from ringcast.journal.writer import READERS, Journal, Limits, readers
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.stream import source as sources
from ringcast.pipeline.stream.pushing import narrowed
from ringcast.pipeline.stream.source import RingcastReader, RingcastSource


def trim(folder: Path, limits: Limits = KEEP_LITTLE) -> int:
    journal = Journal(folder, limits)
    journal.rotate()
    gone = journal.trim()
    journal.close()
    return gone


# --- readers are known from their first batch on ---------------------------------------------


@pytest.mark.parametrize("replicas", [1, 2])
def test_nothing_is_trimmed_before_the_first_batch_is_done(tmp_path: Path, replicas: int) -> None:
    """A small journal, and a query that takes its time."""
    folders = [tmp_path / str(number) for number in range(replicas)]
    for folder in folders:
        write(folder, 1, 400)
    stream = reader(path=",".join(map(str, folders)), reader="billing", maxRowsPerBatch=100)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    for folder in folders:
        assert trim(folder) == 0
    assert read(stream, start, end) == wanted(1, 50)
    stream.commit(end)
    for folder in folders:
        assert trim(folder) >= 0
    assert read(stream, end, stream.latestOffset(end, ReadAllAvailable())) == wanted(51, 400)


def test_an_old_checkpoint_is_held_under_a_new_name(tmp_path: Path) -> None:
    """A query that gets a reader's name later is protected from where it goes on."""
    write(tmp_path, 1, 400)
    nameless = reader(path=tmp_path)
    at = nameless.latestOffset(nameless.initialOffset(), ReadMaxRows(100))
    for ask in ("partitions", "latestOffset"):
        stream = reader(path=tmp_path, reader=ask)
        if ask == "partitions":  # a batch that Spark repeats
            stream.partitions(at, nameless.latestOffset(at, ReadMaxRows(100)))
        else:
            stream.latestOffset(at, ReadAllAvailable())
        assert readers(tmp_path)[ask] == place(at)
    trim(tmp_path)
    assert read(stream, at, stream.latestOffset(at, ReadAllAvailable())) == wanted(51, 400)


def test_a_query_that_has_nothing_to_read_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, 200)
    stream = reader(path=tmp_path, reader="billing")
    at = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    stream.commit(at)
    note = tmp_path / READERS / "billing.json"

    def is_known() -> bool:
        return bool(readers(tmp_path, since_s=1_000_000))

    os.utime(note, (1000, 1000))
    assert stream.latestOffset(at, ReadAllAvailable()) == at and not is_known(), "not every time"
    monkeypatch.setattr(sources, "REMIND_S", 0.0)
    assert stream.latestOffset(at, ReadAllAvailable()) == at and is_known()
    assert readers(tmp_path) == {"billing": place(at)}


# --- rows are counted as they are wanted -----------------------------------------------------


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("views", ["true", "false"])
def test_only_wanted_rows_fill_a_batch(tmp_path: Path, replicas: int, views: str) -> None:
    """A rare group made many empty batches."""
    folders = [tmp_path / str(number) for number in range(replicas)]
    for folder in folders:
        write(folder, 1, 400, view=True)
    rare = [b for each in entries(1, 400) if each.group == "other" for b in bodies(each)]
    rows = [b"", *rare] if views == "true" else rare
    path = ",".join(map(str, folders))
    stream = reader(path=path, group="other", views=views, maxRowsPerBatch=50)
    at, found = stream.initialOffset(), []
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        found.append(read(stream, at, end))
        at = end
    assert [body for batch in found for body in batch] == rows
    assert [len(batch) for batch in found[:-1]] == [50] * (len(rows) // 50)


def test_what_nobody_wants_is_passed_in_one_batch(tmp_path: Path) -> None:
    write(tmp_path, 1, 400)
    stream = reader(path=tmp_path, group="none", maxRowsPerBatch=50)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert read(stream, start, end) == []
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end


def bodies(each: Any) -> list[bytes]:
    return wanted(each.first.seq, each.first.seq)


# --- conditions that Spark hands on ----------------------------------------------------------

SEQ, RING = ("position", "seq"), ("position", "ring_seq")
GROUPS = tuple(f"group {n}" for n in range(MOST_GROUPS + 1))


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ([], Selection()),
        ([EqualTo(("kind",), "message")], Selection(kinds=("message",))),
        ([In(("group",), ("a", None, "b"))], Selection(groups=("a", "b"))),
        ([In(("group",), ("a", "b")), EqualTo(("group",), "b")], Selection(groups=("b",))),
        ([EqualTo(("group",), "a"), EqualTo(("group",), "b")], Selection(groups=())),
        ([EqualTo(("kind",), "command")], Selection(kinds=("message",))),
        ([In(("kind",), ("command", "a", *KINDS, "view"))], Selection(kinds=KINDS)),
        ([In(("group",), GROUPS[1:])], Selection(groups=GROUPS[1:])),
        ([EqualTo(("kind",), "gap"), In(("group",), GROUPS)], Selection(kinds=("gap",))),
        ([GreaterThan(SEQ, 5), LessThanOrEqual(SEQ, 9)], Selection(places={"seq": (5, 9)})),
        (
            [EqualTo(RING, 8), GreaterThanOrEqual(SEQ, 5)],
            Selection(places={"ring_seq": (8, 8), "seq": (5, MOST)}),
        ),
        ([LessThan(SEQ, 9), In(SEQ, (3, 4))], Selection(places={"seq": (3, 4)})),
        ([Not(EqualTo(("kind",), "view")), IsNotNull(("group",))], Selection()),
        ([StringStartsWith(("group",), "a"), EqualTo(("sender",), 2)], Selection()),
    ],
)
def test_what_is_still_wanted_under_conditions(conditions: list[Filter], found: Selection) -> None:
    """Also as a node takes it: a question that is too long, or has more kinds than there are, ended
    the query; and a command is a message to the journal."""
    wanted = narrowed(Selection(), conditions)
    assert wanted == found
    question = Seek(1, START, START, 1, wanted)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(question), type=Seek) == question


def test_a_reader_takes_conditions_and_leaves_them_to_spark(tmp_path: Path) -> None:
    write(tmp_path, 1, 100, view=True)
    source = RingcastSource({"path": str(tmp_path)})
    reading = source.reader(source.schema())
    conditions = [EqualTo(("group",), "other"), GreaterThan(SEQ, 50)]
    assert list(reading.pushFilters(conditions)) == conditions
    found = [
        body
        for part in reading.partitions()
        for batch in reading.read(part)
        for body in batch.column("body").to_pylist()
    ]
    assert found == [
        body for each in entries(51, 100) if each.group == "other" for body in bodies(each)
    ]


def test_reading_is_not_refused_where_push_down_is_off(tmp_path: Path) -> None:
    """Spark refuses a reader whose ``pushFilters`` is its own; this is how it looks."""
    reading = RingcastReader(reader(path=tmp_path).options, StructType())
    assert getattr(reading.pushFilters, "__func__", None) is DataSourceReader.pushFilters


# --- columns, and how far a query is ---------------------------------------------------------


@pytest.mark.parametrize("make", ["reader", "streamReader"])
def test_columns_of_a_users_own_are_refused(make: str) -> None:
    source = RingcastSource({"path": "x", "bodies": "json", "bodySchema": "id BIGINT"})
    mine = source.schema()
    assert getattr(source, make)(mine)
    again = StructType([StructField(f.name, f.dataType, True) for f in mine])
    assert getattr(source, make)(again), "Spark may call all columns nullable"
    plain = RingcastSource({"path": "x"}).schema()
    for other in (StructType(), StructType(mine.fields[:2]), plain):
        with pytest.raises(PipelineError, match=r"schema\(\) asks for .*: leave it out, select"):
            getattr(source, make)(other)


def test_a_query_tells_how_far_it_is(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        write(folder, 1, 100)
    for path in (folders[0], f"{folders[0]},{folders[1]}"):
        stream = reader(path=path, group="other", maxRowsPerBatch=20)
        assert stream.reportLatestOffset() is None
        at = stream.latestOffset(stream.initialOffset(), ReadMaxRows(20))
        told = stream.reportLatestOffset()
        assert told is not None and told.pop("behind") == 200 - 2 * 30
        assert set(told.values()) == {"(8,1):100.1"}
        assert list(told) == (["position"] if path == folders[0] else list(map(str, folders)))
        end = stream.latestOffset(at, ReadAllAvailable())
        stream.latestOffset(end, ReadAllAvailable())
        told = stream.reportLatestOffset()
        assert told is not None and told["behind"] == 0
    (tmp_path / "a").rename(tmp_path / "away")
    assert stream.reportLatestOffset() is None, "the next batch says why"
