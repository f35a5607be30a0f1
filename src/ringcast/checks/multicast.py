"""multicast: a message to some members is delivered by them and by nobody else, in the one order.

The other properties are about messages to all; this one says of those to some what they say
together. Such a message is delivered once, as it was submitted, by members it names. Its place is
above all that its sender had delivered before, and each processor delivers messages of either kind
in the order of their places, which makes one order of all that any two share; a sender's numbers
rise with them. Members that make the same step from one configuration to the next have delivered,
in the first, the same of what is for both of them. At the end, a settled processor has delivered
what it sent to itself, unless it reported it as uncertain in a later configuration, and what a
settled sender in the same configuration sent to it there. What it has reported it does not deliver,
neither before nor after. One message has one place.

Where members part, nothing is promised to those that go another way: what a member missed, only
somebody could tell it that was named as well.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, ClassVar

import msgspec

from ringcast.checks.history import History
from ringcast.checks.property import Property
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.to_some import DeliveredTo, SubmittedTo
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Installed,
    Noted,
    ReportedUncertain,
    Submit,
)

Place = tuple[Any, Any]
"""Compared as the order is: ring and number, or otherwise."""
Frames = dict[Place, DeliveredTo]


class SubmittedMessage(msgspec.Struct):
    """A message as it was submitted, and who has delivered it."""

    note: SubmittedTo
    digest: int
    after: Place | None
    """The last place that its sender had delivered."""
    view: ViewId | None
    """The configuration it was in."""
    got: set[NodeId]
    due: bool = True
    reported: bool = False
    """Its sender called it uncertain."""
    told: tuple[NodeId, Place] | None = None
    """Who delivered it first, and where."""


class Multicast(Property):
    """What is for some."""

    tag = "multicast"
    title = "messages to some members"
    about_deliveries = False
    notes: ClassVar[tuple[str, ...]] = (SubmittedTo.what, DeliveredTo.what)
    groups: ClassVar[bool] = False
    """Whether messages may be to groups."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._asked: dict[NodeId, dict[int, dict[int, SubmittedMessage]]] = {}
        """By sender, incarnation and number."""
        self._last: dict[NodeId, Place] = {}
        self._some_last: dict[NodeId, Place] = {}
        """The last place of a message to some that each has delivered."""
        self._pasts: dict[tuple[NodeId, int], tuple[list[int], list[Place]]] = {}
        """Of messages to all: first numbers of submissions, and what was delivered before."""
        self._numbers: dict[tuple[NodeId, NodeId], tuple[int, int]] = {}
        """By receiver and sender: incarnation and number of the last message."""
        self._here: dict[NodeId, Frames] = {}
        """What each has delivered in its present configuration."""

    # what a protocol with another order says otherwise

    def place(self, ring: ViewId, seq: int) -> Place:
        """Where a message stands in the order."""
        return ring, seq

    def shown(self, place: Place) -> str:
        """The message id, as everywhere."""
        return f"{place[0]}:{place[1]}.0"

    def elsewhere(self, node: NodeId, told: DeliveredTo) -> NodeId | None:
        """Who first told the place of a message, if that was another message."""
        ring = self.history.rings.get(told.ring)
        if ring is None:
            return None
        frames: dict[int, tuple[NodeId, DeliveredTo]]
        frames = ring.marks.setdefault(f"{self.tag} frames", {})
        first, known = frames.setdefault(told.seq, (node, told))
        return None if alike(known, told) else first

    def life(self, event: Delivered) -> int:
        """Which incarnation sent a message to all, the latest event."""
        return self.history.frame.incarnation

    def life_to_some(self, told: DeliveredTo) -> int:
        """Which incarnation sent a message to some."""
        ring = self.history.rings.get(told.ring)
        span = ring.spans.get(told.sender) if ring else None
        return span.incarnation if span else self.history.incarnation(told.sender)

    def concerns(self, node: NodeId, note: SubmittedTo | DeliveredTo, place: Place) -> bool:
        """Whether a message with this place is for a processor."""
        return node in note.to

    def awaited(self, asked: SubmittedMessage) -> tuple[NodeId, ...]:
        """Whom a message is for, wherever it may find its place."""
        return asked.note.to

    # submissions

    def on_submit(self, event: Submit) -> None:
        """Keep what is in the past of a message to all, if a message to some is."""
        if (after := self._some_last.get(event.node)) is not None:
            firsts, places = self._pasts.setdefault((event.node, event.incarnation), ([], []))
            firsts.append(event.first)
            places.append(after)

    def on_noted(self, event: Noted) -> None:
        """A submission or a delivery."""
        if event.what == SubmittedTo.what:
            self._submitted(event)
        elif event.what == DeliveredTo.what:
            self._delivered(event)

    def _submitted(self, event: Noted) -> None:
        note = SubmittedTo.read(event)
        if note is None or (note.group and not self.groups):
            self.undecided = True  # another program wrote it
            return
        current = self.history.known(event.node).current
        view, after = current.view if current else None, self._last.get(event.node)
        mine = self._asked.setdefault(event.node, {}).setdefault(note.incarnation, {})
        for number, digest in enumerate(note.digests, note.first):
            mine.setdefault(number, SubmittedMessage(note, digest, after, view, set()))

    def on_uncertain(self, event: ReportedUncertain) -> None:
        """These are not owed any more, and its sender has not delivered them."""
        mine = self._asked.get(event.node, {}).get(self.history.incarnation(event.node), {})
        for number, asked in mine.items():
            if event.first <= number < event.first + event.count:
                asked.reported = True
                if event.node in asked.got:
                    self._untrue(event, number)

    # deliveries

    def on_delivered(self, event: Delivered) -> None:
        """Its place among those of messages to some."""
        place, frame = self.place(event.ring, event.seq), self.history.frame
        life = self.life(event)
        if not self.history.again:
            self._follow(event, str(frame), place)
            self._count(event, event.sender, life, event.first, len(event.digests))
        firsts, places = self._pasts.get((event.sender, life), ((), ()))
        at = bisect_right(firsts, event.first) - 1
        if at >= 0 and places[at] >= place:
            before = self.shown(places[at])
            self._wrong(event, str(frame), f"its sender had delivered {before} before")

    def _delivered(self, event: Noted) -> None:
        told = DeliveredTo.read(event)
        if told is None or (told.group and not self.groups):
            self.undecided = True
            return
        node, place = event.node, self.place(told.ring, told.seq)
        incarnation = self.life_to_some(told)
        if not self.concerns(node, told, place):
            self._wrong(event, told.name, f"it is for {whom(told)}")
        if (first := self.elsewhere(node, told)) is not None:
            self._wrong(event, told.name, f"at processor {first} it is another message", first)
        current = self.history.known(node).current
        if current is None or current.view != told.view:
            self._wrong(event, told.name, f"it is not in {told.view}")
        self._as_submitted(event, told, incarnation, place)
        self._some_last[node] = place
        self._follow(event, told.name, place)
        self._count(event, told.sender, incarnation, told.first, len(told.digests))
        self._here.setdefault(node, {})[place] = told

    def _as_submitted(
        self, event: Noted, told: DeliveredTo, incarnation: int, place: Place
    ) -> None:
        mine = self._asked.get(told.sender, {}).get(incarnation, {})
        for number, digest in enumerate(told.digests, told.first):
            asked = mine.get(number)
            if asked is None:
                why = f"number {number} of processor {told.sender} was not submitted to anybody"
                self._wrong(event, told.name, why)
                return
            asked.got.add(event.node)
            if asked.reported and event.node == told.sender:
                self._untrue(event, number)
            asked.told = asked.told or (event.node, place)
            if asked.told[1] != place:
                first, where = asked.told
                why = f"processor {first} delivered it as {self.shown(where)}"
                self._wrong(event, told.name, why, first)
            note = asked.note
            same = (note.to, note.group) == (told.to, told.group)
            if not same or asked.digest != digest or note.level > told.level:
                self._wrong(event, told.name, f"number {number} was submitted as {note}")
            elif asked.after is not None and asked.after >= place:
                before = self.shown(asked.after)
                self._wrong(event, told.name, f"its sender had delivered {before} before")

    def _untrue(self, event: Noted | ReportedUncertain, number: int) -> None:
        self.violate(
            f"Processor {event.node} delivers its message number {number} and reports it as "
            f"uncertain, which is known at {event.t_us} us.",
            (event.node,),
            (f"number {number} of {event.node}",),
            event.t_us,
        )

    def _follow(self, event: Noted | Delivered, name: str, place: Place) -> None:
        """Places ascend, of messages of either kind."""
        last = self._last.get(event.node)
        self._last[event.node] = place
        if last is not None and last >= place and event.node in self._some_last:
            self._wrong(event, name, f"it had delivered {self.shown(last)} before")

    def _count(
        self, event: Noted | Delivered, sender: NodeId, incarnation: int, first: int, count: int
    ) -> None:
        """A sender's numbers ascend with them."""
        last = self._numbers.get((event.node, sender))
        self._numbers[event.node, sender] = (incarnation, first + count - 1)
        if last is not None and last >= (incarnation, first) and event.node in self._some_last:
            what = f"it had delivered up to number {last[1]} of processor {sender} before"
            self._wrong(event, f"number {first} of {sender}", what)

    def _wrong(
        self, event: Noted | Delivered, name: str, why: str, other: NodeId | None = None
    ) -> None:
        """One is wrong, or, if that rests on what another told first, either may be."""
        self.violate(
            f"Processor {event.node} delivered {name} at {event.t_us} us; {why}.",
            (event.node,) if other in (None, event.node) else (other, event.node),
            (name,),
            event.t_us,
        )

    # configurations

    def on_installed(self, event: Installed) -> None:
        """Compare with all that made the same step."""
        node = self.history.node
        before, span = node.previous, node.left or node.span
        mine = self._here.pop(event.node, {})
        if before is None or span is None:
            return
        steps: dict[tuple[ViewId, ViewId], dict[NodeId, Frames]]
        steps = span.ring.marks.setdefault(self.tag, {})
        others = steps.setdefault((before.view, event.view), {})
        for other, its in others.items():
            self._compare(event.t_us, event.node, mine, other, its, True)
        others[event.node] = mine

    def _compare(
        self, t_us: int, one: NodeId, mine: Frames, other: NodeId, its: Frames, sure: bool
    ) -> None:
        """Whatever is for both, both have delivered, or neither."""
        for has, frames, lacks, theirs in ((one, mine, other, its), (other, its, one, mine)):
            for place, told in frames.items():
                if place not in theirs and self.concerns(lacks, told, place):
                    self.owed(
                        sure,
                        f"Processor {has} delivered {told.name}, which is for {whom(told)}, in "
                        f"{told.view}; processor {lacks} was there as long, and did not.",
                        (has, lacks),
                        (told.name,),
                        t_us,
                    )
                    return

    def on_crashed(self, event: Crashed) -> None:
        """A crash ends all obligations."""
        for known in (self._here, self._last, self._some_last):
            known.pop(event.node, None)
        for messages in self._asked.get(event.node, {}).values():
            for asked in messages.values():
                asked.due = False

    def on_ended(self, event: Ended) -> None:
        """What those that are together owe each other, and what was sent and got nowhere."""
        settled, nodes = set(event.settled), self.history.nodes
        now = {id: node.current.view for id, node in nodes.items() if node.up and node.current}
        for one in sorted(now):
            for other in sorted(now):
                if one < other and now[one] == now[other]:
                    mine, its = self._here.get(one, {}), self._here.get(other, {})
                    self._compare(event.t_us, one, mine, other, its, {one, other} <= settled)
        for sender in sorted(self._asked):
            for messages in self._asked[sender].values():
                for number, asked in messages.items():
                    self._end(event, sender, number, asked, now, settled)

    def _end(
        self,
        event: Ended,
        sender: NodeId,
        number: int,
        asked: SubmittedMessage,
        now: dict[NodeId, ViewId],
        settled: set[NodeId],
    ) -> None:
        here = now.get(sender)
        if not asked.due or (asked.reported and asked.view != here):
            return
        for node in self.awaited(asked):
            together = here is not None and asked.view == here == now.get(node)
            if node not in asked.got and (node == sender or together):
                self.owed(
                    {sender, node} <= settled,
                    f"Processor {sender} submitted its message number {number} to "
                    f"{whom(asked.note)}, and processor {node} did not deliver it by the end.",
                    (sender, node),
                    (f"number {number} of {sender}",),
                    event.t_us,
                )


def alike(one: DeliveredTo, other: DeliveredTo) -> bool:
    """Whether two processors told the same, in whichever configurations."""
    return msgspec.structs.replace(one, view=other.view) == other


def whom(note: SubmittedTo | DeliveredTo) -> str:
    """Whom a message is for."""
    return str(note.to) if note.to else f"group {note.group}"
