"""From entries, which a journal keeps, to records, which everybody sees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from ringcast.core.ids import Level
from ringcast.journal.format.frame import KINDS, Frame, Range, joined_frames
from ringcast.journal.format.layout import LEVELS, schema
from ringcast.journal.format.message import bodies


def records(frame: Frame) -> Any:
    """Every record of some entries, as an Arrow batch.

    What all entries have in common, mostly all but numbers, is not written out for each record.
    """
    import numpy as np
    import pyarrow as pa

    table, counts, total = frame.table, frame.counts, len(frame.lengths)

    def numbers(name: str) -> Any:
        return np.repeat(table[name], counts)

    def mostly(name: str) -> Any:
        """Numbers that are hardly ever but 0."""
        return pa.array(numbers(name)) if table[name].any() else common("sender", 0, total)

    def words(name: str, known: Any) -> Any:
        codes = table[name]
        if (codes == codes[0]).all():
            return common(name, known[codes[0]], total)
        return pa.array(known, kind_of(name)).take(pa.array(np.repeat(codes, counts)))

    def spread(name: str, values: list[Any]) -> Any:
        rows = np.repeat(np.arange(len(values)), counts)
        return pa.array(values, kind_of(name)).take(pa.array(rows))

    def pair(seqs: str, reps: str) -> Any:
        """A configuration."""
        seq, rep = table[seqs], table[reps]
        if (seq == seq[0]).all() and (rep == rep[0]).all():
            return common("view", (int(seq[0]), int(rep[0])), total)
        parts = [pa.array(numbers(seqs)), pa.array(numbers(reps))]
        return pa.StructArray.from_arrays(parts, fields=list(kind_of("view")))

    within = np.arange(total, dtype=np.int32) - np.repeat(np.cumsum(counts) - counts, counts)
    ring, index = pair("ring_seq", "ring_rep"), (numbers("index") + within).astype(np.int32)
    on_ring = [pa.array(numbers("seq")), pa.array(index)]
    position = [mostly("timestamp"), *ring.flatten(), *on_ring, mostly("branch")]
    members, source = common("members", (), total), common("source", None, total)
    noted = table["note"] > 0
    if (noted & (table["kind"] > 0)).any():
        members = spread("members", [frame.members(at) for at in range(len(frame))])
    if (noted & (table["kind"] == 0)).any():
        source = spread("source", [named(frame.source(at)) for at in range(len(frame))])
        stream, batch, row = source.flatten()
        parts = [stream, batch, pa.array(row.fill_null(0).to_numpy() + within)]
        kind = list(kind_of("source"))
        source = pa.StructArray.from_arrays(parts, fields=kind, mask=source.is_null())
    return pa.RecordBatch.from_arrays(
        [
            pa.StructArray.from_arrays(position, fields=list(kind_of("position"))),
            pair("view_seq", "view_rep"),
            words("kind", KINDS),
            words("group", frame.names.groups),
            pa.array(numbers("sender")),
            words("level", [LEVELS[level] for level in Level]),
            members,
            bodies(frame.data, frame.ends, counts, frame.lengths),
            pa.array(numbers("time"), kind_of("time")),
            source,
        ],
        schema=schema(),
    )


def named(source: Any) -> Any:
    """As Arrow takes it."""
    return source and dict(zip(("stream", "batch", "row"), source, strict=True))


def cut(span: Range, frame: Frame) -> Any:
    """The records of some entries that lie in a range."""
    found = records(frame)
    if span.after < frame.first and frame.last <= span.upto:
        return found
    start = frame.upto(span.after)
    return found.slice(start, frame.upto(span.upto) - start)


ENOUGH_ROWS, ENOUGH_BYTES = 2**14, 2**21
"""Frames are bound up to so many records: making a batch costs 0.2 ms, and whoever gets it some
more, but beyond the processor's cache a larger one is slower."""

FARTHEST = 2**30
"""Bytes of a file between the first and the last message of a batch."""


def batches(found: Iterable[tuple[Range, Frame]]) -> Iterator[Any]:
    """The records of frames, of each those in its range, in batches that are worth it."""
    held: list[Frame] = []
    span: Range | None = None
    rows = size = 0
    for each, frame in found:
        if span is not None and (
            each != span
            or rows + len(frame.lengths) > ENOUGH_ROWS
            or size + frame.size > ENOUGH_BYTES
            or not held[-1].goes_on(frame)
            or frame.ends[-1] - held[0].begins[0] > FARTHEST
        ):
            yield cut(span, joined_frames(held))
            held, rows, size = [], 0, 0
        span = each
        held.append(frame)
        rows, size = rows + len(frame.lengths), size + frame.size
    if span is not None:
        yield cut(span, joined_frames(held))


# --- columns of one value ------------------------------------------------------------------

MOST_KEPT = 2**15
"""Rows of a column that is kept; beside more rows than that, making one costs nothing."""


def common(name: str, value: Any, count: int) -> Any:
    """So many rows of one value."""
    if count > MOST_KEPT:
        return repeated(name, value, count)
    return _kept(name, value, max(1024, 1 << (count - 1).bit_length())).slice(0, count)


def repeated(name: str, value: Any, count: int) -> Any:
    """A column of one value, anew."""
    import pyarrow as pa

    if name == "view":
        value = dict(zip(("seq", "rep"), value, strict=True))
    return pa.repeat(pa.scalar(value, kind_of(name)), count)


_kept = lru_cache(32)(repeated)


@lru_cache(16)
def kind_of(name: str) -> Any:
    """What is in a column."""
    return schema().field(name).type
