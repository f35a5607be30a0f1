"""Networks of rings as graphs: how long do they hold together while gateways fail?

The question is that of Agarwal 1994, section 5.4.

A node is a local network, an edge a gateway between two. Gateways fail in a random order, one at a
time; we ask after how many of them the network comes apart, how many nodes are then cut off, and
how far it is across the network as long as it is whole. All orders of a graph are followed at the
same time, an array with a row for each, and everything that is summed is an integer: the answer is
the same however the work is divided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeAlias
from zlib import crc32

import msgspec
import networkx as nx
import numpy as np
from numpy.typing import NDArray

from ringcast.pipeline.sweep.study import StudyError

NODES = 50
DEGREE = 4
"""The networks of the paper: 50 nodes, of at most four gateways each."""

TOGETHER = 200
"""Orders followed at the same time; their arrays fit into a processor's cache."""

MOST_DRAWS = 2_000
"""Of random graphs of 95 edges every second is biconnected, of 85 one in fifty."""

HEIGHTS_EVERY = 5
"""Heights are looked at after so many further deletions; they cost more than all the rest."""

Graph: TypeAlias = NDArray[np.uint8]
"""A row for each edge: the two nodes it joins."""


class FailureTally(msgspec.Struct, frozen=True):
    """How many orders had come to the same after so many deletions."""

    deletions: int
    part: int
    """Nodes of the smaller part, if this deletion took the network apart; 0 while it is whole."""
    orders: int
    heights: int = 0
    """Of the minimum spanning trees of whole networks, all roots and orders summed; after every
    fifth deletion, else 0."""


def robust(nodes: int, even: int, odd: int) -> Graph:
    """Every node is joined to the next, and to that ``even`` or ``odd`` further, by its number."""
    hops = ((i, (i + hop) % nodes) for i in range(nodes) for hop in (1, odd if i % 2 else even))
    return _graph(nx.Graph(hops))


def random(rng: np.random.Generator, nodes: int, edges: int | None = None) -> Graph:
    """Random edges one by one, up to ``edges`` or as many as fit, none that would give a node a
    fifth; what is not biconnected is drawn again."""
    pairs = np.stack(np.triu_indices(nodes, 1), axis=1)
    for _ in range(MOST_DRAWS):
        degree = [0] * nodes
        drawn: list[tuple[int, int]] = []
        for a, b in rng.permutation(pairs).tolist():
            if len(drawn) == edges:
                break
            if degree[a] < DEGREE and degree[b] < DEGREE:
                degree[a] += 1
                degree[b] += 1
                drawn.append((a, b))
        graph = nx.Graph(drawn)
        if edges in (None, len(drawn)) and len(graph) == nodes and nx.is_biconnected(graph):
            return _graph(graph)
    raise StudyError(f"none of {MOST_DRAWS} random graphs of {nodes} nodes and {edges} edges fits")


def _graph(graph: nx.Graph[int]) -> Graph:
    return np.array(sorted(map(sorted, graph.edges)), np.uint8)


def drawing(design: str, nodes: int = NODES) -> Callable[[np.random.Generator], Graph]:
    """What draws the graphs of a design: ``robust 14 8`` (its hops), ``random 95`` (its edges) or
    ``random full`` (as many edges as fit)."""
    match design.split():
        case ["robust", even, odd] if even.isdecimal() and odd.isdecimal():
            graph = robust(nodes, int(even), int(odd))
            return lambda rng: graph
        case ["random", "full"]:
            return lambda rng: random(rng, nodes)
        case ["random", edges] if edges.isdecimal() and nodes <= int(edges) < nodes * DEGREE // 2:
            return lambda rng: random(rng, nodes, int(edges))
    raise StudyError(f"no design of a network: {design!r}; try robust 14 8 or random 95")


def failures(design: str, seed: int, orders: int) -> Iterator[FailureTally]:
    """One block of ``orders`` orders of failure, with a graph of the design for each 200.

    Its random numbers depend on the design and the block's seed alone.
    """
    draw = drawing(design)
    sequence = np.random.SeedSequence(seed, spawn_key=(crc32(design.encode()),))
    rng = np.random.default_rng(sequence)
    ends: Counter[tuple[int, int]] = Counter()
    whole: Counter[int] = Counter()
    heights: Counter[int] = Counter()
    for begin in range(0, orders, TOGETHER):
        graph = draw(rng)
        shape = (min(TOGETHER, orders - begin), len(graph))
        order = rng.random(shape).argsort(axis=1)
        near, gone_at = neighbours(graph), order.argsort(axis=1)
        deletions, parts = cuts(graph, order)
        ends.update(zip(deletions.tolist(), parts.tolist(), strict=True))
        for deleted in range(deletions.max()):
            left = deletions > deleted
            whole[deleted] += int(left.sum())
            if deleted % HEIGHTS_EVERY == 0:
                heights[deleted] += int(tree_heights(near, gone_at[left] >= deleted).sum())
    for deleted in range(NODES * DEGREE // 2):  # of every block, so that blocks can be averaged
        yield FailureTally(deleted, 0, whole[deleted], heights[deleted])
    for (deleted, part), count in sorted(ends.items()):
        yield FailureTally(deleted, part, count)


def cuts(graph: Graph, order: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each order in which the edges go: after how many the graph is in two, and the number of
    nodes of the smaller part.

    The edges are put back in reverse. The one that makes the graph whole is the one that cut it.
    """
    runs, nodes = len(order), int(graph.max()) + 1
    row = np.arange(runs)
    label = np.tile(np.arange(nodes, dtype=np.uint8), (runs, 1))
    pieces = np.full(runs, nodes)
    deletions, parts = np.zeros(runs, np.int64), np.zeros(runs, np.int64)
    for at in reversed(range(len(graph))):
        ends = graph[order[:, at]]
        one, other = label[row, ends[:, 0]], label[row, ends[:, 1]]
        joined = label == other[:, None]
        pieces -= one != other
        last = (pieces == 1) & (deletions == 0)
        deletions[last] = at + 1
        parts[last] = joined[last].sum(axis=1)
        if deletions.all():
            break
        label = np.where(joined, one[:, None], label)
    return deletions, np.minimum(parts, nodes - parts)


def neighbours(graph: Graph) -> NDArray[np.int64]:
    """For each node its neighbours and the edges to them; itself, by any edge, to fill up."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(int(graph.max()) + 1)]
    for edge, (a, b) in enumerate(graph.tolist()):
        found[a].append((b, edge))
        found[b].append((a, edge))
    most = max(map(len, found))
    return np.array([each + [(i, 0)] * (most - len(each)) for i, each in enumerate(found)])


def tree_heights(near: NDArray[np.int64], there: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each row of ``there``, the edges that are left of a graph that is whole: the heights of
    the minimum spanning trees of all roots, summed.

    Each node has a ball, a bit for each node reached, that grows by what its neighbours reach.
    """
    nodes = len(near)
    neighbour, edge = near[:, :, 0], near[:, :, 1]
    bits = np.where(there, np.uint64(2**64 - 1), np.uint64(0))[:, edge]
    ball = np.tile(np.uint64(1) << np.arange(nodes, dtype=np.uint64), (len(there), 1))
    everyone = np.uint64(2**nodes - 1)
    heights = np.zeros(len(there), np.int64)
    while (short := ball != everyone).any():
        heights += short.sum(axis=1)
        ball |= np.bitwise_or.reduce(ball[:, neighbour] & bits, axis=2)
    return heights
