"""Networks of rings that lose one gateway after another, as graphs and as running rings.

``graphs`` asks how long a network holds together, and how far it is across. Here the same network
is simulated with its protocol: a ring with processors for each node, a gateway for each edge. After
each failure every processor must come to the topology of all that the graph still joins to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import networkx as nx
import numpy as np
from msgspec.structs import replace

from ringcast.core.ids import NodeId
from ringcast.core.rings import Rings
from ringcast.core.trace import Delivered, Installed, Submit, TraceEvent
from ringcast.pipeline.papers.graphs import Graph, cuts, drawing, neighbours, tree_heights
from ringcast.pipeline.papers.ring_networks import FORMED_US, astray, run_of, sound
from ringcast.sim.faults import NodeCrash
from ringcast.sim.run import run as simulate
from ringcast.sim.workload import Poisson, Sizes


class RingFailures(msgspec.Struct, frozen=True):
    """What a network of rings is like after so many of its gateways have failed."""

    deletions: int
    part: int
    """Rings of the smaller part, if this failure took the network apart; 0 while it is whole."""
    height: float
    """Of the minimum spanning trees of the whole network, mean over roots."""
    astray: int
    """Processors that are not in the topology of all that they can reach."""
    last_ms: float
    """From this failure until the last topology is announced."""
    latency_ms: float
    """Of messages that are sent when that is over: to their last processor, mean."""


class Watched:
    """What is announced and delivered in a run."""

    def __init__(self) -> None:
        self.installed: list[Installed] = []
        self._sent: dict[tuple[NodeId, int], int] = {}
        self._last: dict[tuple[NodeId, int], int] = {}

    def __call__(self, event: TraceEvent) -> None:
        """Keep it."""
        match event:
            case Installed():
                self.installed.append(event)
            case Submit():
                self._sent[event.node, event.first] = event.t_us
            case Delivered():
                for number in range(event.first, event.first + len(event.digests)):
                    self._last[event.sender, number] = event.t_us

    def latency_ms(self, from_us: int, to_us: int) -> float:
        """Of what was sent between these times."""
        sent = {which: at for which, at in self._sent.items() if from_us <= at < to_us}
        took = [self._last[which] - at for which, at in sent.items() if which in self._last]
        return sum(took) / len(took) / 1e3 if took else float("nan")


def network_of(graph: Graph) -> Rings:
    """A ring with one processor for each node, and a gateway for each edge."""
    count = int(graph.max()) + 1
    rings = [[node] for node in range(1, count + 1)]
    for gateway, ends in enumerate(graph.tolist(), count + 1):
        for end in ends:
            rings[end].append(gateway)
    return tuple(map(tuple, rings))


def ring_failures(
    protocol: str,
    design: str,
    rings: int,
    rate: float,
    every_us: int,
    calm_us: int,
    config: dict[str, Any],
    seed: int,
) -> Iterator[RingFailures]:
    """A network of a design loses a gateway every ``every_us``, until it is in two parts.

    Everybody but gateways sends ``rate`` messages a second; latencies are those of the messages
    that are sent ``calm_us`` or more after a failure.
    """
    rng = np.random.default_rng(seed)
    graph = drawing(design, rings)(rng)
    order = rng.permutation(len(graph))
    deletions, parts = cuts(graph, order[None, :])
    joined, most = network_of(graph), int(deletions[0])
    gone = [rings + 1 + int(edge) for edge in order[:most]]
    times = [FORMED_US + every_us * at for at in range(most + 2)]
    load = Poisson(rate=rate, senders=tuple(range(1, rings + 1)), sizes=(Sizes(100, 100),))
    spec = run_of(protocol, joined, (load,), config, 0, times[-1], seed)
    faults = tuple(NodeCrash(at, node) for at, node in zip(times[1:], gone, strict=False))
    seen = Watched()
    sound(simulate(replace(spec, faults=faults, measure_from_us=None), [seen]))
    near = neighbours(graph)
    for failed, (begin, end) in enumerate(pairwise(times)):
        there = np.ones((1, len(graph)), np.bool_)
        there[0, order[:failed]] = False
        whole = failed < most
        told = [event.t_us for event in seen.installed if failed and begin <= event.t_us < end]
        yield RingFailures(
            deletions=failed,
            part=0 if whole else int(parts[0]),
            height=float(tree_heights(near, there)[0]) / rings if whole else 0.0,
            astray=sum(
                astray((e for e in seen.installed if e.t_us < end), members)
                for members in reached(joined, graph[there[0]], set(gone[:failed]))
            ),
            last_ms=(told[-1] - begin) / 1e3 if told else 0.0,
            latency_ms=seen.latency_ms(begin + calm_us, end - calm_us // 8),
        )


def reached(rings: Rings, graph: Graph, gone: set[NodeId]) -> list[set[NodeId]]:
    """The processors of each part of a network, without those that are gone."""
    left: nx.Graph[int] = nx.Graph(graph.tolist())
    left.add_nodes_from(range(len(rings)))
    return [{n for at in part for n in rings[at]} - gone for part in nx.connected_components(left)]
