"""Storms: processors that keep each other busy without end while virtual time hardly passes.

Without an end to its first microsecond, a run would never get to the bound that its progress is
held to. So there is a limit to how much may happen in a moment, far above what a healthy group
does: over 300 runs of the swarm the busiest millisecond had 131 events a processor, and with full
queues on a network without a bandwidth and with a delay of 1 us it had 2,544.
"""

from __future__ import annotations

from ringcast.checks import Violation
from ringcast.core.ids import NodeId
from ringcast.sim.cluster import Cluster

EVENTS = 10_000
"""More events than this, for each processor of the group, ..."""
WITHIN_US = 1_000
"""... in less time than this are a storm."""


class StormWatch:
    """Looks now and then whether time still passes, and halts the cluster if it does not."""

    def __init__(self, cluster: Cluster) -> None:
        self.violations: list[Violation] = []
        self._cluster = cluster
        self._events = EVENTS * len(cluster.ids)
        self._since_us = 0
        self._inputs = self._count()
        cluster.scheduler.every(self._events, self._look)

    def _look(self) -> None:
        cluster = self._cluster
        earlier, self._inputs = self._inputs, self._count()
        since_us, self._since_us = self._since_us, cluster.now_us
        if cluster.now_us - since_us >= WITHIN_US:
            return
        took = {node: times - earlier[node] for node, times in self._inputs.items()}
        busy = tuple(node for node in took if 2 * took[node] >= max(took.values()))
        each = ", ".join(f"p{node} handled {took[node]} inputs" for node in busy)
        explanation = (
            f"event storm at {cluster.now_us} us: {self._events} events since {since_us} us; {each}"
        )
        self.violations.append(Violation("progress", explanation, busy, (), cluster.now_us))
        cluster.scheduler.halted = True

    def _count(self) -> dict[NodeId, int]:
        """Inputs handled so far, by processor, over all its incarnations."""
        counted = {}
        for node, each in self._cluster.nodes.items():
            present = each.machine.visits if each.machine is not None else {}
            counted[node] = sum(each.visits.values()) + sum(present.values())
        return counted
