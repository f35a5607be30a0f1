"""Meter: how fast a group was, read off its trace.

It knows no protocol. A message counts as ordered when its sender gives it a place in the order
(``Originated``); its latency runs from ``Submit`` to ``Delivered``, and counts once all members of
the configuration that delivered it first have delivered it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Installed,
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

    @property
    def mean_ms(self) -> float:
        """Of a message, averaged over its receivers; without messages, 0."""
        return self.each_us / self.messages / 1e3 if self.messages else 0.0

    @property
    def last_ms(self) -> float:
        """Of a message, to its last receiver; without messages, 0."""
        return self.last_us / self.messages / 1e3 if self.messages else 0.0

    def __add__(self, other: Latency) -> Latency:
        return Latency(
            self.messages + other.messages,
            self.each_us + other.each_us,
            self.last_us + other.last_us,
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
        )


class _Frame:
    """Messages that got their place together, on their way to the receivers."""

    __slots__ = ("awaited", "delivered_us", "last_us", "messages", "receivers", "submitted_us")

    def __init__(self, messages: int, submitted_us: int) -> None:
        self.messages = messages
        self.submitted_us = submitted_us
        """Of all its messages, summed."""
        self.receivers = self.awaited = 0
        self.delivered_us = self.last_us = 0
        """By its receivers so far: summed, and the latest."""


class Meter:
    """An observer that measures from ``from_us`` up to, not including, ``until_us``."""

    def __init__(self, from_us: int, until_us: int) -> None:
        self._from_us = from_us
        self._until_us = until_us
        self._messages = self._bytes = self._views = 0
        self._latency = dict.fromkeys(Level, Latency())
        self._queues: dict[NodeId, dict[int, tuple[int, int]]] = {}
        """When each message that has no place yet was submitted, and its size: by sender and
        number. As long as the senders' own queues."""
        self._members: dict[NodeId, int] = {}
        """How many there are in the configuration of each processor."""
        self._open: dict[tuple[ViewId, int], _Frame] = {}
        self._on: dict[type, Callable[[Any], None]] = {
            Submit: self._submit,
            Originated: self._originated,
            Delivered: self._delivered,
            Installed: self._installed,
            Crashed: self._gone,
            Restarted: self._gone,
        }

    def __call__(self, event: TraceEvent) -> None:
        """Take note of one event."""
        act = self._on.get(type(event))
        if act is not None:
            act(event)

    def read(self) -> Measures:
        """What was measured."""
        return Measures(
            self._until_us - self._from_us,
            self._messages,
            self._bytes,
            self._views,
            self._latency[Level.AGREED],
            self._latency[Level.SAFE],
        )

    def _submit(self, event: Submit) -> None:
        queue = self._queues.setdefault(event.node, {})
        for number, size in enumerate(event.sizes, event.first):
            queue[number] = (event.t_us, size)

    def _originated(self, event: Originated) -> None:
        queue = self._queues.get(event.node, {})
        inside = self._from_us <= event.t_us < self._until_us
        messages = submitted_us = 0
        for number in range(event.first, event.first + len(event.digests)):
            t_us, size = queue.pop(number, (-1, 0))
            if inside:
                self._messages += 1
                self._bytes += size
                if t_us >= self._from_us:
                    messages += 1
                    submitted_us += t_us
        if messages:
            self._open[event.ring, event.seq] = _Frame(messages, submitted_us)
            if len(self._open) > MOST_OPEN:
                del self._open[next(iter(self._open))]

    def _delivered(self, event: Delivered) -> None:
        place = (event.ring, event.seq)
        frame = self._open.get(place)
        if frame is None or event.t_us >= self._until_us:
            return
        if not frame.receivers:
            frame.receivers = frame.awaited = self._members.get(event.node, 1)
        frame.awaited -= 1
        frame.delivered_us += event.t_us
        frame.last_us = max(frame.last_us, event.t_us)
        if not frame.awaited:
            del self._open[place]
            count, submitted_us = frame.messages, frame.submitted_us
            self._latency[event.level] += Latency(
                count,
                count * frame.delivered_us / frame.receivers - submitted_us,
                count * frame.last_us - submitted_us,
            )

    def _installed(self, event: Installed) -> None:
        self._members[event.node] = len(event.members)
        if self._from_us <= event.t_us < self._until_us:
            self._views += 1

    def _gone(self, event: Crashed | Restarted) -> None:
        """What had no place yet is lost, and another incarnation counts from 1 again."""
        self._queues.pop(event.node, None)
