"""Availability: what applications got of a group in which things go wrong, whatever the protocol.

A membership that throws a member out no longer waits for it, and a meter that asks who of a
configuration has a message would not see what that costs. So everything is counted here for all
who stay up, members or not: how long a sender waits for its own message, and who misses it.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

import msgspec

from ringcast.core.ids import NodeId
from ringcast.core.trace import Delivered, Faulted, Installed, Submit, TraceEvent
from ringcast.pipeline.sweep.study import StudyError
from ringcast.sim import workload
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import schedule
from ringcast.sim.spec import RunSpec, prepare

Message = tuple[NodeId, int]
"""Its sender and its number."""

REST_US = 1_000_000
"""After the last submission, for what is under way; what has not come by then never does."""


class Availability(msgspec.Struct, frozen=True):
    """Of the messages of those who stay up, submitted from ``measure_from_us`` on."""

    messages: int
    """How many there were."""
    mean_ms: float
    """From submission until the sender delivers it, which shows its place in the order …"""
    late_ms: float
    """… and how long that takes for one in a hundred."""
    messages_per_s: float
    """Those that most of the members that stay up deliver, for each second that is measured."""
    missed: float
    """Of 100 deliveries that those who stay up should make of them, how many they never make."""
    views_per_s: float
    """Regular configurations that a processor announced, on average."""
    mistakes_per_s: float
    """How often somebody stood still, or a timer ran out early."""


class Ledger:
    """Which messages are owed, since when, and who has delivered them."""

    def __init__(self, from_us: int, until_us: int) -> None:
        self._from_us, self._until_us = from_us, until_us
        self.submitted_us: dict[Message, int] = {}
        self.waited_us: dict[Message, int] = {}
        self.receivers: dict[Message, set[NodeId]] = {}
        self.views = 0
        self.mistakes = 0

    def __call__(self, event: TraceEvent) -> None:
        """Take note of one event."""
        inside = self._from_us <= getattr(event, "t_us", -1) < self._until_us
        match event:
            case Submit() if inside:
                for number in range(event.first, event.first + len(event.sizes)):
                    self.submitted_us[event.node, number] = event.t_us
                    self.receivers[event.node, number] = set()
            case Delivered(node=node, sender=sender):
                for number in range(event.first, event.first + len(event.digests)):
                    if (at_us := self.submitted_us.get((sender, number))) is not None:
                        self.receivers[sender, number].add(node)
                        if node == sender:
                            self.waited_us[sender, number] = event.t_us - at_us
            case Installed(transitional=False) if inside:
                self.views += 1
            case Faulted(kind="expire" | "pause") if inside:
                self.mistakes += 1
            case _:
                pass


def run_to_rest(spec: RunSpec, observer: Callable[[TraceEvent], None]) -> Cluster:
    """Run ``spec``, then stop its workload, heal its network and give what is under way time."""
    setup = prepare(spec)
    cluster = Cluster(setup.sheet, setup.config, spec.ids, setup.model, spec.seed, [observer])
    schedule(spec.faults, cluster)
    cluster.start()
    loads = workload.start(spec.workload, cluster, spec.seed)
    cluster.run_until(spec.duration_us)
    for load in loads:
        load.stop()
    cluster.calm()
    cluster.run_for(REST_US)
    return cluster


def service(spec: RunSpec) -> Availability:
    """Measure one run; StudyError if nothing was submitted."""
    from_us = spec.measure_from_us or 0
    ledger = Ledger(from_us, spec.duration_us)
    cluster = run_to_rest(spec, ledger)
    up = set(cluster.up())
    owed = [message for message in ledger.submitted_us if message[0] in up]
    if not owed:
        raise StudyError("nobody who stays up submitted anything: there is no service to speak of")
    end_us, span_us = cluster.now_us, spec.duration_us - from_us
    waited_us = sorted(
        ledger.waited_us.get(message, end_us - ledger.submitted_us[message]) for message in owed
    )
    reached = [len(up & ledger.receivers[message]) for message in owed]
    return Availability(
        messages=len(owed),
        mean_ms=fmean(waited_us) / 1e3,
        late_ms=waited_us[(99 * len(waited_us)) // 100] / 1e3,
        messages_per_s=sum(2 * count > len(up) for count in reached) * 1e6 / span_us,
        missed=100 * (1 - fmean(reached) / len(up)),
        views_per_s=ledger.views / spec.nodes * 1e6 / span_us,
        mistakes_per_s=ledger.mistakes * 1e6 / span_us,
    )
