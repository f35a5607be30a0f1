"""Networks that lose their gateways, against networkx doing the same one deletion at a time."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import numpy as np
import pytest

from ringcast.pipeline.papers import graphs


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def as_nx(graph: graphs.Graph) -> nx.Graph[int]:
    return nx.Graph(graph.tolist())


def test_the_robust_graph_of_figure_5_20() -> None:
    """Sixteen nodes, hops of one and six or four: four gateways each, three hops to anywhere."""
    graph = as_nx(graphs.robust(16, even=6, odd=4))
    assert graph.number_of_edges() == 32
    assert {degree for _, degree in graph.degree} == {4}
    assert set(nx.eccentricity(graph).values()) == {3}


@pytest.mark.parametrize(("hops", "height"), [((14, 8), 4), ((22, 10), 4), ((6, 4), 6)])
def test_robust_graphs_of_fifty(hops: tuple[int, int], height: int) -> None:
    graph = graphs.robust(50, *hops)
    assert len(graph) == 100
    unharmed = np.ones((1, 100), bool)
    assert graphs.tree_heights(graphs.neighbours(graph), unharmed) == [50 * height]


@pytest.mark.parametrize("edges", [None, 95, 90])
def test_random_graphs_are_biconnected_and_keep_to_the_degree(edges: int | None) -> None:
    source = rng()
    for _ in range(20):
        graph = as_nx(graphs.random(source, 50, edges))
        assert nx.is_biconnected(graph)
        assert len(graph) == 50
        assert max(degree for _, degree in graph.degree) <= 4
        if edges:
            assert graph.number_of_edges() == edges
        else:  # nothing can be added
            free = [node for node, degree in graph.degree if degree < 4]
            assert all(graph.has_edge(a, b) for a in free for b in free if a < b)


def test_a_graph_that_cannot_be_drawn_is_an_error_and_no_endless_loop() -> None:
    with pytest.raises(ValueError, match="none of 2000 random graphs"):
        graphs.random(rng(), 50, 50)


@pytest.mark.parametrize("design", ["robust 14 8", "random full", "random 92"])
def test_cuts_and_heights_are_those_that_networkx_finds(design: str) -> None:
    source = rng()
    graph = graphs.drawing(design)(source)
    order = source.random((25, len(graph))).argsort(axis=1)
    deletions, parts = graphs.cuts(graph, order)
    near, gone_at = graphs.neighbours(graph), order.argsort(axis=1)
    heights = [graphs.tree_heights(near, gone_at[deletions > d] >= d) for d in (0, 5, 10)]
    wanted: list[list[int]] = [[], [], []]
    for at, row in enumerate(order.tolist()):
        left = as_nx(graph)
        for gone, edge in enumerate(row):
            if not nx.is_connected(left):
                break
            if gone in (0, 5, 10):
                wanted[gone // 5].append(sum(nx.eccentricity(left).values()))
            left.remove_edge(*graph[edge].tolist())
        assert deletions[at] == gone
        assert parts[at] == min(map(len, nx.connected_components(left)))
    assert [each.tolist() for each in heights] == wanted


def test_a_block_counts_every_order_once() -> None:
    found = list(graphs.failures("random 95", seed=3, orders=450))
    ends: Counter[int] = Counter()
    for tally in found:
        if tally.part:
            ends[tally.deletions] += tally.orders
    assert ends.total() == 450
    whole = {tally.deletions: tally for tally in found if not tally.part}
    for deleted, tally in whole.items():
        assert tally.orders == sum(count for end, count in ends.items() if end > deleted)
        assert bool(tally.heights) == (deleted % 5 == 0 and tally.orders > 0)
    assert whole.keys() == set(range(100))
    assert whole[0].orders == 450


def test_a_block_is_a_function_of_its_design_and_seed() -> None:
    first = list(graphs.failures("random full", 1, 200))
    assert first == list(graphs.failures("random full", 1, 200))
    assert first != list(graphs.failures("random full", 2, 200))


@pytest.mark.parametrize(
    "design", ["", "robust", "robust 14", "random", "random 100", "random many", "ring"]
)
def test_a_design_that_is_none_is_refused(design: str) -> None:
    with pytest.raises(ValueError, match="no design of a network"):
        graphs.drawing(design)
