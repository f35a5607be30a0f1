"""Meter: how fast a group was, read off its trace.

It knows no protocol. A message counts as ordered when it gets its place in the order
(``Originated``, or ``Delivered`` if somebody knows the place before its sender does, as with
messages to some, whose sizes no trace tells); its latency
runs from ``Submit`` to ``Delivered``, and counts once all members of the configuration that
delivered it first, but those who are down, have delivered it. How long the token of a ring takes
for a rotation is not in the trace: ``Turns`` shows the meter when a processor passes it on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from ringcast.core.effects import Effect, Send
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.to_some import DeliveredTo, SubmittedTo
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Installed,
    Noted,
    Originated,
    Restarted,
    Submit,
    TraceEvent,
)

MOST_OPEN = 10_000
"""Frames followed at the same time. The oldest, which a change of the membership has kept from
being delivered by all, give way."""


class Latency(msgspec.Struct, frozen=True):
    """Time from submission to delivery, summed over ``messages``."""

    messages: int = 0
    each_us: float = 0.0
    """Averaged over the receivers of a message, its sender among them."""
    last_us: int = 0
    """To the last receiver."""
    first_us: int = 0
    """To the first."""

    @property
    def mean_ms(self) -> float:
        """Of a message, averaged over its receivers; without messages, 0."""
        return self.each_us / self.messages / 1e3 if self.messages else 0.0

    @property
    def last_ms(self) -> float:
        """Of a message, to its last receiver; without messages, 0."""
        return self.last_us / self.messages / 1e3 if self.messages else 0.0

    @property
    def first_ms(self) -> float:
        """Of a message, to its first receiver; without messages, 0."""
        return self.first_us / self.messages / 1e3 if self.messages else 0.0

    def __add__(self, other: Latency) -> Latency:
        return Latency(
            self.messages + other.messages,
            self.each_us + other.each_us,
            self.last_us + other.last_us,
            self.first_us + other.first_us,
        )


class Measures(msgspec.Struct, frozen=True):
    """What was measured in one run, or in several together. Rates are those of one group."""

    span_us: int = 0
    messages: int = 0
    """Ordered."""
    bytes: int = 0
    """Their contents."""
    views: int = 0
    """Configurations announced, once for each processor."""
    agreed: Latency = Latency()
    safe: Latency = Latency()
    rotations: int = 0
    """From one turn of a processor to its next in the same configuration."""
    rotations_us: int = 0
    """Their time, summed."""

    @property
    def rotation_ms(self) -> float:
        """The mean rotation time; without rotations, 0."""
        return self.rotations_us / self.rotations / 1e3 if self.rotations else 0.0

    @property
    def messages_per_s(self) -> float:
        """Messages ordered in a simulated second."""
        return self.messages * 1e6 / self.span_us if self.span_us else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Contents ordered in a simulated second."""
        return self.bytes * 1e6 / self.span_us if self.span_us else 0.0

    def __add__(self, other: Measures) -> Measures:
        return Measures(
            self.span_us + other.span_us,
            self.messages + other.messages,
            self.bytes + other.bytes,
            self.views + other.views,
            self.agreed + other.agreed,
            self.safe + other.safe,
            self.rotations + other.rotations,
            self.rotations_us + other.rotations_us,
        )


class _Frame:
    """Messages that got their place together, on their way to the receivers."""

    __slots__ = (
        "awaited",
        "delivered_us",
        "first_us",
        "last_us",
        "messages",
        "receivers",
        "submitted_us",
    )

    def __init__(self, messages: int, submitted_us: int) -> None:
        self.messages = messages
        self.submitted_us = submitted_us
        """Of all its messages, summed."""
        self.receivers = self.awaited = 0
        self.delivered_us = self.last_us = self.first_us = 0
        """By its receivers so far: summed, the latest and the earliest."""


class Meter:
    """An observer that measures from ``from_us`` up to, not including, ``until_us``."""

    def __init__(self, from_us: int, until_us: int) -> None:
        self._from_us = from_us
        self._until_us = until_us
        self._messages = self._bytes = self._views = 0
        self._count, self._each_us = [0, 0], [0.0, 0.0]
        self._last_us, self._first_us = [0, 0], [0, 0]
        """Sums of a ``Latency``, by level."""
        self._queues: defaultdict[NodeId, dict[int, tuple[int, int]]] = defaultdict(dict)
        """When each message that has no place yet was submitted, and its size: by sender and
        number. As long as the senders' own queues."""
        self._members: dict[NodeId, tuple[NodeId, ...]] = {}
        """Of the configuration of each processor."""
        self._down: set[NodeId] = set()
        self._open: dict[tuple[ViewId, int], _Frame] = {}
        self._turned_us: dict[NodeId, int] = {}
        """The last turn of each processor in its configuration."""
        self._rotations = self._rotations_us = 0
        self._on: dict[type, Callable[[Any], None]] = {
            Submit: self._submit,
            Originated: self._originated,
            Delivered: self._delivered,
            Noted: self._noted,
            Installed: self._installed,
            Crashed: self._gone,
            Restarted: self._gone,
        }

    def __call__(self, event: TraceEvent) -> None:
        """Take note of one event."""
        act = self._on.get(type(event))
        if act is not None and event.t_us < self._until_us:
            act(event)

    def read(self) -> Measures:
        """What was measured."""
        sums = zip(self._count, self._each_us, self._last_us, self._first_us, strict=True)
        agreed, safe = [Latency(*each) for each in sums]
        return Measures(
            self._until_us - self._from_us,
            self._messages,
            self._bytes,
            self._views,
            agreed,
            safe,
            self._rotations,
            self._rotations_us,
        )

    def turn(self, node: NodeId, t_us: int) -> None:
        """``node`` had its turn and passes the token on."""
        if self._from_us <= t_us < self._until_us:
            last_us = self._turned_us.get(node)
            if last_us is not None:
                self._rotations += 1
                self._rotations_us += t_us - last_us
            self._turned_us[node] = t_us

    def _submit(self, event: Submit) -> None:
        queue = self._queues[event.node]
        for number, size in enumerate(event.sizes, event.first):
            queue[number] = (event.t_us, size)

    def _noted(self, event: Noted) -> None:
        """Messages to some: those that they are for count as the members."""
        if (asked := SubmittedTo.read(event)) is not None:
            queue = self._queues[event.node]
            for number in range(asked.first, asked.first + len(asked.digests)):
                queue[number] = (event.t_us, 0)
            return
        told = DeliveredTo.read(event)
        if told is not None and (told.to or event.node == told.sender):
            # Of a group only the sender is known here.
            self._received(event.t_us, told, told.to or (told.sender,))

    def _originated(self, event: Originated) -> None:
        queue = self._queues[event.owner]
        if event.first in queue:
            self._place(queue, event, event.t_us)

    def _place(
        self,
        queue: dict[int, tuple[int, int]],
        event: Originated | Delivered | DeliveredTo,
        now_us: int,
    ) -> None:
        """The messages of ``event``, which wait in their sender's ``queue``, are ordered."""
        from_us = self._from_us
        inside = now_us >= from_us
        messages = submitted_us = 0
        for number in range(event.first, event.first + len(event.digests)):
            t_us, size = queue.pop(number, (-1, 0))
            if inside:
                self._messages += 1
                self._bytes += size
                if t_us >= from_us:
                    messages += 1
                    submitted_us += t_us
        if messages:
            self._open[event.ring, event.seq] = _Frame(messages, submitted_us)
            if len(self._open) > MOST_OPEN:
                del self._open[next(iter(self._open))]

    def _delivered(self, event: Delivered) -> None:
        self._received(event.t_us, event, self._members.get(event.node, (event.node,)))

    def _received(
        self,
        t_us: int,
        event: Delivered | DeliveredTo,
        members: tuple[NodeId, ...],
    ) -> None:
        """One of ``members`` has delivered messages."""
        place = (event.ring, event.seq)
        frame = self._open.get(place)
        if frame is None:
            queue = self._queues[event.sender]
            if event.first not in queue:
                return
            self._place(queue, event, t_us)
            frame = self._open.get(place)
            if frame is None:
                return
        if not frame.receivers:
            frame.receivers = frame.awaited = len(members) - len(self._down.intersection(members))
            frame.first_us = t_us
        frame.awaited -= 1
        frame.delivered_us += t_us
        if t_us > frame.last_us:
            frame.last_us = t_us
        elif t_us < frame.first_us:
            frame.first_us = t_us
        if not frame.awaited:
            del self._open[place]
            level, count, submitted_us = event.level, frame.messages, frame.submitted_us
            self._count[level] += count
            self._each_us[level] += count * frame.delivered_us / frame.receivers - submitted_us
            self._last_us[level] += count * frame.last_us - submitted_us
            self._first_us[level] += count * frame.first_us - submitted_us

    def _installed(self, event: Installed) -> None:
        self._members[event.node] = event.members
        self._turned_us.pop(event.node, None)
        if event.t_us >= self._from_us:
            self._views += 1

    def _gone(self, event: Crashed | Restarted) -> None:
        """What had no place yet is lost, and another incarnation counts from 1 again."""
        self._queues.pop(event.node, None)
        self._turned_us.pop(event.node, None)
        (self._down.add if type(event) is Crashed else self._down.discard)(event.node)


class Turns:
    """Sees what machines send, and tells a meter of their turns; ``TappedMachine`` uses it."""

    def __init__(self, meter: Meter, messages: tuple[type, ...]) -> None:
        self._meter = meter
        self._messages = messages
        self._sent: dict[NodeId, object] = {}

    def see(self, node: NodeId, effects: list[Effect], now_us: int) -> list[Effect]:
        """A turn ends with a message of these types; the same one sent again is no other turn."""
        for effect in effects:
            if type(effect) is Send and type(effect.message) in self._messages:
                if self._sent.get(node) is not effect.message:
                    self._meter.turn(node, now_us)
                self._sent[node] = effect.message
        return effects
