"""What a record is: places in the order, and the columns.

The columns are those that Spark sees, so reading a journal is handing on its batches.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from ringcast.core.ids import Level, NodeId, ViewId

MESSAGE, VIEW, TRANSITIONAL = "message", "view", "transitional"
"""The kinds of a record: a message of a group, a regular and a transitional configuration."""

GAP = "gap"
"""And one that says: what came before is missing here, and nobody could tell it any more."""

LEVELS = {level: level.name.lower() for level in Level}

LAST_INDEX = 2**31 - 1
"""A transitional configuration comes after all messages of the number it follows."""

GAP_INDEX = -1
"""A gap comes before the first record behind it, at a place that no other record has."""


NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Readers and writers, whose names become those of files."""


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

NO_CHAIN = bytes(16)
"""The chain before the first record."""


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


def gap_entry(following: Place, why: str, time_us: int) -> Entry:
    """A gap before the record at ``following``."""
    first, view = following._replace(index=GAP_INDEX), ViewId(*following[:2])
    return Entry(first, view, GAP, 0, Level.AGREED, "", (), (why.encode(),), time_us)


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


@cache
def stored() -> Any:
    """The columns as they are written: of a body, where it ends among those of its frame."""
    import pyarrow as pa

    names = schema()
    ends = pa.field("body", pa.int32(), nullable=False)
    return names.set(names.get_field_index("body"), ends)


def configurations(records: Any) -> list[tuple[ViewId, Place]]:
    """The configurations of some records, in their order, each with its last place."""
    import numpy as np

    places = records.column("position")
    rows = np.flatnonzero(places.flatten()[3].to_numpy() != GAP_INDEX)  # gaps are of none
    seq, rep = (each.to_numpy()[rows] for each in records.column("view").flatten())
    ends = (np.diff(seq, append=-1) != 0) | (np.diff(rep, append=-1) != 0)
    return [
        (ViewId(int(seq[at]), int(rep[at])), Place(**places[int(rows[at])].as_py()))
        for at in np.flatnonzero(ends)
    ]


def cut_at_gaps(records: Any) -> list[tuple[Any, bool]]:
    """The same records in parts, and whether a part begins with a gap, as each gap does."""
    import numpy as np

    gaps = np.flatnonzero(records.column("position").flatten()[3].to_numpy() == GAP_INDEX)
    edges = sorted({0, *gaps.tolist(), records.num_rows})
    return [(records.slice(a, b - a), a in gaps) for a, b in pairwise(edges)]


def from_bytes(data: bytes) -> Any:
    """An Arrow batch of records that came as bytes; JournalError if it is none."""
    import pyarrow as pa

    try:
        found = pa.ipc.read_record_batch(pa.py_buffer(data), schema())
        found.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise JournalError(f"not a batch of records ({error})") from None
    return found
