"""The envelope: what travels in the ring's messages, and where its bytes lie.

A message of the ring is one of these, in MessagePack: bodies for a group, or a word about who is in
which group. A journal keeps ``Data`` as it came and finds the bodies by their lengths alone, so
what MessagePack puts in front of them is said here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec.structs import replace

from ringcast.core.ids import ViewId

MOST_ROWS = 2**62
RowNumber = Annotated[int, msgspec.Meta(ge=0, le=MOST_ROWS)]
"""Of batches and rows: what a column can hold, with rows to follow."""


def check_rows(first: int, count: int) -> None:
    """ValueError if rows ``first`` .. have numbers that cannot be written and read back."""
    if first + count > MOST_ROWS:
        raise ValueError(f"rows {first} to {first + count}: rows are numbered from 0 to 2^62")


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
"""A group's name."""

MOST_BODIES = 2**14
"""In one message of the ring: each is an object at every member, and all are made at once."""

Bodies = Annotated[tuple[bytes, ...], msgspec.Meta(max_length=MOST_BODIES)]

MOST_GROUPS = 2**14
"""That one member is in. Each name is an object at every member, and all are made at once."""

NAME_HEAD = 5
"""At most so many bytes stand in front of a name."""

MOST_EARLIER = 64
"""Rings on which a member was not heard, and says later which groups it was in."""

MOST_WRITERS, MOST_WRITTEN = 256, 64
"""Writers that are remembered, and groups of each. Whichever was silent longest is forgotten
first, and a writer to many groups makes nobody forget another writer."""


class ExactPart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A part of an envelope. Nothing may stand behind its fields.

    Whether a decoder can pass over what is nested deeply there depends on how much of the stack
    its process has in use: some members would take the message, and others would not.
    """


class Data(ExactPart, frozen=True, tag=1):
    """Messages for the members of one group."""

    group: Name
    bodies: Bodies


class NumberedRows(ExactPart, frozen=True, tag=5):
    """Rows ``first`` .. of a writer's batch for a group; what came before is dropped.

    They count only on ``ring``, the one they were sent on (``writer_dedup``).
    """

    ring: ViewId
    group: Name
    stream: Name
    batch: RowNumber
    first: RowNumber
    bodies: Bodies

    def __post_init__(self) -> None:
        """A member's message is no better than a guest's."""
        check_rows(self.first, len(self.bodies))


class Known(ExactPart, frozen=True):
    """How far the writer ``stream`` has come in a group: so many rows of this batch."""

    group: Name
    stream: Name
    batch: RowNumber
    rows: RowNumber


Names = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_GROUPS)]
"""Of the groups that a member is in."""


class Earlier(ExactPart, frozen=True):
    """Rings on which a member would have said the same: so many of ``Groups.earlier_names``,
    behind those of the entry before."""

    rings: Annotated[tuple[ViewId, ...], msgspec.Meta(max_length=MOST_EARLIER)]
    count: Annotated[int, msgspec.Meta(ge=0, le=MOST_GROUPS)]


class Groups(ExactPart, frozen=True, tag=2):
    """All groups the sender is in when ``ring`` begins: its word on a new ring."""

    ring: ViewId
    names: Names
    known: Annotated[tuple[Known, ...], msgspec.Meta(max_length=MOST_WRITERS * MOST_WRITTEN)] = ()
    """And what it remembers of writers."""
    earlier: Annotated[tuple[Earlier, ...], msgspec.Meta(max_length=MOST_EARLIER)] = ()
    """And what it would have said on rings that broke before it was heard there."""
    earlier_names: Names = ()
    """The groups of all of them, in one row, so that reading bounds how many there are."""

    def __post_init__(self) -> None:
        """All names are somebody's."""
        if sum(each.count for each in self.earlier) != len(self.earlier_names):
            raise ValueError("earlier groups and their names do not fit")

    def said_earlier(self) -> Iterator[tuple[ViewId, tuple[str, ...]]]:
        """Rings on which the sender was not heard, and the groups it was in."""
        end = 0
        for each in self.earlier:
            begin, end = end, end + each.count
            for ring in each.rings:
                yield ring, self.earlier_names[begin:end]

    def without_oldest(self) -> Groups:
        """As much as that, but for the first entry of ``earlier``."""
        first, *others = self.earlier
        names = self.earlier_names[first.count :]
        return replace(self, earlier=tuple(others), earlier_names=names)


class Enter(ExactPart, frozen=True, tag=3):
    """The sender joins a group."""

    group: Name


class Exit(ExactPart, frozen=True, tag=4):
    """The sender leaves a group."""

    group: Name


class Aside(ExactPart, frozen=True, tag=6):
    """On ``ring`` nobody waits any longer for members that have not said which groups they are in:
    with the sender too much waits for them that others do not see."""

    ring: ViewId


Envelope: TypeAlias = Data | Groups | Enter | Exit | NumberedRows | Aside

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Envelope).decode

EVERYTHING = 0
"""The interest of a node that wants the messages of all groups."""


@lru_cache(1024)
def interest(group: str) -> int:
    """32 bits by which those who carry messages tell groups apart, never 0. If two groups have the
    same, their messages go where either has members, and no further."""
    return int.from_bytes(blake2b(group.encode(), digest_size=4).digest()) or 1


# --- the bytes of Data: [1, group, [body, …]] --------------------------------------------------

BODY_HEAD, COUNT_HEAD = 5, 5
"""Bytes in front of a body, and of all bodies together, at most."""

OVERHEAD = 5 + COUNT_HEAD
"""Bytes besides the group's name and the bodies with their heads, at most."""

ROOM = 2**16
"""What a message of the ring has for an envelope beside the largest body; small bodies share it."""


@lru_cache(256)
def opening(group: str) -> int:
    """Bytes before the number of bodies."""
    return len(encode(Data(group, ()))) - 1


def count_heads(counts: Any) -> Any:
    """How long the numbers of bodies are, given as an array."""
    return 1 + 2 * (counts > 0xF) + 2 * (counts > 0xFFFF)


def body_heads(lengths: Any) -> Any:
    """How long the heads of bodies of these lengths are, given as an array."""
    return 2 + (lengths > 0xFF).astype("int32") + 2 * (lengths > 0xFFFF).astype("int32")
