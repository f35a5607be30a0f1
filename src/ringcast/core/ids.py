"""Small ordered value types that name things: processors, configurations, places in the order."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Annotated, NamedTuple

import msgspec

LIMIT = 2**63 - 1
"""Largest number a sequence may reach on the wire: no wrap logic anywhere."""

NodeId = Annotated[int, msgspec.Meta(ge=1, le=2**32 - 1)]
"""A processor's permanent identifier. 0 is never legal, so it can mean *nobody* on the wire."""

Seq = Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]
"""A sequence number: 64 bits on the wire, non-negative."""


LAST_INDEX = 2**31 - 1
"""The index of a transitional configuration: behind all messages of the number it follows."""

MESSAGE_TYPE = 1
"""The type of a message in an order by timestamps: just behind 0, which is above all else that
has its timestamp and ring, and before every change of them."""

GAP_BRANCH = -1
"""The branch of a gap in a journal: just before the first record behind the gap."""

LEAST_BRANCH = GAP_BRANCH - 1
"""Before a gap (``Position.before``); nothing is before that."""


class ViewId(
    msgspec.Struct, frozen=True, array_like=True, order=True, forbid_unknown_fields=True, gc=False
):
    """Names a configuration: a sequence number and the representative that chose it.

    Compared by ``seq`` first, which makes the identifiers of configurations, and
    the positions built on them, one total order over the whole life of a group.
    """

    seq: Seq
    rep: NodeId

    def __str__(self) -> str:
        return f"({self.seq},{self.rep})"


class Position(NamedTuple):
    """A place in the total order: larger is later, and all members give a record the same one.

    The fields are the order, most significant first. With ``timestamp`` 0 it is the message
    identifier of one ring; rings that gateways join order by (timestamp, ring, type, conf_id), the
    type being ``seq`` then. A position is also a fencing token: of two holders of a
    lock, the later one has the larger.
    """

    timestamp: Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]
    """0 where one ring makes the order by itself."""
    ring_seq: Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]
    ring_rep: Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]
    seq: Annotated[int, msgspec.Meta(ge=-1, le=LIMIT)]
    """The number on the ring; -1 is before the ring itself."""
    index: Annotated[int, msgspec.Meta(ge=0, le=LAST_INDEX)]  # type: ignore[assignment]
    """Of a message among those that share the number; LAST_INDEX is behind all of them."""
    branch: Annotated[int, msgspec.Meta(ge=LEAST_BRANCH, le=LIMIT)] = 0
    """Tells transitional configurations apart that stand at one number, for members that part have
    one each there: the representative, who is in no other of that ring. Of a message 0."""

    @classmethod
    def at(cls, ring: ViewId, seq: int, index: int = 0, branch: int = 0) -> Position:
        """A place on a ring."""
        return cls(0, ring.seq, ring.rep, seq, index, branch)

    @classmethod
    def stamped(cls, timestamp: int, ring: ViewId, index: int = 0) -> Position:
        """The place of a message in the order of rings that gateways join."""
        return cls(timestamp, ring.seq, ring.rep, MESSAGE_TYPE, index)

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position that ``str`` spells so, or without brackets or index; else ValueError."""
        found = SPELLED.fullmatch(text.strip())
        if not found:
            raise ValueError(f"{text!r} is no position: write one such as {EXAMPLE}")
        *numbers, last, side = found.groups(default="0")
        index = LAST_INDEX if last == "end" else int(last)
        branch = GAP_BRANCH if side == "gap" else int(side)
        timestamp, ring_seq, ring_rep, seq = map(int, numbers)
        position = cls(timestamp, ring_seq, ring_rep, seq, index, branch)
        if max(position) > LIMIT or index > LAST_INDEX or branch < LEAST_BRANCH:
            raise ValueError(f"{text!r} is no position: its numbers are out of range")
        return position

    @property
    def ring(self) -> ViewId:
        """The configuration whose numbers these are."""
        return ViewId(self.ring_seq, self.ring_rep)

    def end(self, branch: NodeId) -> Position:
        """Where a transitional configuration stands that follows the messages of this number."""
        return self._replace(index=LAST_INDEX, branch=branch)

    @property
    def before(self) -> Position:
        """The end of everything before this place."""
        return self._replace(branch=self.branch - 1)

    def __str__(self) -> str:
        stamp = f"{self.timestamp}@" if self.timestamp else ""
        last = "end" if self.index == LAST_INDEX else self.index
        side = ".gap" if self.branch == GAP_BRANCH else f".{self.branch}" if self.branch else ""
        return f"{stamp}({self.ring_seq},{self.ring_rep}):{self.seq}.{last}{side}"


SPELLED = re.compile(
    r"(?:(\d{1,19})@)?\(?(\d{1,19}),(\d{1,19})\)?:(-1|\d{1,19})"
    r"(?:\.(\d{1,10}|end)(?:\.(-?\d{1,19}|gap))?)?"
)
EXAMPLE = "(8,1):23.0"

START = Position(0, 0, 0, 0, 0)
"""Before every record."""


class Level(IntEnum):
    """How much must be known before a message is delivered.

    ``AGREED``: everything before it in the order has been delivered here.
    ``SAFE``: besides, every member of the configuration is known to hold it.
    """

    AGREED = 0
    SAFE = 1


LEVELS = {
    "reliable": Level.AGREED,
    "fifo": Level.AGREED,
    "causal": Level.AGREED,
    "agreed": Level.AGREED,
    "safe": Level.SAFE,
}
"""Every service that may be asked for, and the level that serves it."""


def level(name: Level | str) -> Level:
    """The level of a service by its name; one total order contains all the weaker orders.

    So reliable, fifo and causal are served, and reported, as agreed.
    """
    if isinstance(name, Level):
        return name
    found = LEVELS.get(name)
    if found is None:
        raise ValueError(
            f"{name!r} is no level: say agreed or safe (reliable, fifo and causal are agreed)"
        )
    return found
