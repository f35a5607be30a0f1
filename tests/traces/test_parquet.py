"""Trace files: what is written comes back, in order, and a bad file is named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.core.ids import LIMIT, Level, ViewId
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Faulted,
    Installed,
    Noted,
    Originated,
    Restarted,
    Submit,
    TraceEvent,
)
from ringcast.traces import (
    Claims,
    TraceError,
    TraceWriter,
    parquet,
    read_claims,
    read_trace,
    runs,
)
from ringcast.traces.schema import TABLES, columns
from ringcast.traces.text import parse

STORY = """
ring(8,1){1,2}
p1: o1sx3 d1
p2: d1 down up reg(12,2){2}
end{1}
"""

node_ids = st.integers(1, 2**32 - 1)
numbers = st.integers(0, LIMIT)
places = st.integers(1, LIMIT - 1)
views = st.builds(ViewId, numbers, node_ids)
levels = st.sampled_from(Level)
members = st.lists(node_ids, max_size=4).map(tuple)
sums = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3).map(tuple)
first = st.integers(1, 2**62)
maybe = st.none() | views

BODIES: dict[type, tuple[Any, ...]] = {
    Submit: (numbers, first, levels, sums),
    Originated: (views, places, levels, first, sums, node_ids),
    Delivered: (views, views, places, node_ids, levels, first, sums),
    Installed: (views, members, st.booleans(), views, numbers, maybe, maybe),
    Crashed: (st.text(max_size=5),),
    Restarted: (numbers, st.booleans()),
    Noted: (
        *(st.text(max_size=5),) * 3,
        maybe,
        members,
        st.just(msgspec.UNSET) | st.lists(numbers, min_size=1, max_size=4).map(tuple),
    ),
}


@st.composite
def traces(draw: st.DrawFn) -> list[TraceEvent]:
    """Events in the one global order: by time, then processor, then n. Processors start with one,
    and who is settled is up."""
    events: list[Any] = []
    up: set[int] = set()
    for node in draw(st.sets(st.integers(1, 4), min_size=1)):
        t_us = 0
        for n in range(1, draw(st.integers(0, 6)) + 1):
            t_us += draw(st.integers(0, 3))
            kinds = sorted(BODIES, key=lambda k: k.__name__) if n > 1 else [Restarted]
            kind = draw(st.sampled_from(kinds))
            if kind in (Restarted, Crashed):
                (up.add if kind is Restarted else up.discard)(node)
            event = kind(node, n, t_us, *draw(st.tuples(*BODIES[kind])))
            if isinstance(event, Submit) and draw(st.booleans()):  # otherwise without digests
                event = msgspec.structs.replace(event, digests=event.sizes[::-1])
            events.append(event)
    for n in range(1, draw(st.integers(0, 2)) + 1):
        events.append(Faulted(0, n, n, draw(st.text(max_size=5)), draw(st.text(max_size=5))))
    events.sort(key=lambda e: (e.t_us, e.node, e.n))
    settled = draw(st.sets(st.sampled_from(sorted(up)))) if up else set()
    return [*events, Ended(100, tuple(sorted(settled)))]


def write(folder: Path, events: list[TraceEvent], run: int = 0) -> None:
    with TraceWriter(folder, run) as writer:
        for event in events:
            writer(event)


@settings(max_examples=40, deadline=None)
@given(events=traces(), buffered=st.sampled_from((1, 5, 1 << 16)))
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, events: list[TraceEvent], buffered: int
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "BUFFERED", buffered)
        write(folder, events, run=7)
    assert list(read_trace(folder, 7)) == events
    assert runs(folder) == [7]


def test_one_row_per_message_sorted_by_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "BUFFERED", 4)
    write(tmp_path, list(parse(STORY)))
    table = pq.read_table(tmp_path / "deliver" / "0.parquet")
    assert table["node"].to_pylist() == [1, 1, 1, 2, 2, 2]
    assert table["index"].to_pylist() == [0, 1, 2, 0, 1, 2]
    assert table["sequence"].to_pylist() == [1, 2, 3, 1, 2, 3]
    assert table["ring_seq"].to_pylist() == [8] * 6


def test_columns_are_plain_and_named_alike() -> None:
    names = {table: [column.name for column in columns(table)] for table in TABLES}
    assert names["deliver"] == [
        *("run", "node", "n", "t_us", "view_seq", "view_rep", "ring_seq", "ring_rep", "seq"),
        *("sender", "level", "sequence", "index", "digest"),
    ]
    assert names["submit"][-3:] == ["index", "size", "digest"]
    assert names["fault"][:2] == ["run", "event"]
    assert all(row[0] == "run" for row in names.values())


def test_several_runs_share_a_folder(tmp_path: Path) -> None:
    events = list(parse(STORY))
    for run in (3, 12):
        write(tmp_path, events, run)
    assert runs(tmp_path) == [3, 12]
    assert list(read_trace(tmp_path, 12)) == events


def test_a_trace_says_what_was_claimed(tmp_path: Path) -> None:
    claims = Claims(("M1", "total-order"), 3000)
    for run, told in ((1, claims), (2, None)):
        with TraceWriter(tmp_path, run, told) as writer:
            for event in parse(STORY):
                writer(event)
        assert read_claims(tmp_path, run) == told
    assert list(read_trace(tmp_path, 1)) == list(read_trace(tmp_path, 2))


def test_an_unfinished_trace_has_no_files(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), TraceWriter(tmp_path) as writer:
        for event in parse(STORY):
            writer(event)
        raise RuntimeError
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert runs(tmp_path) == []


def test_an_event_without_messages_is_refused(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path)
    with pytest.raises(ValueError, match="without messages"):
        writer(Submit(1, 1, 1, 1, 1, Level.AGREED, ()))
    writer.close()


def damage_missing(path: Path) -> None:
    path.unlink()


def damage_truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def damage_garbage(path: Path) -> None:
    path.write_bytes(b"not parquet at all")


def damage_foreign(path: Path) -> None:
    pq.write_table(pa.table({"node": [1]}), path)


def damage_version(path: Path) -> None:
    table = pq.read_table(path)
    meta = {**table.schema.metadata, b"ringcast.schema_version": b"99"}
    pq.write_table(table.replace_schema_metadata(meta), path)


def damage_columns(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["digest"]), path)


def damage_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(0).column(13)
    data[column.data_page_offset + column.total_compressed_size - 1] ^= 1  # one bit of a digest
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_missing, "no such file"),
        (damage_truncated, "not a whole Parquet file"),
        (damage_garbage, "not a whole Parquet file"),
        (damage_foreign, "not a table 'deliver'"),
        (damage_version, "schema version 99, this ringcast reads 2"),
        (damage_columns, "columns"),
        (damage_page, "damaged"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, damage: Any, reason: str) -> None:
    write(tmp_path, list(parse(STORY)))
    path = tmp_path / "deliver" / "0.parquet"
    damage(path)
    with pytest.raises(TraceError, match=reason) as caught:
        list(read_trace(tmp_path))
    assert str(path) in str(caught.value)


def changed(path: Path, change: Any) -> None:
    """Write a file anew, with other rows."""
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)


def in_row(at: int, **cells: Any) -> Any:
    return lambda rows: rows[at].update(cells)


@pytest.mark.parametrize(
    ("table", "change", "reason"),
    [
        *(
            ("deliver", in_row(1, **{name: 7}), f"contradict each other in {name}")
            for name in ("seq", "sender", "view_seq", "ring_rep", "sequence", "index", "level")
        ),
        ("deliver", lambda rows: rows.pop(1), "contradict each other in sequence"),
        ("deliver", lambda rows: rows.reverse(), "not sorted by processor"),
        ("originate", in_row(2, sender=2), "contradict each other in sender"),
        ("submit", in_row(2, sequence=9), "contradict each other in sequence"),
        ("view", lambda rows: rows.insert(0, rows[0]), "event 2 of processor 1 is there twice"),
        ("view", in_row(1, n=1), "processor 1 has an event 1 behind its 2"),
        ("fault", in_row(1, n=2), "processor 1 has an event 2 behind its 2"),
        ("view", in_row(2, conf_id_rep=None), "half of conf_id is empty"),
        ("view", in_row(0, n=LIMIT), f"n is {LIMIT} in a row"),
        ("view", in_row(0, t_us=-1), "t_us is -1 in a row"),
        ("view", in_row(0, run=1), "run is 1 in a row"),
        ("fault", in_row(-1, incarnation=None), "incarnation is empty"),
        ("fault", in_row(0, settled=None), "settled is empty"),
        ("fault", lambda rows: rows.append(dict(rows[0])), "not sorted by processor"),
    ],
)
def test_rows_that_make_no_sense_are_named(
    tmp_path: Path, table: str, change: Any, reason: str
) -> None:
    """A message told of in a row that nobody looks at would be a message nobody checks."""
    write(tmp_path, list(parse(STORY)))
    path = tmp_path / table / "0.parquet"
    changed(path, change)
    with pytest.raises(TraceError, match=reason) as caught:
        list(read_trace(tmp_path))
    assert str(path) in str(caught.value)


def test_a_file_without_statistics_is_named(tmp_path: Path) -> None:
    write(tmp_path, list(parse(STORY)))
    path = tmp_path / "deliver" / "0.parquet"
    pq.write_table(pq.read_table(path), path, write_statistics=False)
    with pytest.raises(TraceError, match=r"deliver/0.parquet: has no statistics"):
        list(read_trace(tmp_path))


def test_without_pyarrow_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TraceError, match=r"ringcast\[trace\]"):
        TraceWriter(tmp_path)
