"""The views and messages of groups as they are given out, in the order, to the readers here."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from ringcast.api.events import Batch, View
from ringcast.core.effects import Departure, InstallView, Reason
from ringcast.core.ids import Level, NodeId, Position, ViewId
from ringcast.wire.envelope import MOST_GROUPS, Data, Enter, Envelope, Exit


class Sink(Protocol):
    """Where a group's events go, at this node."""

    def push(self, event: Batch | View) -> None:
        """Take one event."""

    def lost(self, count: int) -> None:
        """Messages of the group went by that cannot be given to this member."""


class GroupViews:
    """Who is in which group of the ring, as of the last event given out."""

    def __init__(self, me: NodeId) -> None:
        self._me = me
        self.sinks: dict[str, Sink] = {}
        """Groups this node is in, as of the last message of its own."""
        self.entering: dict[str, deque[Sink]] = {}
        """Who waits for the node's own Enter to come back, oldest first."""
        self.ring = ViewId(0, me)
        self.told: dict[str, tuple[NodeId, ...]] = {}
        """The members of the last view given out, of each group this node is in."""
        self._spoken: dict[NodeId, set[str]] = {}
        self._present: tuple[NodeId, ...] = ()
        """Those that are left of the ring: after a transitional view, those that go on together."""
        self._gone: dict[str, dict[NodeId, Departure]] = {}
        """Who went since the last view of a group, as the protocol says, until the next one."""
        self._sets: tuple[tuple[str, tuple[NodeId, ...]], ...] = ()
        self._named: dict[str, list[str]] = {}
        """The names of the sets in the last view given out, of each group this node is in."""

    def members(self, group: str) -> tuple[NodeId, ...]:
        """Those who said that they are in a group."""
        return tuple(sorted(q for q, groups in self._spoken.items() if group in groups))

    def turn(self, change: InstallView, words: Mapping[NodeId, tuple[str, ...]]) -> None:
        """Another view of the ring; on a new one its members have said this."""
        for group, told in self.told.items():
            gone = self._gone.setdefault(group, {})
            for each in change.departures:
                if each.member in told:
                    gone.setdefault(each.member, each)
        self._sets, self._present = change.sets, change.members
        if change.transitional:
            self._spoken = {q: g for q, g in self._spoken.items() if q in change.members}
        else:
            self.ring = change.view
            self._spoken = {q: set(names) for q, names in words.items()}
        self._tell_all(change.position, change.transitional, change.view)

    def act(
        self,
        sender: NodeId,
        level: Level,
        position: Position,
        envelope: Envelope,
        writer: str,
        to: tuple[NodeId, ...],
    ) -> None:
        """A message, at its place."""
        if type(envelope) is Data:
            sink = self.sinks.get(envelope.group)
            if sink is None:
                return
            if envelope.group in self._spoken.get(self._me, ()):
                sink.push(Batch(sender, envelope.bodies, position, level, writer, to))
            else:
                sink.lost(len(envelope.bodies))
            return
        if sender not in self._present:
            return  # it parted before the place of its word, which is for those it went on with
        match envelope:
            case Enter(group):
                if sender == self._me:
                    if not self.entering.get(group):
                        return  # in our name, and not ours
                    self.sinks[group] = self.entering[group].popleft()
                    self._forget(group)
                groups = self._spoken.setdefault(sender, set())
                if len(groups) >= MOST_GROUPS:
                    return  # a node of ours asks for no more (Node.enter)
                groups.add(group)
                self._tell(group, position, False, self.ring)
            case Exit(group):
                if sender == self._me:
                    self.sinks.pop(group, None)
                    self._forget(group)
                self._spoken.get(sender, set()).discard(group)
                self._tell(group, position, False, self.ring)

    def _forget(self, group: str) -> None:
        """The next view of the group, if there is one, is a first one."""
        self.told.pop(group, None)
        self._gone.pop(group, None)
        self._named.pop(group, None)

    def _tell_all(self, position: Position, transitional: bool, ring: ViewId) -> None:
        for group in sorted(self.sinks):
            self._tell(group, position, transitional, ring)

    def _tell(self, group: str, position: Position, transitional: bool, ring: ViewId) -> None:
        sink = self.sinks.get(group)
        if sink is not None and group in self._spoken.get(self._me, ()):
            members = self.members(group)
            gone = self._departures(group, members, ring)
            sets = tuple(
                (name, tuple(q for q in some if q in members)) for name, some in self._sets
            )
            before, names = self._named.get(group, []), [name for name, _ in sets]
            added = tuple(name for name in names if name not in before)
            deleted = tuple(name for name in before if name not in names)
            self.told[group], self._named[group] = members, names
            sink.push(View(members, transitional, ring, position, gone, sets, added, deleted))

    def _departures(
        self, group: str, members: tuple[NodeId, ...], ring: ViewId
    ) -> tuple[Departure, ...]:
        """Why each member of the last view of the group went. Of one that is still on the ring the
        protocol has nothing to say: it left the group, or has not said that it is in it."""
        gone = self._gone.pop(group, {})
        for q in self.told.get(group, ()):
            if q in members or q in gone:
                continue
            if q in self._spoken:
                gone[q] = Departure(q, Reason.LEFT, "it says that it is not in the group")
            else:
                what = f"it has not said on ring {ring} which groups it is in"
                gone[q] = Departure(q, Reason.SILENT, what)
        return tuple(gone[q] for q in sorted(gone))
