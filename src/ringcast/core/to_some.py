"""Messages to some members only, in a trace: notes of their submission and delivery.

They are to members that they name, or to a group. The notes of the latter name nobody, and have the
group in front of everything else.

They are no events of their own. Everything that a trace tells of messages, and every property of
them, is about what all members of a configuration deliver; of a message to some, one property says
all (``checks.multicast``). So a trace without such messages is as it always was, and all that reads
traces gets these with the notes.
"""

from __future__ import annotations

from typing import ClassVar, Self

import msgspec

from ringcast.core.effects import PackedMessages
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.trace import Noted, digests

RULE = "multicast"
"""What the notes are under; no protocol's rule."""

LEVELS = frozenset(Level)


class SubmittedTo(msgspec.Struct, frozen=True):
    """The application asked for messages ``first ..`` of an incarnation to be sent to some."""

    to: tuple[NodeId, ...]
    incarnation: int
    first: int
    level: Level
    digests: tuple[int, ...]
    group: int = 0

    what: ClassVar[str] = "submit to"

    def noted(self, node: NodeId, n: int, t_us: int) -> Noted:
        """The event of the trace."""
        data = (self.incarnation, self.first, self.level, *self.digests)
        data = (self.group, *data) if self.group else data
        return Noted(node, n, t_us, RULE, self.what, members=self.to, data=data)

    @classmethod
    def read(cls, event: Noted) -> Self | None:
        """What a note tells; None if it makes no sense."""
        group, data = group_of(event)
        if event.what != cls.what or len(data) < 4 or data[2] not in LEVELS:
            return None
        return cls(event.members, data[0], data[1], Level(data[2]), data[3:], group)


class DeliveredTo(msgspec.Struct, frozen=True):
    """A processor, in configuration ``view``, handed messages to some to its application."""

    to: tuple[NodeId, ...]
    view: ViewId
    ring: ViewId
    seq: int
    sender: NodeId
    first: int
    level: Level
    digests: tuple[int, ...]
    group: int = 0

    what: ClassVar[str] = "deliver to"

    @classmethod
    def of(cls, view: ViewId, batch: PackedMessages) -> Self:
        """What was delivered."""
        ring, told = batch.ring, digests(batch.bodies)
        sent = (batch.sender, batch.first, batch.level, told, batch.group)
        return cls(batch.to, view, ring, batch.seq, *sent)

    def noted(self, node: NodeId, n: int, t_us: int) -> Noted:
        """The event of the trace."""
        place = (self.ring.seq, self.ring.rep, self.seq)
        data = (*place, self.sender, self.first, self.level, *self.digests)
        data = (self.group, *data) if self.group else data
        return Noted(node, n, t_us, RULE, self.what, "", self.view, self.to, data)

    @classmethod
    def read(cls, event: Noted) -> Self | None:
        """What a note tells; None if it makes no sense."""
        view = event.view
        group, data = group_of(event)
        if event.what != cls.what or len(data) < 7 or view is None:
            return None
        if data[5] not in LEVELS:
            return None
        ring = ViewId(data[0], data[1])
        seq, sender, first, level = data[2:6]
        return cls(event.members, view, ring, seq, sender, first, Level(level), data[6:], group)

    @property
    def name(self) -> str:
        """The message id, as everywhere."""
        return f"{self.ring}:{self.seq}.0"


def group_of(event: Noted) -> tuple[int, tuple[int, ...]]:
    """The group that a note is about, if it names no members, and the other numbers; no numbers if
    there is neither."""
    data = tuple(event.data or ())
    if event.members:
        return 0, data
    return (data[0], data[1:]) if data and data[0] > 0 else (0, ())
