"""D12-graph: the orders of all processors together have no cycle.

The independent half of D12 (Th 4.17): it compares what processors were told with each other and
not with the order of identifiers. Made at the end, from a compact record of identifiers; a trace
with more than ``LIMIT`` of them is left unknown.
"""

from __future__ import annotations

from itertools import pairwise

from ringcast.checks.evs_order import NOTHING
from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Delivered, Ended, Installed

LIMIT = 500_000

Id = tuple[ViewId, int, ViewId]


class EvsGraph(Property):
    """D12, as a graph."""

    tag = "D12-graph"
    title = "EVS order is acyclic"
    reads = Reads.ORIGINS
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._told: dict[NodeId, list[Id]] = {}
        self._size = 0

    def on_delivered(self, event: Delivered) -> None:
        """A message was told."""
        self._add(event.node, (event.ring, event.seq, NOTHING))

    def on_installed(self, event: Installed) -> None:
        """A configuration was told."""
        third = event.view if event.transitional else event.conf_id or NOTHING
        self._add(event.node, (event.ring, event.seq, third))

    def _add(self, node: NodeId, identifier: Id) -> None:
        if self._size < LIMIT:
            self._size += 1
            self._told.setdefault(node, []).append(identifier)
        elif not self.undecided:
            self.undecided = True
            self._told.clear()

    def on_ended(self, event: Ended) -> None:
        """Take away what nothing comes before, until nothing or only cycles are left."""
        after: dict[Id, dict[Id, NodeId]] = {}
        before: dict[Id, int] = {}
        for node in sorted(self._told):
            told = self._told[node]
            for identifier in told:
                before.setdefault(identifier, 0)
            for one, next_one in pairwise(told):
                following = after.setdefault(one, {})
                if next_one not in following:
                    following[next_one] = node
                    before[next_one] += 1
        free = [identifier for identifier, count in before.items() if count == 0]
        while free:
            one = free.pop()
            del before[one]
            for next_one in after.get(one, {}):
                before[next_one] -= 1
                if before[next_one] == 0:
                    free.append(next_one)
        if before:
            self._report(after, event.t_us)

    def _report(self, after: dict[Id, dict[Id, NodeId]], t_us: int) -> None:
        cycle = _cycle(after)
        steps = [
            (one, after[one][next_one], next_one)
            for one, next_one in zip(cycle, (*cycle[1:], cycle[0]), strict=True)
        ]
        text = "; ".join(f"{_text(a)} before {_text(b)} at {node}" for a, node, b in steps[:6])
        self.violate(
            f"The processors' orders contradict each other: {text}.",
            tuple(sorted({node for _, node, _ in steps})),
            tuple(_text(one) for one in cycle[:6]),
            t_us,
        )


def _cycle(after: dict[Id, dict[Id, NodeId]]) -> list[Id]:
    """Some cycle of a graph that has one: walk, and back up from dead ends."""
    done: set[Id] = set()
    for start in after:
        path: list[Id] = []
        on_path: dict[Id, int] = {}
        stack = [(start, False)]
        while stack:
            one, leave = stack.pop()
            if leave:
                done.add(one)
                del on_path[path.pop()]
            elif one in on_path:
                return path[on_path[one] :]
            elif one not in done:
                on_path[one] = len(path)
                path.append(one)
                stack.append((one, True))
                stack.extend((next_one, False) for next_one in after.get(one, {}))
    raise AssertionError("the graph has no cycle")


def _text(identifier: Id) -> str:
    ring, seq, third = identifier
    return f"{ring}:{seq}.0" if third == NOTHING and seq else f"conf({ring}, {seq}, {third})"
