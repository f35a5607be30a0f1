"""Running networks of rings that lose gateways, beside their graphs."""

from __future__ import annotations

from math import isfinite

import numpy as np
import pytest

pytest.importorskip("pyspark")

from ringcast.pipeline.papers.graphs import drawing
from ringcast.pipeline.papers.ring_failures import network_of, reached, ring_failures

SQUARE = np.array([(0, 1), (0, 3), (1, 2), (2, 3)], np.uint8)


def test_a_node_is_a_ring_and_an_edge_a_gateway() -> None:
    assert network_of(SQUARE) == ((1, 5, 6), (2, 5, 7), (3, 7, 8), (4, 6, 8))


def test_what_is_left_of_a_graph_says_who_can_reach_whom() -> None:
    rings = network_of(SQUARE)
    assert reached(rings, SQUARE, set()) == [set(range(1, 9))]
    assert reached(rings, SQUARE[[0, 2]], {6, 8}) == [{1, 2, 3, 5, 7}, {4}]


def test_designs_of_other_sizes() -> None:
    assert len(drawing("robust 6 4", 16)(np.random.default_rng(0))) == 32
    assert len(drawing("random 7", 6)(np.random.default_rng(0))) == 7


@pytest.mark.parametrize("every_us", [1_000_000, 400_000])
def test_running_rings_part_when_their_graph_does(every_us: int) -> None:
    """If there is time: a ring's silence is noticed after 660 ms."""
    rows = list(ring_failures("totem-multi", "random 7", 6, 20, every_us, 750_000, {}, 0))
    assert [row.deletions for row in rows] == list(range(len(rows)))
    assert [row.part > 0 for row in rows] == [False] * (len(rows) - 1) + [True]
    assert not rows[0].astray and isfinite(rows[0].height)
    late = sum(row.astray for row in rows)
    assert bool(late) == (every_us == 400_000)
    if not late:
        assert all(600 < row.last_ms < 1000 and row.latency_ms > 0 for row in rows[1:])
