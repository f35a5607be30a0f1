"""Who is in which group: a function of the total order, so the same at every member.

On a new ring every node first says which groups it is in. When all have spoken, at one and the
same place in the order, each group's view is known and given out; what was delivered until then
waits. If the ring breaks before that, the view is made of those who spoke.
"""

from __future__ import annotations

from typing import Protocol

from ringcast.api.envelope import Data, Enter, Envelope, Exit, Groups
from ringcast.api.events import Batch, Position, View
from ringcast.core.ids import Level, NodeId, ViewId


class Sink(Protocol):
    """Where a group's events go, at this node."""

    def push(self, event: Batch | View) -> None:
        """Take one event."""


class Directory:
    """The groups of all members of the ring, and the local groups' events."""

    def __init__(self, me: NodeId) -> None:
        self._me = me
        self.sinks: dict[str, Sink] = {}
        """Groups this node has asked to join."""
        self._spoken: dict[NodeId, set[str]] = {}
        self._ring = ViewId(0, me)
        self._members: tuple[NodeId, ...] = ()
        self._open = False
        self._waiting: list[tuple[NodeId, Level, Position, Envelope]] = []

    def members(self, group: str) -> tuple[NodeId, ...]:
        """The group's members as of the last event given out."""
        return tuple(sorted(q for q, groups in self._spoken.items() if group in groups))

    def on_view(self, view: ViewId, members: tuple[NodeId, ...], transitional: bool) -> None:
        """The ring changes."""
        if transitional:
            self._give_out()
            self._spoken = {q: g for q, g in self._spoken.items() if q in members}
            self._tell(view, transitional=True)
        else:
            self._ring, self._members = view, members
            self._spoken = {}
            self._open = False

    def on_envelope(
        self, sender: NodeId, level: Level, position: Position, envelope: Envelope
    ) -> None:
        """A message of the ring, at its place in the order."""
        if type(envelope) is Groups:
            self._spoken[sender] = set(envelope.names)
            if len(self._spoken) == len(self._members):
                self._give_out()
        elif self._open:
            self._act(sender, level, position, envelope)
        else:
            self._waiting.append((sender, level, position, envelope))

    def _give_out(self) -> None:
        """Everybody has spoken, or nobody else will: the views, then what waited for them."""
        if self._open:
            return
        self._open = True
        self._tell(self._ring, transitional=False)
        waiting, self._waiting = self._waiting, []
        for item in waiting:
            self._act(*item)

    def _tell(self, view: ViewId, transitional: bool) -> None:
        for group in sorted(self._spoken.get(self._me, ())):
            self._push(group, View(self.members(group), transitional, view))

    def _act(self, sender: NodeId, level: Level, position: Position, envelope: Envelope) -> None:
        match envelope:
            case Data(group, bodies):
                if group in self._spoken.get(self._me, ()):
                    self._push(group, Batch(sender, bodies, position, level))
            case Enter(group):
                groups = self._spoken.setdefault(sender, set())
                if group not in groups:  # else the sender's Groups said so already
                    groups.add(group)
                    self._tell_one(group)
            case Exit(group):
                groups = self._spoken.get(sender, set())
                if group in groups:
                    groups.discard(group)
                    self._tell_one(group)

    def _tell_one(self, group: str) -> None:
        if group in self._spoken.get(self._me, ()):
            self._push(group, View(self.members(group), False, self._ring))

    def _push(self, group: str, event: Batch | View) -> None:
        sink = self.sinks.get(group)
        if sink is not None:
            sink.push(event)
