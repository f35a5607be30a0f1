"""A frame as it is read: some entries, as they lie in a file.

It is a table of numbers, the lengths of all bodies, the names that the table refers to, and the
messages themselves. Nothing of it is copied when a frame is read or divided.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import Annotated, Any, NamedTuple

import msgspec

from ringcast.core.ids import GAP_BRANCH, LAST_INDEX, Level, NodeId, Position, ViewId
from ringcast.journal.format.layout import (
    GAP,
    MESSAGE,
    TRANSITIONAL,
    VIEW,
    JournalError,
    Source,
)
from ringcast.journal.format.message import digest, room
from ringcast.wire.envelope import check_rows

KINDS = (MESSAGE, VIEW, TRANSITIONAL, GAP)

OWN = struct.Struct("<qIIq")
"""Of an entry: its time, its group, its note, and the length of its message."""

SHARED = struct.Struct("<qqqqqqqqQiiBB6x")
"""And what is the same at all nodes: timestamp, ring, number, branch, view, sender, digest, index,
how many records, kind, level."""

ROW_BYTES = OWN.size + SHARED.size

Note = tuple[NodeId, ...] | Source
"""The members of a configuration, or the writer of a message."""


class NameTable(msgspec.Struct, array_like=True, frozen=True):
    """What the table refers to by numbers."""

    groups: list[Annotated[str, msgspec.Meta(max_length=64)]]
    """``""`` is that of configurations and gaps."""
    members: list[tuple[NodeId, ...]]
    sources: list[Source]
    """Both counted from 1, for 0 is none."""


@cache
def row_type() -> Any:
    """A row of the table, as numpy knows it."""
    import numpy as np

    numbers = ("time", "i8"), ("group", "u4"), ("note", "u4"), ("size", "i8")
    place = [(name, "i8") for name in Position._fields if name != "index"]
    view = ("view_seq", "i8"), ("view_rep", "i8"), ("sender", "i8"), ("digest", "u8")
    rest = ("index", "i4"), ("count", "i4"), ("kind", "u1"), ("level", "u1"), ("", "V6")
    return np.dtype([*numbers, *place, *view, *rest])


PLACE = list(Position._fields)

LEAST = {
    "time": 0, "timestamp": 0, "ring_seq": 0, "ring_rep": 0, "seq": -1, "index": 0,
    "branch": GAP_BRANCH, "view_seq": 0, "view_rep": 1, "sender": 0,
}  # fmt: skip
"""The smallest numbers, as ``Position`` and ``ViewId`` have them: others cannot be read back from
the small files beside the segments."""

MOST = {"time": 253_402_300_799_999_999, "view_rep": 2**32 - 1, "sender": 2**32 - 1}
"""And the largest, where a column could hold more. After the year 9999 there is no date."""


class Range(NamedTuple):
    """Records after ``after`` up to and including ``upto``."""

    after: Position
    upto: Position


class Keys(NamedTuple):
    """What tells entries apart, as columns of numbers."""

    places: list[Any]
    digests: Any
    """What is in them, which is the same at the same place."""


class Frame:
    """Some entries, in their order."""

    def __init__(
        self, table: Any, lengths: Any, names: NameTable, data: memoryview, begins: Any
    ) -> None:
        self.table = table
        self.lengths = lengths
        """Of the bodies of all messages."""
        self.names = names
        self.data = data
        """Where the messages lie, mostly a whole file."""
        self.begins = begins
        """Where each of them begins there."""

    def __len__(self) -> int:
        return len(self.table)

    @property
    def counts(self) -> Any:
        """How many records each entry has."""
        return self.table["count"]

    @property
    def ends(self) -> Any:
        """Where each message ends."""
        return self.begins + self.table["size"]

    @property
    def size(self) -> int:
        """Bytes of the messages."""
        return int(self.table["size"].sum())

    @cached_property
    def firsts(self) -> list[Position]:
        """The place of the first record of each entry."""
        return list(map(Position._make, self.table[PLACE].tolist()))

    @property
    def first(self) -> Position:
        """The place of the first record."""
        return Position._make(self.table[0][PLACE].item())

    @property
    def last(self) -> Position:
        """The place of the last record."""
        end = self.table[-1]
        first = Position._make(end[PLACE].item())
        return first._replace(index=first.index + int(end["count"]) - 1)

    @property
    def last_indexes(self) -> Any:
        """The index of the last record of each entry."""
        return self.table["index"].astype("int64") + self.counts - 1

    def part(self, start: int, end: int) -> Frame:
        """Some of the entries."""
        before = int(self.counts[:start].sum())
        lengths = self.lengths[before : before + int(self.counts[start:end].sum())]
        some = slice(start, end)
        return Frame(self.table[some], lengths, self.names, self.data, self.begins[some])

    def chosen(self, mask: Any) -> Frame:
        """The entries for which a mask is true; they need not lie one behind the other."""
        lengths = self.lengths[mask.repeat(self.counts)]
        return Frame(self.table[mask], lengths, self.names, self.data, self.begins[mask])

    def goes_on(self, other: Frame) -> bool:
        """Whether another one may be bound to this one: it lies behind it in the same file."""
        return self.data is other.data and self.names == other.names

    def parts(self, size: int) -> Iterator[Frame]:
        """The same in parts of at most so many bytes and the names of their groups, or of one entry
        that has more. Each has no names but its own."""
        start = held = 0
        for at, each in enumerate(self._sizes().tolist()):
            if at > start and held + each > size:
                yield self.part(start, at).with_own_names()
                start, held = at, 0
            held += each
        yield self.part(start, len(self)).with_own_names()

    def _sizes(self) -> Any:
        """What each entry takes, but for the name of its group."""
        found = self.table["size"] + ROW_BYTES + self.lengths.itemsize * self.counts
        for at in self.table["note"].nonzero()[0].tolist():
            source = self.source(at)
            found[at] += 9 * len(self.members(at)) + (len(source[0].encode()) + 24 if source else 0)
        return found

    def with_own_names(self) -> Frame:
        """The same without names that nothing in it refers to."""
        import numpy as np

        table = self.table.copy()
        used, table["group"] = np.unique(table["group"], return_inverse=True)
        members: list[tuple[NodeId, ...]] = []
        sources: list[Source] = []
        for at in table["note"].nonzero()[0].tolist():
            if (source := self.source(at)) is None:
                members.append(self.members(at))
            else:
                sources.append(source)
            table["note"][at] = len(members if source is None else sources)
        names = NameTable([self.names.groups[at] for at in used], members, sources)
        return Frame(table, self.lengths, names, self.data, self.begins)

    # --- places ----------------------------------------------------------------------------

    def upto(self, place: Position) -> int:
        """How many of the records come up to a place."""
        at = bisect_right(self.firsts, place) - 1
        if at < 0:
            return 0
        first, count = self.firsts[at], int(self.counts[at])
        if first[:4] == place[:4]:
            count = min(count, place.index - first.index + (first.branch <= place.branch))
        return int(self.counts[:at].sum()) + count

    def place(self, number: int) -> Position:
        """The place of a record, counted from 0."""
        upto = list(accumulate(self.counts.tolist()))
        at = bisect_right(upto, number)
        return self.firsts[at]._replace(
            index=self.firsts[at].index + number - (upto[at - 1] if at else 0)
        )

    def within(self, span: Range) -> Frame:
        """The entries that have records in a range."""
        start = bisect_right(self.firsts, span.after)
        if self.upto(span.after) < self.counts[:start].sum():
            start -= 1  # the range begins in the midst of one
        return self.part(start, max(start, bisect_right(self.firsts, span.upto)))

    @property
    def keys(self) -> Keys:
        """See ``Keys``."""
        return Keys([self.table[name] for name in PLACE], self.table["digest"])

    def views(self) -> list[ViewId]:
        """The configuration of each entry."""
        return [ViewId(*pair) for pair in self.table[["view_seq", "view_rep"]].tolist()]

    def configurations(self) -> list[tuple[ViewId, Position]]:
        """The configurations in their order, each with its last place."""
        found: dict[ViewId, Position] = {}
        for view, first, count in zip(self.views(), self.firsts, self.counts.tolist(), strict=True):
            if first.branch != GAP_BRANCH:  # gaps are of none
                found.pop(view, None)
                found[view] = first._replace(index=first.index + count - 1)
        return list(found.items())

    def cut_at_gaps(self) -> list[tuple[Frame, bool]]:
        """The same in parts, and whether a part begins with a gap, as each gap does."""
        gaps = (self.table["branch"] == GAP_BRANCH).nonzero()[0].tolist()
        edges = sorted({0, *gaps, len(self)})
        return [(self.part(a, b), a in gaps) for a, b in pairwise(edges)]

    def disorder(self, before: Position) -> Position | None:
        """The first place that does not come after the one before it."""
        for first, last in zip(self.firsts, self.last_indexes.tolist(), strict=True):
            if first <= before:
                return first
            before = first._replace(index=last)
        return None

    # --- what is in them -------------------------------------------------------------------

    def members(self, at: int) -> tuple[NodeId, ...]:
        """Of a configuration; of another entry none."""
        row = self.table[at]
        return self.names.members[row["note"] - 1] if row["kind"] and row["note"] else ()

    def source(self, at: int) -> Source | None:
        """The writer of a message, if it was one that publishes each row once."""
        row = self.table[at]
        return self.names.sources[row["note"] - 1] if not row["kind"] and row["note"] else None

    def sources(self) -> list[tuple[str, Source, int]]:
        """The groups and writers of such messages, and how many rows each has."""
        found = ((self.table["kind"] == 0) & (self.table["note"] > 0)).nonzero()[0]
        return [
            (self.names.groups[self.table[at]["group"]], source, int(self.counts[at]))
            for at in found
            if (source := self.source(at))
        ]

    def groups(self) -> list[str]:
        """The group of each entry."""
        return [self.names.groups[at] for at in self.table["group"].tolist()]

    @property
    def whole(self) -> bool:
        """Whether all messages are what they were."""
        pairs = zip(self.begins.tolist(), self.ends.tolist(), strict=True)
        return bool([digest(self.data[a:b]) for a, b in pairs] == self.table["digest"].tolist())

    def values(self) -> list[int]:
        """A number for each entry, out of all in it that is the same at all nodes."""
        return self._values(self.table)

    def contents(self) -> list[int]:
        """The same without the configuration in which a message was delivered: members that part
        deliver the end of their ring each in its own."""
        table = self.table.copy()
        for name in ("view_seq", "view_rep"):
            table[name][table["kind"] == KINDS.index(MESSAGE)] = 0
        return self._values(table)

    def _values(self, table: Any) -> list[int]:
        raw = memoryview(table.tobytes())
        rows = range(OWN.size, len(raw), ROW_BYTES)
        return [
            value(raw[at : at + SHARED.size], self.members(number))
            for number, at in enumerate(rows)
        ]

    @property
    def messages(self) -> memoryview:
        """All of them, of a frame that is not bound to another."""
        return self.data[self.begins[0] : self.ends[-1]]

    def section(self) -> bytes:
        """The frame without its messages, as it is written."""
        return b"".join(
            [self.table.tobytes(), self.lengths.tobytes(), msgspec.msgpack.encode(self.names)]
        )

    def check(self) -> Frame:
        """The frame itself; JournalError or ValueError if it is not one. For what came from
        elsewhere."""
        table, names = self.table, self.names
        notes = [len(names.members) if kind else len(names.sources) for kind in table["kind"]]
        if not (
            len(self) and (self.counts > 0).all() and self.counts.sum() == len(self.lengths)
            and (self.lengths >= 0).all() and (self.lengths <= len(self.data)).all()
            and ((table["kind"] == 0) | (self.counts == 1)).all()
            and ((table["branch"] == GAP_BRANCH) == (table["kind"] == KINDS.index(GAP))).all()
            and all((table[name] >= least).all() for name, least in LEAST.items())
            and all((table[name] <= most).all() for name, most in MOST.items())
            and self.last_indexes.max() <= LAST_INDEX
            and self.disorder(self.first.before) is None
            and (table["kind"] < len(KINDS)).all() and (table["level"] < len(Level)).all()
            and (table["group"] < len(names.groups)).all() and (table["note"] <= notes).all()
            and [group != "" for group in self.groups()] == (table["kind"] == 0).tolist()
            and ((table["sender"] > 0) == (table["kind"] == 0)).all()
            and (table["size"] == room(self.groups(), self.counts, self.lengths)).all()
            and len(self.data) == self.size and self.whole
        ):  # fmt: skip
            raise JournalError("not records of a journal")
        for _, (_, _, row), count in self.sources():
            check_rows(row, count)
        return self


def read_frame(
    section: memoryview, entries: int, rows: int, data: memoryview, start: int = 0
) -> Frame:
    """Out of what a frame holds, its messages from ``start`` on; ValueError if it does not."""
    import numpy as np

    table = np.frombuffer(section, row_type(), entries)
    lengths = np.frombuffer(section, np.int32, rows, entries * ROW_BYTES)
    rest = section[entries * ROW_BYTES + rows * lengths.itemsize :]
    names = msgspec.msgpack.decode(rest, type=NameTable)
    begins = start + np.cumsum(table["size"]) - table["size"]
    return Frame(table, lengths, names, data, begins)


def joined_frames(frames: list[Frame]) -> Frame:
    """Leaves that go on each other, as one."""
    import numpy as np

    if len(frames) == 1:
        return frames[0]
    table, lengths, begins = (
        np.concatenate(parts)
        for parts in zip(*((each.table, each.lengths, each.begins) for each in frames), strict=True)
    )
    return Frame(table, lengths, frames[0].names, frames[0].data, begins)


def value(shared: bytes | memoryview, members: tuple[NodeId, ...]) -> int:
    """A number for an entry: of what all nodes know of it, and of who is in a configuration."""
    return digest(shared, digest(str(members).encode()) if members else 0)
