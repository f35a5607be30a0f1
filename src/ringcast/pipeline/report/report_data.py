"""What a report tells of a trace, gathered event by event in bounded memory.

A story knows no protocol: it sees who was in which configuration when, how many messages were
delivered, how long they took from submission to delivery at their own sender, and what was done
to the group.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator

import msgspec

from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Faulted,
    Installed,
    Noted,
    Restarted,
    Submit,
    TraceEvent,
)

BIN_US = 50_000
MOST_BINS = 4096
"""A longer trace is counted in wider bins."""

STEPS = 20
"""Latencies are counted in classes, so many to a factor of ten (12 % wide)."""

SILENCE_US = 5_000_000
"""How long after a fault the longest silence is looked for."""


class ViewStay(msgspec.Struct):
    """A processor in a configuration."""

    node: NodeId
    view: ViewId
    members: tuple[NodeId, ...]
    transitional: bool
    from_us: int
    to_us: int
    parts: str = ""
    """What it consists of, if the processor said so in a note about the view right before it."""


class ReportMark(msgspec.Struct):
    """Something done to the group, and what came of it."""

    t_us: int
    node: int
    """Whom it hit; 0: all."""
    kind: str
    text: str
    silence_us: int = 0
    """Longest time without a delivery at a processor that it did not hit."""
    settled_us: int | None = None
    """From the fault to the last regular configuration that came of it."""


class Series:
    """Counts over time, in bins that widen as the trace grows."""

    def __init__(self) -> None:
        self.width_us = BIN_US
        self.counts: list[int] = []

    def add(self, t_us: int, count: int) -> None:
        """So many at this time."""
        while (at := t_us // self.width_us) >= MOST_BINS:
            halves = [*self.counts, 0]
            self.counts = [sum(halves[i : i + 2]) for i in range(0, len(self.counts), 2)]
            self.width_us *= 2
        if at >= len(self.counts):
            self.counts += [0] * (at + 1 - len(self.counts))
        self.counts[at] += count


class LatencyHistogram:
    """Times in classes of equal ratio."""

    def __init__(self) -> None:
        self.classes: Counter[int] = Counter()
        self.count = 0

    def add(self, us: int, count: int) -> None:
        """So many took this long."""
        self.classes[math.floor(STEPS * math.log10(max(us, 1)))] += count
        self.count += count

    def edges(self) -> Iterator[tuple[float, float, int]]:
        """Each class that is not empty: from, to (us), how many."""
        for at in sorted(self.classes):
            yield 10 ** (at / STEPS), 10 ** ((at + 1) / STEPS), self.classes[at]

    def quantile(self, share: float) -> float:
        """The time (us) that this share of the messages did not exceed; the class's middle."""
        left = share * self.count
        middle = math.nan
        for low, high, count in self.edges():
            middle = math.sqrt(low * high)
            left -= count
            if left <= 0:
                break
        return middle


class ReportData:
    """Feed it a whole trace, then read."""

    def __init__(self) -> None:
        self.nodes: list[NodeId] = []
        self.stays: list[ViewStay] = []
        self.marks: list[ReportMark] = []
        self.delivered: dict[NodeId, Series] = {}
        self.latency = {level: LatencyHistogram() for level in Level}
        self.messages = self.deliveries = self.bytes = self.views = 0
        self.seconds = 0.0
        self._start_us = -1
        self._now_us = 0
        self._present: dict[NodeId, ViewStay] = {}
        self._waiting: dict[NodeId, deque[tuple[int, int, Level]]] = {}
        self._heard: dict[NodeId, int] = {}
        self._told: dict[NodeId, Noted] = {}

    def feed(self, event: TraceEvent) -> None:
        """Take the next event."""
        if self._start_us < 0:
            self._start_us = event.t_us
        self._now_us = now_us = max(self._now_us, event.t_us - self._start_us)
        match event:
            case Delivered():
                self._deliver(event, now_us)
            case Submit():
                self._submit(event, now_us)
            case Installed():
                self._install(event, now_us)
            case Noted(node=node, what="topology"):
                self._told[node] = event
            case Crashed(node=node):
                self._leave(node, now_us)
            case Restarted(node=node):
                self._leave(node, now_us)
                if node not in self.nodes:
                    self.nodes = sorted([*self.nodes, node])
            case Faulted(node=node, kind=kind, text=text):
                for each in self._present:  # a silence that goes on now began with the last fault
                    self._silent(each, now_us)
                self.marks.append(ReportMark(now_us, node, kind, text))
                if kind == "crash":
                    self._leave(node, now_us)
            case Ended():
                for node in list(self._present):
                    self._leave(node, now_us)
                self.seconds = now_us / 1e6

    def _submit(self, event: Submit, now_us: int) -> None:
        self.messages += len(event.sizes)
        self.bytes += sum(event.sizes)
        last = event.first + len(event.sizes) - 1
        self._waiting.setdefault(event.node, deque()).append((last, now_us, event.level))

    def _silent(self, node: NodeId, now_us: int) -> None:
        """This processor has delivered nothing since it was heard last."""
        if self.marks:
            mark = self.marks[-1]
            if mark.node != node and now_us - mark.t_us < SILENCE_US:
                since_us = max(self._heard.get(node, mark.t_us), mark.t_us)
                mark.silence_us = max(mark.silence_us, now_us - since_us)

    def _deliver(self, event: Delivered, now_us: int) -> None:
        node, count = event.node, len(event.digests)
        self.deliveries += count
        self.delivered.setdefault(node, Series()).add(now_us, count)
        self._silent(node, now_us)
        self._heard[node] = now_us
        if event.sender == node:
            last = event.first + count - 1
            waiting = self._waiting.get(node, deque())
            while waiting and waiting[0][0] < event.first:
                waiting.popleft()
            if waiting:
                _, since_us, level = waiting[0]
                self.latency[level].add(now_us - since_us, count)
                if waiting[0][0] <= last:
                    waiting.popleft()

    def _install(self, event: Installed, now_us: int) -> None:
        self._leave(event.node, now_us, crashed=False)
        self.views += 1
        stay = ViewStay(event.node, event.view, event.members, event.transitional, now_us, now_us)
        note = self._told.pop(event.node, None)
        if note is not None and note.view == event.view:
            stay.parts = note.text
        self._present[event.node] = stay
        if self.marks and not event.transitional:
            self.marks[-1].settled_us = now_us - self.marks[-1].t_us

    def _leave(self, node: NodeId, now_us: int, crashed: bool = True) -> None:
        stay = self._present.pop(node, None)
        if stay is not None:
            stay.to_us = now_us
            self.stays.append(stay)
        if crashed:
            self._waiting.pop(node, None)
            self._heard.pop(node, None)
