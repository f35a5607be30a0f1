"""Bodies as columns: JSON and Arrow, both ways, and bodies that are neither."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ringcast.core.ids import Level, Position, ViewId
from ringcast.journal.format import layout
from ringcast.journal.format.frame import read_frame
from ringcast.journal.format.frame_writer import frame_content
from ringcast.journal.format.layout import view_entry
from ringcast.journal.format.records import records as records_of
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.stream import bodies
from ringcast.pipeline.stream.options import to_read, to_write
from ringcast.pipeline.stream.source import HIDDEN, RingcastSource
from ringcast.replica import contents, words

RING = ViewId(8, 1)
ORDER = T.StructType([
    T.StructField("id", T.LongType(), False),
    T.StructField("name", T.StringType()),
    T.StructField("size", T.ByteType()),
    T.StructField("price", T.DecimalType(9, 2)),
    T.StructField("at", T.TimestampType()),
    T.StructField("day", T.DateType()),
    T.StructField("raw", T.BinaryType()),
    T.StructField("tags", T.ArrayType(T.StringType())),
    T.StructField("more", T.MapType(T.StringType(), T.DoubleType())),
    T.StructField("inner", T.StructType([T.StructField("yes", T.BooleanType())])),
])  # fmt: skip


AS_ARROW = to_arrow_schema(ORDER, timezone="UTC")


def columns(form: str, row: T.StructType = ORDER) -> T.StructType:
    """What Spark makes of the source's columns."""
    return bodies.with_body(RingcastSource({"path": "somewhere"}).schema(), form, row)


def records(found: list[bytes]) -> Any:
    """A view, then messages with these bodies."""
    entries = [view_entry(Position.at(RING, 0), RING, (1, 2), False, 0)]
    for seq, body in enumerate(found, 1):
        place = Position(0, 8, 1, seq, 0)
        entries.append(
            layout.entry(place, RING, layout.MESSAGE, 2, Level.AGREED, "g", (), (body,), seq)
        )
    ready = frame_content(entries)
    data = memoryview(b"".join(ready.pieces))
    frame = read_frame(memoryview(ready.section), len(entries), ready.rows, data)
    return records_of(frame).drop_columns([HIDDEN])


def read(form: str, found: list[bytes], forgiving: bool = False) -> list[Any]:
    schema = columns(form)
    batch = bodies.Reading(form, schema, forgiving).decode(records(found))
    assert batch.schema == to_arrow_schema(schema, timezone="UTC"), "Spark compares them"
    read_back: list[Any] = batch.column("body").to_pylist(maps_as_pydicts="strict")
    view, *rows = read_back
    assert view is None
    return rows


ROWS = st.fixed_dictionaries({
    "id": st.integers(-(2**63), 2**63 - 1),
    "name": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
    "size": st.none() | st.integers(-128, 127),
    "price": st.none() | st.decimals(-9999999, 9999999, places=2),
    "at": st.none() | st.datetimes(timezones=st.just(datetime.UTC)),
    "day": st.none() | st.dates(),
    "raw": st.none() | st.binary(max_size=9),
    "tags": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
    "more": st.none() | st.dictionaries(st.text(max_size=3), st.floats(-9, 9), max_size=3),
    "inner": st.none() | st.fixed_dictionaries({"yes": st.none() | st.booleans()}),
})  # fmt: skip


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_what_the_sink_writes_the_source_reads(rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=AS_ARROW)
    assert read("json", list(bodies.encode("json", batch))) == rows
    packed = read("arrow", list(bodies.encode("arrow", batch)))
    assert [row for message in packed for row in message] == rows


def test_an_arrow_body_has_many_rows_and_there_are_as_many_bodies_as_it_takes() -> None:
    batch = pa.record_batch({"id": range(50_000)})
    found = list(bodies.encode("arrow", batch))
    assert 2 <= len(found) < 20
    one_less = T.StructType([T.StructField("id", T.ByteType())])
    schema = columns("arrow", one_less)
    small = [bodies.encode("arrow", pa.record_batch({"id": list(range(n))})) for n in (3, 0, 1)]
    column = bodies.Reading("arrow", schema, False).decode(
        records([body for each in small for body in each])
    ).column("body")  # fmt: skip
    assert column.to_pylist() == [None, [{"id": 0}, {"id": 1}, {"id": 2}], [{"id": 0}]]


GOOD = b'{"id":1,"unknown":[1,2]}'


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[1]", "object"),
        (b"\xff\xfe", "malformed"),
        (b'{"name":"no id"}', "missing required field"),
        (b'{"id":"text"}', "int"),
        (b'{"id":1,"size":128}', "127"),
        (b'{"id":1,"price":"1234567890.12"}', "precision"),
        (b'{"id":1,"at":"2026-01-01T00:00:00"}', "timezone"),
        (b'{"id":1,"name":"\xff"}', "UTF-8|utf-8"),
        (b'{"id":1,"unknown":' + b"[" * 20_000 + b"]" * 20_000 + b"}", "recursion"),
    ],
)
def test_a_body_that_is_no_such_json_is_named_or_null(bad: bytes, why: str) -> None:
    with pytest.raises(PipelineError, match=rf"\(8,1\):2\.0, group 'g', sender 2, .*{why}"):
        read("json", [GOOD, bad, GOOD])
    found = read("json", [GOOD, bad, GOOD], forgiving=True)
    assert [row and row["id"] for row in found] == [1, None, 1]


def stream(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


SOME = {field.name: pa.array([], field.type) for field in AS_ARROW}


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"", "null or length 0|Tried reading"),
        (b"{}", "Invalid|read"),
        (stream(pa.table({"id": [1]})), "no column name"),
        (stream(pa.table(SOME | {"size": pa.array([], pa.list_(pa.int8()))})), "cast"),
        (stream(pa.table(SOME))[:-200], "."),
    ],
)
def test_a_body_that_is_no_such_arrow_is_named_or_null(bad: bytes, why: str) -> None:
    with pytest.raises(PipelineError, match=rf"\(8,1\):1\.0.*{why}"):
        read("arrow", [bad])
    assert read("arrow", [bad], forgiving=True) == [None]


@pytest.mark.parametrize("at", range(0, 900, 60))
def test_damaged_arrow_is_never_worse_than_bad(at: int) -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 5}], schema=AS_ARROW)
    (body,) = bodies.encode("arrow", batch)
    spoilt = bytearray(body)
    spoilt[at % len(body)] ^= 0xFF
    read("arrow", [bytes(spoilt)], forgiving=True)


def packed(column: Any, compression: str | None = None) -> bytes:
    """A body with one column."""
    sink, batch = pa.BufferOutputStream(), pa.record_batch([column], ["id"])
    how = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=how) as out:
        out.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


MANY, LONG = 1_000_000, "x" * 100_000
NOUGHTS = pa.repeat(pa.scalar(0), MANY)
AGAIN = pa.array([0] * 1_000, pa.int8())
NONE_IN_A_ROW = pa.ListArray.from_arrays(pa.array([0, MANY], pa.int32()), pa.nulls(MANY))


ONE, SOME_LONGS, TEXT = T.LongType(), T.ArrayType(T.LongType()), T.StringType()
BOMBS = {
    "zstd": (packed(NOUGHTS, "zstd"), ONE),
    "lz4": (packed(NOUGHTS, "lz4"), ONE),
    "nulls": (packed(pa.nulls(MANY)), ONE),
    "nulls in a list": (packed(NONE_IN_A_ROW), SOME_LONGS),
    "nulls in lists of one length": (
        packed(pa.FixedSizeListArray.from_arrays(pa.nulls(MANY), MANY)),
        SOME_LONGS,
    ),
    "nulls in rows": (
        packed(pa.StructArray.from_arrays([pa.nulls(MANY)], ["a"])),
        T.StructType([T.StructField("a", ONE)]),
    ),
    "long words": (packed(pa.DictionaryArray.from_arrays(AGAIN, [LONG])), TEXT),
    "runs": (packed(pa.RunEndEncodedArray.from_arrays(pa.array([MANY]), pa.array([1]))), ONE),
    "views of text": (packed(pa.array([LONG] * 2, pa.string_view())), TEXT),
    "views of lists": (packed(pa.array([[1]], pa.list_view(pa.int64()))), SOME_LONGS),
}


@pytest.mark.parametrize("name", BOMBS)
def test_an_arrow_body_that_becomes_much_more_is_named_or_null(name: str) -> None:
    """A guest that writes 200 bytes could end every query that reads them, again and again."""
    bomb, kind = BOMBS[name]
    schema = columns("arrow", T.StructType([T.StructField("id", kind)]))
    before = pa.total_allocated_bytes()
    with pytest.raises(PipelineError, match=r"become more than 32 times|may overlap"):
        read_rows(schema, bomb)
    assert read_rows(schema, bomb, forgiving=True) == [None]
    assert pa.total_allocated_bytes() - before < MANY


@pytest.mark.parametrize(
    "body",
    [
        packed(pa.array(range(5_000)), "zstd"),
        packed(pa.array(range(5_000)), "lz4"),
        packed(pa.array([5] * 5_000, pa.int8())),
        packed(pa.array([7] * 5_000).dictionary_encode()),
        packed(pa.nulls(5_000)),
    ],
    ids=["zstd", "lz4", "bytes", "dictionary", "nulls"],
)
def test_what_is_packed_as_usual_is_read(body: bytes) -> None:
    schema = columns("arrow", T.StructType([T.StructField("id", ONE)]))
    (found,) = read_rows(schema, body)
    assert len(found) == 5_000


def test_words_of_a_dictionary_are_read() -> None:
    words_of = pa.array(["red", "green", "blue"] * 1000).dictionary_encode()
    schema = columns("arrow", T.StructType([T.StructField("id", TEXT)]))
    (found,) = read_rows(schema, packed(words_of, "zstd"))
    assert [row["id"] for row in found[:4]] == ["red", "green", "blue", "red"]


def read_rows(schema: T.StructType, body: bytes, forgiving: bool = False) -> list[Any]:
    """The bodies of a batch with one message."""
    column = bodies.Reading("arrow", schema, forgiving).decode(records([body])).column("body")
    found: list[Any] = column.to_pylist()[1:]
    return found


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bodies": "json"}, "go together"),
        ({"bodySchema": "id BIGINT"}, "go together"),
        ({"bodies": "raw", "bodySchema": "id BIGINT"}, "go together"),
        ({"bodies": "yaml"}, "bodies`; known: arrow, auto, commands, json, raw"),
        ({"bodies": "json", "bodySchema": "id INT", "badBodies": "nul"}, "null. known: fail, null"),
    ],
)
def test_bad_options_are_said(options: dict[str, str], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        to_read({"path": "x", **options})


def test_what_a_sink_cannot_do_is_said() -> None:
    words = {"connect": "h:1", "group": "g", "stream": "s", "staging": "x"}
    with pytest.raises(PipelineError, match="for reading"):
        to_write({**words, "bodies": "json", "bodySchema": "id INT"})
    whole = T.StructType([T.StructField("body", T.LongType())])
    with pytest.raises(PipelineError, match="binary or string"):
        bodies.form_of("raw", whole)
    assert bodies.form_of("auto", whole) == "json"
    assert bodies.form_of("auto", T.StructType([T.StructField("body", T.StringType())])) == "raw"


def test_rows_as_json_are_what_others_expect() -> None:
    row = {"day": datetime.date(2026, 1, 2), "price": decimal.Decimal("1.50"), "raw": b"\x00"}
    (body,) = bodies.encode("json", pa.RecordBatch.from_pylist([row]))
    assert msgspec.json.decode(body) == {"day": "2026-01-02", "price": "1.50", "raw": "AA=="}


def test_a_type_that_json_has_not_is_said() -> None:
    row = T.StructType([T.StructField("long", T.DayTimeIntervalType())])
    with pytest.raises(PipelineError, match="cannot be read from JSON"):
        columns("json", row)
    said = {"path": "x", "bodies": "json", "bodySchema": "names MAP<INT, STRING>"}
    with pytest.raises(PipelineError, match=r"bodySchema: map<int32, .* cannot be read from JSON"):
        RingcastSource(said).schema()


def test_the_columns_as_spark_reads_them() -> None:
    said = {"path": "x", "bodies": "arrow", "bodySchema": "id BIGINT, name STRING"}
    found = RingcastSource(said).schema()
    assert found["body"].dataType.simpleString() == "array<struct<id:bigint,name:string>>"
    assert found["body"].nullable and not found["group"].nullable


def test_commands_of_a_replica_have_a_kind_and_columns_of_their_own() -> None:
    """Without the words around them; other words of replicas stay what they were."""
    ticket = words.Ticket(3, 2**60, 7)
    said = [
        words.Action(ticket, contents.encode(contents.Command(b"7 ann", "c17", 4))),
        words.Action(ticket, contents.encode(contents.Command(b"8 bob"))),
        words.Action(ticket, contents.encode(contents.Present(words.NEVER, (1, 2, 3)))),
        words.Ack(words.NEVER, 9),
    ]
    given = {"path": "somewhere", "group": "g", "bodies": "commands"}
    schema = RingcastSource(given).schema()
    batch = records([words.encode(word) for word in said])
    found = bodies.Reading("commands", schema, forgiving=False).decode(batch)
    assert found.column("kind").to_pylist() == ["view", "command", "command", "message", "message"]
    name = {"member": 3, "boot": 2**60, "number": 7}
    assert found.column("body").to_pylist() == [
        None,
        {**name, "client": "c17", "request": 4, "command": b"7 ann"},
        {**name, "client": None, "request": None, "command": b"8 bob"},
        None,
        None,
    ]
    with pytest.raises(PipelineError, match="is not commands with these columns"):
        bodies.Reading("commands", schema, forgiving=False).decode(records([b"no word"]))
    with pytest.raises(PipelineError, match="needs group"):
        to_read({"path": "somewhere", "bodies": "commands"})
    with pytest.raises(PipelineError, match="bodies"):
        to_write({"connect": "h:1", "group": "g", "bodies": "commands"})
