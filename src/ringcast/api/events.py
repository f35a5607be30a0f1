"""What a group hands to the application."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ringcast.core.effects import Departure
from ringcast.core.ids import Level, NodeId, Position, ViewId


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message, at its place in the order."""

    sender: NodeId
    body: bytes
    position: Position
    level: Level
    writer: str = ""
    """Who published it through the sender: a writer outside the group. Empty: the sender itself."""
    to: tuple[NodeId, ...] = ()
    """The only members that get it; empty: all do."""


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Consecutive messages of one sender; message ``i`` has the index ``position.index + i``.

    Iterating gives the messages one by one.
    """

    sender: NodeId
    bodies: tuple[bytes, ...]
    position: Position
    level: Level
    writer: str = ""
    to: tuple[NodeId, ...] = ()

    def __iter__(self) -> Iterator[Message]:
        timestamp, ring_seq, ring_rep, seq, index, branch = self.position
        for at, body in enumerate(self.bodies, index):
            place = Position(timestamp, ring_seq, ring_rep, seq, at, branch)
            yield Message(self.sender, body, place, self.level, self.writer, self.to)


class View(msgspec.Struct, frozen=True, gc=False):
    """The members of the group from here on, ascending.

    A transitional view comes before a regular one when the ring changes: it names the members
    that go on together from the old ring, and safe messages delivered in it are known to be
    received by these only.
    """

    members: tuple[NodeId, ...]
    transitional: bool
    ring: ViewId
    """The configuration of the ring the view belongs to."""
    position: Position
    """The view's own place in the order: a fencing token for what is derived from a view."""
    departures: tuple[Departure, ...] = ()
    """Every member of the group's view before that is not in this one: ``reason`` and what it was
    ``judged_by``, as this member knows it. Others may know another reason."""
    sets: tuple[tuple[str, tuple[NodeId, ...]], ...] = ()
    """Further sets of members by name, of protocols that have some, such as rings."""
    added: tuple[str, ...] = ()
    """Names of the sets that appeared since the group's previous view; all, in a first view."""
    deleted: tuple[str, ...] = ()
    """Names of the sets that disappeared since then."""


class EventsLost(msgspec.Struct, frozen=True, gc=False):
    """The reader fell so far behind that ``count`` events were dropped here.

    The group's state can no longer be built from its messages alone: take a fresh copy from
    another member, as after joining. If views are among them, the newest one is given again
    right after this event. Nothing is ever dropped without this event.
    """

    count: int


Event = Message | View | EventsLost
