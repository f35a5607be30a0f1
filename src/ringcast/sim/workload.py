"""Workloads: what the applications send, as data, and the generator that sends it.

A submission that a processor refuses (it is down, paused, or its queue is full) is not made up
for later by the open patterns, Poisson and bursts; the others try again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import Random
from typing import Annotated, TypeAlias

import msgspec

from ringcast.core.ids import Level, NodeId
from ringcast.core.to_some import DeliveredTo
from ringcast.core.trace import Delivered, Noted, Originated, Restarted, TraceEvent
from ringcast.sim.cluster import Cluster
from ringcast.sim.model import Micros, Share

Many = Annotated[int, msgspec.Meta(ge=1)]

MOST_BYTES = 64 * 2**20


class Sizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Message sizes from ``low`` to ``high``, drawn in proportion to ``weight``."""

    low: Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]
    high: Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]
    weight: Annotated[float, msgspec.Meta(gt=0.0)] = 1.0

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")


class _Workload(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    kw_only=True,
    tag_field="kind",
):
    senders: tuple[NodeId, ...] = ()
    """Who sends; empty is everybody."""
    sizes: Annotated[tuple[Sizes, ...], msgspec.Meta(min_length=1)] = (Sizes(16, 64),)
    safe: Share = 0.0
    """Share of the messages that ask for safe delivery."""
    to: tuple[NodeId, ...] = ()
    """Whom all messages are for, ascending, the senders among them; empty: everybody. For protocols
    that can."""
    start_us: Micros = 0


class _Open(_Workload, frozen=True, kw_only=True):
    """What is sent whatever becomes of what was sent before."""

    some: Share = 0.0
    """Share of the submissions that are for some processors only, drawn for each; the sender may be
    one of them or not. For protocols that can."""


class Poisson(_Open, frozen=True, tag="poisson"):
    """Each sender sends at random moments, ``rate`` messages a second on average."""

    rate: Annotated[float, msgspec.Meta(gt=0.0)]


class Grouped(_Workload, frozen=True, tag="grouped"):
    """Each sender sends at random moments, each time to one of ``groups`` groups. All processors
    are in some of these, and join or leave one every ``every_us`` on average; 0: never. For
    protocols that can."""

    rate: Annotated[float, msgspec.Meta(gt=0.0)]
    groups: Many = 3
    every_us: Micros = 0
    within: dict[int, tuple[NodeId, ...]] = {}
    """By group: who is in it at first; who is in some sends to these. Others are drawn."""


class Bursts(_Open, frozen=True, tag="bursts"):
    """Each sender submits ``messages`` at once, every ``every_us``."""

    messages: Many
    every_us: Many


class ClosedLoop(_Workload, frozen=True, tag="closed-loop"):
    """Each sender has ``outstanding`` messages under way; ``think_us`` after it has delivered
    one it sends the next."""

    outstanding: Many = 1
    think_us: Many = 100


class Fill(_Workload, frozen=True, tag="fill"):
    """The paper's packet driver: every ``every_us``, fill the send queue up to ``queue``."""

    queue: Many = 50
    every_us: Many = 5_500_000


class Saturate(_Workload, frozen=True, tag="saturate"):
    """The send queue is kept full; ``think_us`` after messages have left it, others follow."""

    think_us: Many = 1_000


Workload: TypeAlias = Poisson | Grouped | Bursts | ClosedLoop | Fill | Saturate

LARGE = 300
"""Most messages a saturating sender submits at one moment."""

RETRY_US = 10_000
"""How soon a full or absent sender is asked again, when nothing else tells that it is ready."""


_BODY = re.compile(rb"\d+\.\d+\|\.{4}")


def made_here(data: bytes) -> bool:
    """Whether a body of a workload, not a very short one, is in these bytes."""
    return _BODY.search(data) is not None


class Load:
    """Sends one workload."""

    def __init__(self, workload: Workload, cluster: Cluster, rng: Random) -> None:
        self._work = workload
        self._cluster = cluster
        self._rng = rng
        self._stopped = False
        self._made = 0
        self._weights = [size.weight for size in workload.sizes]
        self._senders = workload.senders or cluster.ids
        self._pending = dict.fromkeys(self._senders, 0)
        """Messages of each sender that the closed patterns still wait for."""
        self._asked: set[NodeId] = set()
        self._in: dict[NodeId, set[int]] = {node: set() for node in cluster.ids}
        """Of groups: who is in which."""
        if not isinstance(workload, (Poisson, Grouped, Bursts)):
            cluster.recorder.observers.append(self._observe)
        start_us = max(workload.start_us, cluster.now_us)
        for node in self._senders:
            cluster.scheduler.at(start_us + self._gap_us(first=True), self._tick, node)
        if isinstance(workload, Grouped):
            for node in cluster.ids:
                cluster.scheduler.at(start_us, self._join_first, node)

    def stop(self) -> None:
        """Send nothing any more."""
        self._stopped = True

    def _gap_us(self, first: bool = False) -> int:
        """Time until a sender's next turn."""
        match self._work:
            case Poisson(rate=rate) | Grouped(rate=rate):
                return int(self._rng.expovariate(rate / 1_000_000)) + 1
            case Bursts(every_us=every_us) | Fill(every_us=every_us):
                return self._rng.randrange(every_us) if first else every_us
            case _:
                return 0 if first else RETRY_US

    def _tick(self, node: NodeId) -> None:
        if self._stopped:
            return
        match self._work:
            case Poisson() | Grouped():
                self._submit(node, 1)
            case Bursts(messages=messages):
                self._submit(node, messages)
            case _ if node not in self._asked:
                self._top_up(node)
        self._cluster.scheduler.at(self._cluster.now_us + self._gap_us(), self._tick, node)

    def _top_up(self, node: NodeId) -> None:
        """Submit what is missing. A lone processor delivers at once, so the count is bounded."""
        bound = LARGE
        if isinstance(self._work, (ClosedLoop, Fill)):
            bound = self._work.queue if isinstance(self._work, Fill) else self._work.outstanding
            bound -= self._pending[node]
        for _ in range(bound):
            self._pending[node] += 1  # first: the machine may be done with it at once
            if not self._submit(node, 1):
                self._pending[node] -= 1
                return

    def _submit(self, node: NodeId, count: int) -> bool:
        if not self._cluster.nodes[node].ready:
            return False
        level = Level.SAFE if self._rng.random() < self._work.safe else Level.AGREED
        bodies = tuple([self._body(node) for _ in range(count)])
        return self._cluster.submit(node, bodies, level, self._to(), self._group(node))

    def _group(self, node: NodeId) -> int:
        """Which group the next submission is for; 0: none."""
        if not isinstance(self._work, Grouped):
            return 0
        mine = [group for group, some in sorted(self._work.within.items()) if node in some]
        return self._rng.choice(mine or range(1, self._work.groups + 1))

    def _join_first(self, node: NodeId) -> None:
        assert isinstance(self._work, Grouped)
        for group in range(1, self._work.groups + 1):
            some = self._work.within.get(group)
            if node in some if some is not None else self._rng.random() < 0.5:
                self._in[node].add(group)
        self._enter(node)

    def _join(self, node: NodeId) -> None:
        assert isinstance(self._work, Grouped)
        if not self._stopped:
            self._in[node] ^= {self._rng.randint(1, self._work.groups)}
            self._enter(node)

    def _enter(self, node: NodeId) -> None:
        """Say which groups a processor is in; that changes later, if it ever does."""
        assert isinstance(self._work, Grouped)
        self._cluster.enter(node, tuple(sorted(self._in[node])))
        if self._work.every_us:
            later_us = self._cluster.now_us + 1
            later_us += int(self._rng.expovariate(1 / self._work.every_us))
            self._cluster.scheduler.at(later_us, self._join, node)

    def _to(self) -> tuple[NodeId, ...]:
        """Whom the next submission is for; empty, for everybody, in most workloads."""
        work, ids = self._work, self._cluster.ids
        if not isinstance(work, _Open) or not work.some or self._rng.random() >= work.some:
            return work.to
        return tuple(sorted(self._rng.sample(ids, self._rng.randint(1, len(ids)))))

    def _body(self, node: NodeId) -> bytes:
        """Bytes that no other message of the run has, as far as there is room for that."""
        sizes = self._work.sizes
        at = sizes[0] if len(sizes) == 1 else self._rng.choices(sizes, self._weights)[0]
        size = at.low if at.low == at.high else self._rng.randint(at.low, at.high)
        self._made += 1
        return (b"%d.%d|" % (self._made, node)).ljust(size, b".")[:size]

    def _observe(self, event: TraceEvent) -> None:
        """See messages leave the queue or come back, and ask for more once the machine rests."""
        match event:
            case Restarted(node=node) if node in self._pending:
                self._pending[node] = 0
            case Delivered(node=node) if node == event.sender and type(self._work) is ClosedLoop:
                self._gone(node, len(event.digests))
            case Originated() if type(self._work) is not ClosedLoop:
                self._gone(event.owner, len(event.digests))
            case Noted(node=node, what=DeliveredTo.what) if self._work.to:
                told = DeliveredTo.read(event)
                if told is not None and told.sender == node:
                    self._gone(node, len(told.digests))

    def _gone(self, node: NodeId, count: int) -> None:
        """Messages of ``node`` no longer pend; except for Fill, others follow."""
        if node not in self._pending:
            return
        self._pending[node] = max(0, self._pending[node] - count)
        if isinstance(self._work, (ClosedLoop, Saturate)) and node not in self._asked:
            self._asked.add(node)
            self._cluster.scheduler.at(self._cluster.now_us + self._work.think_us, self._ask, node)

    def _ask(self, node: NodeId) -> None:
        self._asked.discard(node)
        if not self._stopped:
            self._top_up(node)


def start(workloads: Iterable[Workload], cluster: Cluster, seed: int | str) -> list[Load]:
    """Begin to send; each workload draws from its own stream."""
    return [
        Load(workload, cluster, Random(f"{seed}/workload/{i}"))
        for i, workload in enumerate(workloads)
    ]
