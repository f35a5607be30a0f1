"""Who is in which group: a function of the total order, so the same at every member.

On a new ring every node first says which groups it is in. When all have spoken, at one and the
same place in the order, each group's view is known and given out; what was delivered until then
waits. If the ring breaks before that, or too much waits (a function of the order, too), the view is
made of those who spoke. A node that had not is in no group of that ring, and its groups are told
what they missed.

Joining and leaving a group are messages themselves, so they have their place in the order too.

Where the members are fixed there is one ring, some of its members may never have run, and nobody
is in a group when it begins: so nobody is waited for. What nodes remember of writers then counts
from the place of their words on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from ringcast.api.events import Batch, View
from ringcast.api.writer_dedup import WriterDedup
from ringcast.core.effects import Departure, InstallView, Reason
from ringcast.core.ids import Level, NodeId, Position, ViewId
from ringcast.wire.envelope import MOST_GROUPS, Data, Enter, Envelope, Exit, Groups, Known

MOST_WAITING = 64 * 2**20
"""Bytes that wait for members that have not said which groups they are in."""

CROWDED = MOST_WAITING // 4
"""From here on the ring is slowed down."""

ITEM_BYTES = 256
"""What a message takes besides its bodies, about; the same number at all members."""


class Sink(Protocol):
    """Where a group's events go, at this node."""

    def push(self, event: Batch | View) -> None:
        """Take one event."""

    def lost(self, count: int) -> None:
        """Messages of the group went by that cannot be given to this member."""


class Directory:
    """The groups of all members of the ring, and the local groups' events."""

    def __init__(self, me: NodeId, opened: Callable[[], None], fixed: bool = False) -> None:
        self._me = me
        self._opened = opened
        self._fixed = fixed
        self._memory: tuple[Known, ...] = ()
        self._sinks: dict[str, Sink] = {}
        """Groups this node is in, as of the last message of its own."""
        self._entering: dict[str, deque[Sink]] = {}
        """Who waits for the node's own Enter to come back, oldest first."""
        self._spoken: dict[NodeId, set[str]] = {}
        self._told: dict[str, tuple[NodeId, ...]] = {}
        """The members of the last view given out, of each group this node is in."""
        self._gone: dict[str, dict[NodeId, Departure]] = {}
        """Who of them went since, as the protocol says, until the next view says so."""
        self._sets: tuple[tuple[str, tuple[NodeId, ...]], ...] = ()
        self._ring = ViewId(0, me)
        self._begins = Position.at(self._ring, 0)
        self._members: tuple[NodeId, ...] = ()
        self._present: tuple[NodeId, ...] = ()
        """Those that are left of them: after a transitional view, those that go on together."""
        self._open = False
        self.complete = fixed
        """Whether the views of the last ring that was opened count all of its members: it did not
        break before they had spoken."""
        self._known: dict[NodeId, tuple[Known, ...]] = {}
        self.streams = WriterDedup()
        self._waiting: list[tuple[NodeId, Level, Position, Envelope, str, tuple[NodeId, ...]]] = []
        self._waiting_bytes = 0
        self._some_bytes = 0
        """Of messages to some, which not all members see, and which therefore decide nothing."""
        self.left_aside = 0
        """Members that were not waited for any longer, since the start."""

    def members(self, group: str) -> tuple[NodeId, ...]:
        """The group's members as of the last event given out: while the members of a new ring say
        which groups they are in, those of the group's last view."""
        told = () if self._open else self._told.get(group, ())
        return told or self._who_spoke_of(group)

    def _who_spoke_of(self, group: str) -> tuple[NodeId, ...]:
        return tuple(sorted(q for q, groups in self._spoken.items() if group in groups))

    def enter(self, group: str, sink: Sink) -> None:
        """An Enter is on its way; from its place in the order on, events go to ``sink``."""
        self._entering.setdefault(group, deque()).append(sink)

    def remember(self, known: Iterable[Known]) -> None:
        """What this node knows of writers from earlier days, before the first ring."""
        self._memory = tuple(known)
        if not self._fixed:
            self.streams.learn(self._memory)

    def word(self) -> Groups:
        """What this node has to say on the present ring."""
        known = self._memory if self._fixed else self.streams.known()
        return Groups(self._ring, tuple(sorted(self._sinks)), known)

    @property
    def open(self) -> bool:
        """Whether all members of the ring have spoken, or nobody else will."""
        return self._open

    @property
    def crowded(self) -> bool:
        """Whether much waits for members that have not spoken."""
        return self._waiting_bytes > CROWDED

    def waits_for(self) -> tuple[NodeId, ...]:
        """The members that have not said which groups they are in."""
        return () if self._open else tuple(q for q in self._members if q not in self._spoken)

    def on_view(self, change: InstallView) -> None:
        """The ring changes. With the first word of that, be it a transitional view or, of a
        protocol that has none, the next regular one, nobody else will speak on the old ring."""
        self.complete = self._open or self._fixed
        self._give_out()
        for group, told in self._told.items():
            gone = self._gone.setdefault(group, {})
            for each in change.departures:
                if each.member in told:
                    gone.setdefault(each.member, each)
        self._sets, self._present = change.sets, change.members
        if change.transitional:
            self._spoken = {q: g for q, g in self._spoken.items() if q in change.members}
            self._tell_all(change.position, True, change.view)
        else:
            self._ring, self._members = change.view, change.members
            self._begins = change.position
            self._spoken, self._known = {}, {}
            self._open = self._fixed

    def on_envelope(
        self,
        sender: NodeId,
        level: Level,
        position: Position,
        envelope: Envelope,
        writer: str = "",
        to: tuple[NodeId, ...] = (),
        filtered: bool = False,
    ) -> None:
        """A message of the ring, at its place in the order; who published it, if not the sender;
        whom it is for, if not for all; whether it went only where its group has members."""
        if type(envelope) is Groups and self._fixed:
            self.streams.learn(envelope.known)
        elif type(envelope) is Groups:
            # A word that was meant for an earlier ring, or comes after this one broke, is late.
            fits = envelope.ring == self._ring and sender in self._members
            if fits and not self._open:
                self._spoken[sender] = set(envelope.names)
                self._known[sender] = envelope.known
                if len(self._spoken) == len(self._members):
                    self._learn_and_give_out()
        elif self._open:
            self._act(sender, level, position, envelope, writer, to)
        else:
            bodies = envelope.bodies if type(envelope) is Data else ()
            size = ITEM_BYTES + sum(map(len, bodies)) + 64 * len(bodies)
            if to or filtered:
                self._some_bytes += size
                if self._some_bytes > MOST_WAITING:
                    for sink in self._sinks.values():
                        sink.lost(len(bodies))
                    return
            else:
                self._waiting_bytes += size
            self._waiting.append((sender, level, position, envelope, writer, to))
            if self._waiting_bytes > MOST_WAITING:
                self.left_aside += len(self.waits_for())
                self._learn_and_give_out()

    def _learn_and_give_out(self) -> None:
        self.complete = True
        for q in sorted(self._known):
            self.streams.learn(self._known[q])
        self._give_out()

    def _give_out(self) -> None:
        """Everybody has spoken, or nobody else will: the views, then what waited for them."""
        if self._open:
            return
        self._open = True
        self._opened()
        self._tell_all(self._begins, False, self._ring)
        waiting, self._waiting = self._waiting, []
        self._waiting_bytes = self._some_bytes = 0
        for item in waiting:
            self._act(*item)

    def _act(
        self,
        sender: NodeId,
        level: Level,
        position: Position,
        envelope: Envelope,
        writer: str,
        to: tuple[NodeId, ...],
    ) -> None:
        if type(envelope) in (Enter, Exit) and sender not in self._present:
            return  # it parted before the place of its word, which is for those it went on with
        match envelope:
            case Data(group, bodies):
                sink = self._sinks.get(group)
                if sink is None:
                    return
                if group in self._spoken.get(self._me, ()):
                    sink.push(Batch(sender, bodies, position, level, writer, to))
                else:
                    sink.lost(len(bodies))
            case Enter(group):
                if sender == self._me:
                    if not self._entering.get(group):
                        return  # in our name, and not ours
                    self._sinks[group] = self._entering[group].popleft()
                    self._forget(group)
                groups = self._spoken.setdefault(sender, set())
                if len(groups) >= MOST_GROUPS:
                    return  # a node of ours asks for no more (Node.enter)
                groups.add(group)
                self._tell(group, position, False, self._ring)
            case Exit(group):
                if sender == self._me:
                    self._sinks.pop(group, None)
                    self._forget(group)
                self._spoken.get(sender, set()).discard(group)
                self._tell(group, position, False, self._ring)

    def _forget(self, group: str) -> None:
        """The next view of the group, if there is one, is a first one."""
        self._told.pop(group, None)
        self._gone.pop(group, None)

    def _tell_all(self, position: Position, transitional: bool, ring: ViewId) -> None:
        for group in sorted(self._sinks):
            self._tell(group, position, transitional, ring)

    def _tell(self, group: str, position: Position, transitional: bool, ring: ViewId) -> None:
        sink = self._sinks.get(group)
        if sink is not None and group in self._spoken.get(self._me, ()):
            members = self._who_spoke_of(group)
            gone = self._departures(group, members, ring)
            sets = tuple(
                (name, tuple(q for q in some if q in members)) for name, some in self._sets
            )
            self._told[group] = members
            sink.push(View(members, transitional, ring, position, gone, sets))

    def _departures(
        self, group: str, members: tuple[NodeId, ...], ring: ViewId
    ) -> tuple[Departure, ...]:
        """Why each member of the last view of the group went. Of one that is still on the ring the
        protocol has nothing to say: it left the group, or has not said that it is in it."""
        gone = self._gone.pop(group, {})
        for q in self._told.get(group, ()):
            if q in members or q in gone:
                continue
            if q in self._spoken:
                gone[q] = Departure(q, Reason.LEFT, "it says that it is not in the group")
            else:
                what = f"it has not said on ring {ring} which groups it is in"
                gone[q] = Departure(q, Reason.SILENT, what)
        return tuple(gone[q] for q in sorted(gone))
