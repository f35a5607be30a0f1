"""P-18: messages to some processors are delivered by these and by nobody else, in the one order.

The dossier counts to P-17. This is ``checks.multicast`` where timestamps order messages, and rings
are not named as topologies are: what gateways withhold (F1 to F9) must not be missed by anybody.

In a topology each delivers its part of one sequence (``p18_in_turn``), and a safe one is delivered
by all that it is for in the topology of whoever delivers it, or they crash.
A message to a group is for those that are in it at its place, by their own last word before that
(F6). And no gateway passes one on if, by what it has delivered itself, nobody beyond is in it (F7):
it names one who is, or has not spoken in this topology.
"""

from __future__ import annotations

import msgspec

from ringcast.checks.history import History
from ringcast.checks.multicast import Frames, Place, SubmittedMessage, alike, whom
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.to_some import DeliveredTo, SubmittedTo
from ringcast.core.trace import Crashed, Delivered, Ended, Installed, Noted, Originated
from ringcast.protocols.totem_multi.interests import EVERYTHING, INTERESTED, PASSED, is_in
from ringcast.protocols.totem_multi.p18_in_turn import InTurn

REMEMBERED = 65_536
"""Messages to all whose senders' lives are remembered, safe ones to some that are owed, and places
of messages to some."""


class Told(msgspec.Struct, frozen=True):
    """What a place held, who told that first, and after how many losses of storage."""

    node: NodeId
    what: DeliveredTo
    losses: int


class ToSome(InTurn):
    """What is for some."""

    tag = "P-18"
    title = "messages to some processors"
    notes = (*InTurn.notes, INTERESTED, PASSED)
    groups = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._lives: dict[tuple[Place, NodeId, tuple[int, ...]], int] = {}
        """By place, sender and digests: after a loss of storage a ring may have the name of an
        earlier one, and its messages their places."""
        self._began: dict[NodeId, Place] = {}
        """Where each processor's present life begins: what is older concerned one before."""
        self._owing: dict[Place, tuple[DeliveredTo, dict[NodeId, bool]]] = {}
        """Safe messages: who was in the topology of one that delivered it, and delivered it too."""
        self._forgotten: Place | None = None
        """The last place of those that were too many: who delivered these is not known any more."""
        self._told: dict[Place, list[Told]] = {}
        """What each place held, one after the other; rings do not know, as they are no
        configurations."""
        self._own: dict[NodeId, list[tuple[Place, frozenset[int]]]] = {}
        """By processor: its own words about its groups, with their places."""
        self._heard: dict[NodeId, dict[NodeId, frozenset[int]]] = {}
        """What each has delivered in its topology of such words."""

    def place(self, ring: ViewId, seq: int) -> Place:
        """Timestamps first."""
        return seq, ring

    def shown(self, place: Place) -> str:
        """The ring comes first in names all the same."""
        return f"{place[1]}:{place[0]}.0"

    def elsewhere(self, node: NodeId, told: DeliveredTo) -> NodeId | None:
        """As ``content``: who has lost its storage may give a place again, and nobody can tell that
        from a mistake."""
        known = self._told.setdefault(self.place(told.ring, told.seq), [])
        while len(self._told) > REMEMBERED:
            del self._told[next(iter(self._told))]
        if any(alike(each.what, told) for each in known):
            return None
        last = known[-1] if known else None
        if last is not None:
            gave = (told.ring.rep, last.what.sender, told.sender)
            if not self.history.lost_since(last.losses, gave):
                return last.node
            self.undecided = True
        known.append(Told(node, told, self.history.losses))
        return None

    # safe messages

    def told_some(self, event: Noted, told: DeliveredTo) -> None:
        """All that a safe one is for owe it from now on."""
        place = self.place(told.ring, told.seq)
        current = self.history.known(event.node).current
        if told.level is not Level.SAFE or current is None:
            return
        if place not in self._owing and self._forgotten is not None and place <= self._forgotten:
            return
        owing = self._owing.setdefault(place, (told, {}))[1]
        for node in current.members:
            if self._began.get(node, place) < place:  # else it has crashed since
                owing.setdefault(node, False)
        owing[event.node] = True
        while len(self._owing) > REMEMBERED:
            oldest = next(iter(self._owing))
            del self._owing[oldest]
            self._forgotten = max(oldest, self._forgotten or oldest)

    def on_ended(self, event: Ended) -> None:
        """Who owes a safe message still."""
        super().on_ended(event)
        sure = not self.history.lost  # else lives do not follow each other in the order
        for place, (told, owing) in self._owing.items():
            for node, got in owing.items():
                if got or not self.concerns(node, told, place):
                    continue
                self.owed(
                    sure and node in event.settled,
                    f"Processor {told.sender} sent the safe message {told.name} to {whom(told)}, "
                    f"and some delivered it in {told.view}; processor {node} did not by the end.",
                    (node,),
                    (told.name,),
                    event.t_us,
                )

    def _compare(
        self, t_us: int, one: NodeId, mine: Frames, other: NodeId, its: Frames, sure: bool
    ) -> None:
        """Where a life without storage began again below the one before, nobody can tell by places
        which of its words about groups counted."""
        sure = sure and self.history.lost.isdisjoint((one, other))
        super()._compare(t_us, one, mine, other, its, sure)

    # groups

    def on_noted(self, event: Noted) -> None:
        """Also who is in which groups, and what gateways pass on for whom."""
        super().on_noted(event)
        if (told := DeliveredTo.read(event)) is not None:
            self.told_some(event, told)
        data = tuple(event.data or ())
        if event.what == INTERESTED and len(data) >= 3 and len(event.members) == 1:
            place = self.place(ViewId(data[1], data[2]), data[0])
            (node,), groups = event.members, frozenset(data[3:])
            self._heard.setdefault(event.node, {})[node] = groups
            if node == event.node:
                self._own.setdefault(node, []).append((place, groups))
        elif event.what == PASSED and len(data) == 4:
            self._passed(event, data)

    def _passed(self, event: Noted, data: tuple[int, ...]) -> None:
        name, group = f"{ViewId(data[1], data[2])}:{data[0]}.0", data[3]
        said = None
        if event.members:
            said = self._heard.get(event.node, {}).get(event.members[0])
            if said is None or is_in(group, said):
                return
        who = "nobody" if said is None else f"processor {event.members[0]}, which is in {set(said)}"
        self.violate(
            f"Processor {event.node} passed on {name}, which is for group {group}, for {who}.",
            (event.node,),
            (name,),
            event.t_us,
        )

    def on_installed(self, event: Installed) -> None:
        """All speak anew."""
        super().on_installed(event)
        if event.prev is None:
            self._began[event.node] = place = self.place(event.ring, event.seq)
            if event.node in self._own:  # what it said before still counts for what it did before
                self._own[event.node].append((place, frozenset({EVERYTHING})))
        self._heard.pop(event.node, None)

    def on_crashed(self, event: Crashed) -> None:
        """It knows nothing of groups any more, and owes nothing."""
        super().on_crashed(event)
        self._began.pop(event.node, None)
        for _, owing in self._owing.values():
            owing.pop(event.node, None)
        self._heard.pop(event.node, None)

    def concerns(self, node: NodeId, note: SubmittedTo | DeliveredTo, place: Place) -> bool:
        """Of a group: whether it was in it there. One that has never spoken is in all."""
        if not note.group:
            return super().concerns(node, note, place)
        words = self._own.get(node, ())
        before = [groups for at, groups in words if at < place]
        return not before or is_in(note.group, before[-1])

    def awaited(self, asked: SubmittedMessage) -> tuple[NodeId, ...]:
        """Of a group: those that were in it all the time since."""
        group, after = asked.note.group, asked.after
        if not group:
            return super().awaited(asked)
        found = []
        for node in sorted(self.history.nodes):
            words = self._own.get(node, ())
            since = [groups for at, groups in words if after is None or at >= after]
            start = after is None or self.concerns(node, asked.note, after)
            if start and all(is_in(group, groups) for groups in since):
                found.append(node)
        return tuple(found)

    # lives

    def on_originated(self, event: Originated) -> None:
        """The life in which it was sent, wherever it is delivered later."""
        which = (self.place(event.ring, event.seq), event.node, event.digests)
        self._lives[which] = self.history.incarnation(event.node)
        while len(self._lives) > REMEMBERED:
            del self._lives[next(iter(self._lives))]

    def life(self, event: Delivered) -> int:
        """As it was when the message was originated."""
        present = self.history.incarnation(event.sender)
        which = (self.place(event.ring, event.seq), event.sender, event.digests)
        return self._lives.get(which, present)

    def life_to_some(self, told: DeliveredTo) -> int:
        """The latest life that submitted this body, of those that sent it to the same members if
        there is one: a processor may send one body to others in its next life."""
        asked = self._asked.get(told.sender, {})
        known = [
            ((mine.note.to, mine.note.group) == (told.to, told.group), life)
            for life, numbers in asked.items()
            if (mine := numbers.get(told.first)) is not None
            and told.digests
            and mine.digest == told.digests[0]
        ]
        return max(known)[1] if known else self.history.incarnation(told.sender)
