"""What a record is, and its columns.

A journal keeps entries, which are messages of the ring as they came, each with one or many
records. The columns of records are those that Spark sees (``records``).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from ringcast.core.errors import RingcastError
from ringcast.core.ids import GAP_BRANCH, Level, NodeId, Position, ViewId
from ringcast.journal.format.message import digest, message
from ringcast.wire.envelope import Name, RowNumber

MESSAGE, VIEW, TRANSITIONAL = "message", "view", "transitional"
"""The kinds of a record: a message of a group, a regular and a transitional configuration."""

GAP = "gap"
"""And one that says: what came before is missing here, and nobody could tell it any more."""

LEVELS = {level: level.name.lower() for level in Level}

NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Readers and writers, whose names become those of files."""


class JournalError(RingcastError):
    """A journal that cannot be read or written; the text says which file, and what to do."""


NO_CHAIN = bytes(16)
"""The chain before the first record."""


Source = tuple[Name, RowNumber, RowNumber]
"""A writer that publishes each row once: its name, the number of its batch, and of the row."""


class Entry(NamedTuple):
    """Records that have all but their bodies in common: one message of the ring, or a view."""

    first: Position
    view: ViewId
    kind: str
    sender: NodeId
    level: Level
    group: str
    members: tuple[NodeId, ...]
    lengths: array[int]
    """Of the bodies."""
    data: bytes
    """The message, see ``message``."""
    digest: int
    """Of the message, made when it is at hand: later the processor has to fetch it again."""
    time_us: int
    source: Source | None = None
    """Of the first record; the rows of the others follow."""

    @property
    def last(self) -> Position:
        """The place of the last record."""
        return self.first._replace(index=self.first.index + len(self.lengths) - 1)


def entry(
    first: Position,
    view: ViewId,
    kind: str,
    sender: NodeId,
    level: Level,
    group: str,
    members: tuple[NodeId, ...],
    bodies: Sequence[bytes],
    time_us: int,
    source: Source | None = None,
) -> Entry:
    """Records with these bodies."""
    lengths, data = array("i", map(len, bodies)), message(group, bodies)
    content = (lengths, data, digest(data))
    return Entry(first, view, kind, sender, level, group, members, *content, time_us, source)


def view_entry(
    first: Position, view: ViewId, members: tuple[NodeId, ...], transitional: bool, time_us: int
) -> Entry:
    """A configuration as a record, at ``first``."""
    kind = TRANSITIONAL if transitional else VIEW
    return entry(first, view, kind, 0, Level.AGREED, "", members, (b"",), time_us)


def gap_entry(following: Position, why: str, time_us: int) -> Entry:
    """A gap before the record at ``following``."""
    first = following._replace(branch=GAP_BRANCH)
    return entry(first, following.ring, GAP, 0, Level.AGREED, "", (), (why.encode(),), time_us)


@cache
def schema() -> Any:
    """The columns of records, as Arrow and Spark know them."""
    import pyarrow as pa

    def fixed(name: str, kind: Any) -> Any:
        return pa.field(name, kind, nullable=False)

    long, whole = pa.int64(), pa.int32()
    view = pa.struct([fixed("seq", long), fixed("rep", long)])
    place = [fixed(name, whole if name == "index" else long) for name in Position._fields]
    source = [pa.field("stream", pa.string()), pa.field("batch", long), pa.field("row", long)]
    return pa.schema(
        [
            fixed("position", pa.struct(place)),
            fixed("view", view),
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
