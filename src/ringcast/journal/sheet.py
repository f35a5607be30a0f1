"""Records on their way into a frame: columns, what the chain takes of each, and the bodies.

A busy node spends its time here, so nothing is done for a record that can be done for many. Bodies
are looked at once, when they come; what a turn's records have in common, which is most of it, is
taken from columns that are there already.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from ringcast.journal.layout import LEVELS, Entry, Place, schema, stored

Piece = bytes | memoryview

MANY_PIECES = 256
"""More of them are joined before they are written: then a copy costs less than each for itself."""


class Packed(NamedTuple):
    """An entry with its bodies in one piece."""

    entry: Entry
    """Without them."""
    last: Place
    lengths: array[int]
    digests: array[int]
    data: bytes


def pack(entry: Entry) -> Packed:
    """What is done with every body, while the processor still has it at hand.

    Afterwards its memory is free for the bodies that come next, and only the copy is kept.
    """
    bodies = entry.bodies
    lengths = array("i", map(len, bodies))
    bare = entry._replace(bodies=())
    return Packed(bare, entry.last, lengths, digests(bodies), b"".join(bodies))


def digests(bodies: Iterable[Piece]) -> array[int]:
    """A number for each body. XXH3 takes 0.1 us for 1 KiB, a quarter of CRC-32's time."""
    from xxhash import xxh3_64_intdigest

    return array("Q", map(xxh3_64_intdigest, bodies))


class Sheet(NamedTuple):
    """The records of a frame."""

    columns: Any
    """As they are stored: of a body, where it ends."""
    values: Any
    """A number for each record, out of everything in it but its time."""
    pieces: Sequence[Piece]
    """The bodies."""
    first: Place
    last: Place


def sheet(packed: Sequence[Packed]) -> Sheet:
    """The records of entries."""
    import numpy as np
    import pyarrow as pa

    entries, lasts, lengths, sums, pieces = zip(*packed, strict=True)
    firsts, views, kinds, senders, levels, groups, members, _, times, sources = zip(
        *entries, strict=True
    )
    counts = np.fromiter(map(len, lengths), np.int64, len(entries))
    total = int(counts.sum())
    rows = np.repeat(np.arange(len(entries)), counts)
    ring_seqs, ring_reps, seqs, indices = zip(*firsts, strict=True)

    def numbers(values: Sequence[int]) -> Any:
        return np.fromiter(values, np.int64, len(entries))[rows]

    def column(name: str, values: Sequence[Any], plain: Callable[[Any], Any]) -> Any:
        if values.count(values[0]) == len(values):
            return common(name, plain(values[0]), total)
        return pa.array([thawed(plain(each)) for each in values], kind_of(name)).take(
            pa.array(rows)
        )

    def for_chain(values: Sequence[Any], number: Callable[[Any], int] = int) -> Any:
        if values.count(values[0]) == len(values):
            return np.uint64(number(values[0]))
        return np.fromiter(map(number, values), np.uint64, len(entries))

    rings = list(zip(ring_seqs, ring_reps, strict=True))
    ring = column("ring", rings, lambda each: (("seq", each[0]), ("rep", each[1])))
    within = np.arange(total) - (np.cumsum(counts) - counts)[rows]
    index = numbers(indices) + within
    place = [*ring.flatten(), pa.array(numbers(seqs)), pa.array(index.astype(np.int32))]
    source = column("source", sources, lambda s: s and tuple(zip(SOURCE, s, strict=True)))
    if source.null_count < total:
        stream, batch, row = source.flatten()
        parts = [stream, batch, pa.array(row.fill_null(0).to_numpy() + within)]
        kind = list(source.type)
        source = pa.StructArray.from_arrays(parts, fields=kind, mask=source.is_null())
    ends = np.cumsum(np.frombuffer(b"".join(lengths), np.int32), dtype=np.int32)
    columns = pa.RecordBatch.from_arrays(
        [
            pa.StructArray.from_arrays(place, fields=list(kind_of("position"))),
            ring,
            column("view", views, lambda each: (("seq", each.seq), ("rep", each.rep))),
            column("kind", kinds, str),
            column("group", groups, str),
            pa.array(numbers(senders)),
            column("level", levels, LEVELS.__getitem__),
            column("members", members, tuple),
            pa.array(ends),
            pa.array(numbers(times), kind_of("time")),
            source,
        ],
        schema=stored(),
    )
    of_entries = mixed(
        for_chain(ring_seqs),
        for_chain(ring_reps),
        for_chain(seqs),
        for_chain(views, lambda view: view.seq),
        for_chain(views, lambda view: view.rep),
        for_chain(senders),
        for_chain(kinds, number_of),
        for_chain(groups, number_of),
        for_chain(levels, lambda level: number_of(LEVELS[level])),
        for_chain(members, lambda listed: number_of(str(list(listed)))),
    )
    bodies = np.frombuffer(b"".join(sums), np.uint64)
    spread = of_entries[rows] if of_entries.shape else of_entries
    values = mixed(spread, index.astype(np.uint64), bodies)
    if len(pieces) > MANY_PIECES:
        pieces = (b"".join(pieces),)
    return Sheet(columns, values, pieces, firsts[0], lasts[-1])


def sheet_of(records: Any) -> Sheet:
    """The same for records that are an Arrow batch already."""
    import pyarrow as pa

    ends, data = bodies_of(records)
    at = records.schema.get_field_index("body")
    columns = records.set_column(at, stored().field(at), pa.array(ends[1:] - ends[0]))
    places = records.column("position")
    first, last = (Place(**places[row].as_py()) for row in (0, len(places) - 1))
    return Sheet(columns, record_values(records), [data[ends[0] : ends[-1]]], first, last)


def bodies_of(records: Any) -> tuple[Any, memoryview]:
    """Where the bodies of a batch end, each and one before the first; and the bytes they lie in."""
    import numpy as np

    column = records.column("body")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
    return ends, memoryview(data or b"")


def whole(columns: Any, data: Piece) -> Any:
    """The records as everybody sees them, out of columns as they are stored and the bodies."""
    import numpy as np
    import pyarrow as pa

    at = columns.schema.get_field_index("body")
    ends = np.zeros(columns.num_rows + 1, np.int32)
    ends[1:] = columns.column(at)
    parts = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    bodies = pa.Array.from_buffers(pa.binary(), columns.num_rows, parts)
    return columns.set_column(at, schema().field(at), bodies)


# --- columns of one value ------------------------------------------------------------------

SOURCE = ("stream", "batch", "row")

MOST_KEPT = 2**14
"""Rows of a column that is kept; beside more rows than that, making one costs nothing."""


def common(name: str, value: Any, count: int) -> Any:
    """So many rows of one value."""
    if count > MOST_KEPT:
        return repeated(name, value, count)
    return _kept(name, value, max(1024, 1 << (count - 1).bit_length())).slice(0, count)


def repeated(name: str, value: Any, count: int) -> Any:
    """A column of one value, anew."""
    import pyarrow as pa

    return pa.repeat(pa.scalar(thawed(value), kind_of(name)), count)


_kept = lru_cache(32)(repeated)


def thawed(value: Any) -> Any:
    """Tuples are lists, but those of names and values are structs."""
    if not isinstance(value, tuple):
        return value
    return dict(value) if value and isinstance(value[0], tuple) else list(value)


@lru_cache(16)
def kind_of(name: str) -> Any:
    """What is in a column."""
    return schema().field(name).type


# --- the chain -----------------------------------------------------------------------------


def link(before: bytes, values: Any) -> bytes:
    """The chain after records with these numbers: the same at all nodes with the same history.

    It covers all columns but the time, which is each node's own, and does not depend on how
    records were cut into batches. Each lane is a polynomial in an odd number, modulo 2^64: it
    tells a record that was altered, lost, doubled or moved, by accident and not by malice.
    """
    import numpy as np

    count = len(values)
    lanes = []
    for lane, factor in zip(np.frombuffer(before, np.uint64), FACTORS, strict=True):
        powers = (_powers if count < MOST_KEPT else powers_of)(factor, max(count, MOST_KEPT))
        added = int((values * powers[:count][::-1]).sum(dtype=np.uint64))
        lanes.append((int(lane) * int(powers[count]) + added) % 2**64)
    return b"".join(lane.to_bytes(8, "little") for lane in lanes)


FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


def powers_of(factor: int, count: int) -> Any:
    """The powers of a number, up to that one, modulo 2^64."""
    import numpy as np

    found = np.full(count + 1, factor, np.uint64)
    found[0] = 1
    return np.cumprod(found, dtype=np.uint64)  # overflow is what modulo means here


_powers = lru_cache(len(FACTORS))(powers_of)


def record_values(records: Any) -> Any:
    """The numbers that the chain takes of records in an Arrow batch."""
    import numpy as np

    ring_seq, ring_rep, seq, index = columns_of(records, "position")
    words = []
    for name in ("kind", "group", "level"):
        coded = records.column(name).dictionary_encode()
        known = np.array(list(map(number_of, coded.dictionary.to_pylist())), np.uint64)
        words.append(known[coded.indices.to_numpy()])
    members = records.column("members")
    listed = np.full(records.num_rows, number_of("[]"), np.uint64)
    for at in np.flatnonzero(members.value_lengths().to_numpy()):
        listed[at] = number_of(str(members[int(at)].as_py()))
    ends, data = bodies_of(records)
    bodies = digests(data[a:b] for a, b in pairwise(ends.tolist()))
    view = columns_of(records, "view")
    sender = records.column("sender").to_numpy().astype(np.uint64)
    of_entries = mixed(ring_seq, ring_rep, seq, *view, sender, *words, listed)
    return mixed(of_entries, index, np.frombuffer(bodies, np.uint64))


def columns_of(records: Any, name: str) -> list[Any]:
    """The numbers in a column of structs."""
    import numpy as np

    return [each.to_numpy().astype(np.uint64) for each in records.column(name).flatten()]


def mixed(*parts: Any) -> Any:
    """One number out of several, or one for each row."""
    import numpy as np

    found = np.uint64(0xCBF29CE484222325)
    with np.errstate(over="ignore"):
        for part in parts:
            found = (found ^ part) * np.uint64(0x100000001B3)
    return found


@lru_cache(256)
def number_of(text: str) -> int:
    """A number for a word."""
    return digests([text.encode()])[0]
