"""What a record is: places in the order, the columns, and the chain that names a history.

The columns are those that Spark sees, so reading a journal is handing on its batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, NamedTuple
from zlib import crc32

from ringcast.core.ids import Level, NodeId, ViewId

MESSAGE, VIEW, TRANSITIONAL = "message", "view", "transitional"
"""The kinds of a record: a message of a group, a regular and a transitional configuration."""

LEVELS = {level: level.name.lower() for level in Level}

LAST_INDEX = 2**31 - 1
"""A transitional configuration comes after all messages of the number it follows."""


class JournalError(Exception):
    """A journal that cannot be read or written; the text says which file, and what to do."""


class Place(NamedTuple):
    """Where a record stands in the total order; places compare as the order goes."""

    ring_seq: int
    ring_rep: int
    seq: int
    index: int  # type: ignore[assignment]  # that tuples have a method of this name hurts nobody

    def __str__(self) -> str:
        return f"({self.ring_seq},{self.ring_rep}):{self.seq}.{self.index}"


START = Place(0, 0, 0, 0)
"""Before every record."""


Source = tuple[str, int, int]
"""A writer that publishes each row once: its name, the number of its batch, and of the row."""


class Entry(NamedTuple):
    """Records that have all but their bodies in common: what one envelope brought, or a view."""

    first: Place
    view: ViewId
    kind: str
    sender: NodeId
    level: Level
    group: str
    members: tuple[NodeId, ...]
    bodies: tuple[bytes, ...]
    time_us: int
    source: Source | None = None
    """Of the first record; the rows of the others follow."""

    @property
    def last(self) -> Place:
        """The place of the last record."""
        ring_seq, ring_rep, seq, index = self.first
        return Place(ring_seq, ring_rep, seq, index + len(self.bodies) - 1)


def view_entry(
    view: ViewId, members: tuple[NodeId, ...], transitional: bool, after: Place, time_us: int
) -> Entry:
    """A configuration as a record. ``after`` is the last place before a transitional one."""
    if transitional:
        first, kind = after._replace(index=LAST_INDEX), TRANSITIONAL
    else:
        first, kind = Place(view.seq, view.rep, 0, 0), VIEW
    return Entry(first, view, kind, 0, Level.AGREED, "", members, (b"",), time_us)


@cache
def schema() -> Any:
    """The columns, as Arrow and Spark know them."""
    import pyarrow as pa

    def fixed(name: str, kind: Any) -> Any:
        return pa.field(name, kind, nullable=False)

    long, whole = pa.int64(), pa.int32()
    ring = pa.struct([fixed("seq", long), fixed("rep", long)])
    place = [fixed("ring_seq", long), fixed("ring_rep", long)]
    place += [fixed("seq", long), fixed("index", whole)]
    source = [pa.field("stream", pa.string()), pa.field("batch", long), pa.field("row", long)]
    return pa.schema(
        [
            fixed("position", pa.struct(place)),
            fixed("ring", ring),
            fixed("view", ring),
            fixed("kind", pa.string()),
            fixed("group", pa.string()),
            fixed("sender", long),
            fixed("level", pa.string()),
            fixed("members", pa.list_(pa.field("element", long, nullable=False))),
            fixed("body", pa.binary()),
            fixed("time", pa.timestamp("us", "UTC")),
            pa.field("source", pa.struct(source)),
        ]
    )


def batch(entries: Sequence[Entry]) -> Any:
    """The records of the entries as one Arrow batch.

    Entries are turned into columns at once, because a busy ring has as many entries as messages:
    0.8 us for each that has one body, and 0.2 us for each body more.
    """
    import numpy as np
    import pyarrow as pa

    firsts, views, kinds, senders, levels, groups, members, bodies, times, sources = zip(
        *entries, strict=True
    )
    counts = np.fromiter(map(len, bodies), np.int64, len(entries))
    total = int(counts.sum())

    def spread(values: Iterable[int]) -> Any:
        return np.repeat(np.fromiter(values, np.int64, len(entries)), counts)

    def pairs(values: Iterable[Sequence[int]], width: int) -> Any:
        flat = np.fromiter(chain.from_iterable(values), np.int64, width * len(entries))
        return np.repeat(flat.reshape(-1, width), counts, axis=0).T

    def words(values: Iterable[str]) -> Any:
        known = {word: at for at, word in enumerate(dict.fromkeys(values))}
        codes = pa.array(spread(map(known.__getitem__, values)).astype(np.int32))
        return pa.array(list(known), pa.string()).take(codes)

    def struct(kind: Any, *columns: Any) -> Any:
        arrays = [pa.array(each, field.type) for each, field in zip(columns, kind, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(kind))

    names = schema()
    ring_seq, ring_rep, seq, index = pairs(firsts, 4)
    starts = np.cumsum(counts) - counts
    within = np.arange(total) - np.repeat(starts, counts)
    ends = np.zeros(total + 1, np.int32)
    np.cumsum(spread(map(len, members)), out=ends[1:])
    listed = list(chain.from_iterable(e.members * len(e.bodies) for e in entries if e.members))
    kind = names.field("source").type
    if any(sources):
        given = [source or ("", 0, 0) for source in sources]
        streams, batches, rows = zip(*given, strict=True)
        absent = pa.array(spread(source is None for source in sources).astype(bool))
        columns = (words(streams), spread(batches), spread(rows) + within)
        arrays = [pa.array(each) for each in columns]
        source = pa.StructArray.from_arrays(arrays, fields=list(kind), mask=absent)
    else:
        source = pa.nulls(total, kind)
    element = names.field("members").type.value_field
    place = (ring_seq, ring_rep, seq, (index + within).astype(np.int32))
    return pa.record_batch(
        [
            struct(names.field("position").type, *place),
            struct(names.field("ring").type, ring_seq, ring_rep),
            struct(names.field("view").type, *pairs(map(RING_OF, views), 2)),
            words(kinds),
            words(groups),
            pa.array(spread(senders)),
            words([LEVELS[level] for level in levels]),
            pa.ListArray.from_arrays(
                pa.array(ends), pa.array(listed, pa.int64()), type=pa.list_(element)
            ),
            pa.array(list(chain.from_iterable(bodies)), pa.binary()),
            pa.array(spread(times), names.field("time").type),
            source,
        ],
        schema=names,
    )


RING_OF = attrgetter("seq", "rep")


def from_bytes(data: bytes) -> Any:
    """An Arrow batch of records that came as bytes; JournalError if it is none."""
    import pyarrow as pa

    try:
        found = pa.ipc.read_record_batch(pa.py_buffer(data), schema())
        found.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise JournalError(f"not a batch of records ({error})") from None
    return found


def link(before: bytes, records: Any) -> bytes:
    """The chain after these records: the same at all nodes with the same history.

    It covers all columns but the time, which is each node's own, and does not depend on how
    records were cut into batches. Each lane is a polynomial in an odd number, modulo 2^64: it
    tells a record that was altered, lost, doubled or moved, by accident and not by malice.
    """
    import numpy as np

    count = records.num_rows
    if not count:
        return before
    values = record_values(records)
    lanes = []
    for lane, factor in zip(np.frombuffer(before, np.uint64), FACTORS, strict=True):
        powers = np.full(count + 1, factor, np.uint64)
        powers[0] = 1
        powers = np.cumprod(powers, dtype=np.uint64)[::-1]  # overflow is what modulo means here
        added = int((values * powers[1:]).sum(dtype=np.uint64))
        lanes.append((int(lane) * int(powers[0]) + added) % 2**64)
    return b"".join(lane.to_bytes(8, "little") for lane in lanes)


FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
NO_CHAIN = bytes(8 * len(FACTORS))
"""The chain before the first record."""


def record_values(records: Any) -> Any:
    """One number for each record, out of everything in it but its time."""
    import numpy as np

    prime = np.uint64(0x100000001B3)
    numbers = [*records.column("position").flatten(), *records.column("view").flatten()]
    numbers.append(records.column("sender"))
    with np.errstate(over="ignore"):
        found = np.full(records.num_rows, 0xCBF29CE484222325, np.uint64)
        for column in numbers:
            found = (found ^ column.to_numpy().astype(np.uint64)) * prime
        for name in ("kind", "group", "level"):
            coded = records.column(name).dictionary_encode()
            known = [crc32(word.encode()) for word in coded.dictionary.to_pylist()]
            codes = np.asarray(known, np.uint64)[coded.indices.to_numpy()]
            found = (found ^ codes) * prime
        members = records.column("members")
        listed = np.full(records.num_rows, 0, np.uint64)
        for at in np.flatnonzero(members.value_lengths().to_numpy()):
            listed[at] = crc32(repr(members[int(at)].as_py()).encode())
        found = (found ^ listed) * prime
        bodies = records.column("body")
        offsets = np.frombuffer(bodies.buffers()[1], np.int32)
        offsets = offsets[bodies.offset : bodies.offset + len(bodies) + 1]
        data = memoryview(bodies.buffers()[2] or b"")
        ends = offsets.tolist()
        sums = [crc32(data[a:b]) for a, b in pairwise(ends)]
        found = (found ^ np.asarray(sums, np.uint64)) * prime
        return (found ^ np.diff(offsets).astype(np.uint64)) * prime
