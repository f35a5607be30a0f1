"""What a group hands to the application."""

from __future__ import annotations

import msgspec

from ringcast.core.ids import Level, NodeId, ViewId


class Position(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """A place in the total order. Larger is later, over all configurations of a group.

    A position is also a fencing token: of two holders of a lock, the later one has the larger.
    """

    ring: ViewId
    seq: int
    index: int = 0

    def __str__(self) -> str:
        return f"{self.ring}:{self.seq}.{self.index}"


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message, at its place in the order."""

    sender: NodeId
    body: bytes
    position: Position
    level: Level


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Consecutive messages of one sender; message ``i`` has the index ``position.index + i``."""

    sender: NodeId
    bodies: tuple[bytes, ...]
    position: Position
    level: Level


class View(msgspec.Struct, frozen=True, gc=False):
    """The members of the group from here on.

    A transitional view comes before a regular one when the ring changes: it names the members
    that go on together from the old ring, and safe messages delivered in it are known to be
    received by these only.
    """

    members: tuple[NodeId, ...]
    transitional: bool
    ring: ViewId


class EventsLost(msgspec.Struct, frozen=True, gc=False):
    """The reader fell so far behind that ``count`` events were dropped here.

    The group's state can no longer be built from its messages alone: take a fresh copy from
    another member, as after joining. Nothing is ever dropped without this event.
    """

    count: int


Event = Message | View | EventsLost
