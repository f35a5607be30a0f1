"""Outages: how long a group orders nothing, after a token was lost or a member crashed.

Any specification with such a fault will do, for ``outage`` of any protocol that has turns. Its load
decides what there is to order, its fault plan what is lost and when.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean

import msgspec

from ringcast.core.effects import Effect, Send
from ringcast.core.ids import NodeId
from ringcast.core.trace import Delivered, Installed, Originated, TraceEvent
from ringcast.pipeline.sweep.study import StudyError
from ringcast.sim import workload
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import schedule
from ringcast.sim.scenario.log import tapped
from ringcast.sim.spec import RunSpec, prepare


class Outage(msgspec.Struct, frozen=True):
    """How long it took, in milliseconds from the moment when something was lost."""

    first_ms: float
    """Until a message gets a place in the order again, in the configuration that lasts."""
    turn_ms: float
    """Until a processor has its turn again, averaged over those that are up."""
    views: int
    """Configurations announced meanwhile, once for each processor."""


class Witness:
    """Sees turns and events, and remembers those since the loss."""

    def __init__(self, turn: tuple[type, ...]) -> None:
        self._turn = turn
        self.ordered: list[Originated] = []
        self.views = 0
        self.turns_us: defaultdict[NodeId, list[int]] = defaultdict(list)
        self._passed: dict[NodeId, object] = {}

    def forget(self) -> None:
        """What was seen so far was before the loss."""
        self.ordered.clear()
        self.turns_us.clear()
        self.views = 0

    def observe(self, event: TraceEvent) -> None:
        """An event of the trace."""
        if isinstance(event, Originated):
            self.ordered.append(event)
        elif isinstance(event, Installed):
            self.views += 1

    def see(self, node: NodeId, effects: list[Effect], now_us: int) -> list[Effect]:
        """A processor passes its turn on; the same message sent again is no other turn."""
        for effect in effects:
            if type(effect) is Send and type(effect.message) in self._turn:
                if self._passed.get(node) is not effect.message:
                    self.turns_us[node].append(now_us)
                self._passed[node] = effect.message
        return effects


def outage(spec: RunSpec) -> Outage:
    """Carry ``spec`` out and say what its first loss cost; StudyError if nothing was lost."""
    setup = prepare(spec)
    sheet = setup.sheet
    if not sheet.turn:
        raise StudyError(f"{spec.protocol} has no turns, so that none can be waited for")
    witness = Witness(sheet.turn)
    sheet = msgspec.structs.replace(sheet, make=tapped(sheet.make, witness))
    parts = (sheet, setup.config, spec.ids, setup.model, spec.seed)
    cluster = Cluster(*parts, [witness.observe])
    schedule(spec.faults, cluster)
    cluster.start()
    workload.start(spec.workload, cluster, spec.seed)
    while len(cluster.up()) == spec.nodes and not cluster.counts.lost["tampering"]:
        if cluster.now_us >= spec.duration_us:
            raise StudyError("no frame was tampered with and nobody crashed: there is no outage")
        cluster.step()
    began_us = cluster.now_us
    witness.forget()
    cluster.run_until(spec.duration_us)
    lasting = witness.ordered[-1].ring
    first_us = min(event.t_us for event in witness.ordered if event.ring == lasting)
    turns = [min(t for t in witness.turns_us[n] if t >= first_us) for n in cluster.up()]
    return Outage(
        first_ms=(first_us - began_us) / 1e3,
        turn_ms=(fmean(turns) - began_us) / 1e3,
        views=witness.views,
    )


class Silence(msgspec.Struct, frozen=True):
    """How long processors waited for messages after somebody was lost to them."""

    longest_ms: float
    """Of those that stay up, the longest time without a delivery."""
    views: int
    """Configurations announced, once for each processor."""
    members: int
    """Before the fault."""


def silence(spec: RunSpec) -> Silence:
    """Carry ``spec`` out and say what its first fault cost, a crash or somebody that leaves;
    StudyError if all are up in the end."""
    setup = prepare(spec)
    began_us = min((fault.at_us for fault in spec.faults), default=spec.duration_us)
    last_us: dict[NodeId, int] = {}
    longest_us: dict[NodeId, int] = {}
    views = 0

    def observe(event: TraceEvent) -> None:
        nonlocal views
        if isinstance(event, Installed):
            views += event.t_us >= began_us
        elif isinstance(event, Delivered):
            node = event.node
            if event.t_us >= began_us and node in last_us:
                longest_us[node] = max(longest_us.get(node, 0), event.t_us - last_us[node])
            last_us[node] = event.t_us

    cluster = Cluster(setup.sheet, setup.config, spec.ids, setup.model, spec.seed, [observe])
    schedule(spec.faults, cluster)
    cluster.start()
    workload.start(spec.workload, cluster, spec.seed)
    cluster.run_until(spec.duration_us)
    if len(cluster.up()) == spec.nodes:
        raise StudyError("nobody crashed or left: there is no silence to speak of")
    waited_us = [max(longest_us.get(n, 0), spec.duration_us - last_us[n]) for n in cluster.up()]
    return Silence(max(waited_us) / 1e3, views, spec.nodes)


class RoleSilence(msgspec.Struct, frozen=True):
    """What the crash of a member in one role cost the others."""

    role: str
    """``last``: it ended its turn just then; ``next``: its turn comes next; ``another``: neither,
    if there are so many."""
    ordering_ms: float
    """The longest time without a turn that ends."""
    delivery_ms: float
    """Of those that stay up, the longest time without a delivery."""


class RoundWatch:
    """Who ended a turn last, and who followed whom."""

    def __init__(self, turn: tuple[type, ...]) -> None:
        self._turn = turn
        self.last: NodeId = 0
        self.after: dict[NodeId, NodeId] = {}
        self.turns_us: list[int] = []

    def see(self, node: NodeId, effects: list[Effect], now_us: int) -> list[Effect]:
        """A processor ends its turn, by a frame to one or to all; a repeat of it is no other."""
        if any(type(getattr(effect, "message", None)) in self._turn for effect in effects):
            if self.last not in (0, node):
                self.after[self.last] = node
                self.turns_us.append(now_us)
            self.last = node
        return effects


def roles(spec: RunSpec) -> Iterator[RoleSilence]:
    """Carry ``spec`` out once for each role, with a crash at ``measure_from_us``; nothing of a
    protocol without turns."""
    if prepare(spec).sheet.turn:
        for role in ("last", "next", "another")[: spec.nodes]:
            yield crash_of(role, spec)


def crash_of(role: str, spec: RunSpec) -> RoleSilence:
    """Crash the member in that role, and see how long the others wait."""
    setup = prepare(spec)
    rounds = RoundWatch(setup.sheet.turn)
    sheet = msgspec.structs.replace(setup.sheet, make=tapped(setup.sheet.make, rounds))
    delivered_us: dict[NodeId, list[int]] = {node: [] for node in spec.ids}

    def observe(event: TraceEvent) -> None:
        if isinstance(event, Delivered):
            delivered_us[event.node].append(event.t_us)

    cluster = Cluster(sheet, setup.config, spec.ids, setup.model, spec.seed, [observe])
    cluster.start()
    workload.start(spec.workload, cluster, spec.seed)
    at_us = spec.measure_from_us or 0
    cluster.run_until(at_us)
    turns = len(rounds.turns_us)
    while len(rounds.turns_us) == turns and cluster.now_us < spec.duration_us:
        cluster.step()
    following = rounds.after[rounds.last]
    rest = [node for node in spec.ids if node not in (rounds.last, following)]
    cluster.crash({"last": rounds.last, "next": following, "another": rest[-1]}[role])
    crash_us = cluster.now_us
    cluster.run_until(spec.duration_us)
    waits = [longest(delivered_us[node], crash_us, spec.duration_us) for node in cluster.up()]
    ordering = longest(rounds.turns_us, crash_us, spec.duration_us)
    return RoleSilence(role, ordering / 1e3, max(waits) / 1e3)


def longest(times_us: list[int], from_us: int, to_us: int) -> int:
    """The longest time without any of these, that ends after ``from_us``."""
    pairs = pairwise([*times_us, to_us])
    return max(after - before for before, after in pairs if after >= from_us)
