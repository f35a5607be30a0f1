"""The stepping stones to RBP: all get everything, over links that lose frames."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "blocks"))

from stones import FIGURE_2, FIGURE_5, FIGURE_12

from ringcast.core.registry import Sheet
from ringcast.protocols.rbp.stones import MovingSequencer, Settings, Stone, Token
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import Loss, inflict
from ringcast.sim.model import LinkModel, NetworkModel, Uniform


def ring(sheet: Sheet, n: int, seed: int) -> Cluster:
    config = Settings(members=tuple(range(1, n + 1)))
    model = NetworkModel(link=LinkModel(delay=Uniform(50, 300)))
    cluster = Cluster(sheet, config, config.members, model, seed)
    for node in cluster.ids:
        cluster.start(node)
    return cluster


def delivered(cluster: Cluster) -> list[list[tuple[int, int]]]:
    machines = [cluster.machine(node) for node in cluster.ids]
    return [machine.delivered for machine in machines if isinstance(machine, Stone)]


@pytest.mark.parametrize("sheet", [FIGURE_2, FIGURE_5, FIGURE_12], ids=lambda sheet: sheet.name)
@pytest.mark.parametrize("seed", range(6))
def test_s2_all_deliver_everything_once(sheet: Sheet, seed: int) -> None:
    """S1 to S11, with a third of all frames lost."""
    rng = Random(seed)
    cluster = ring(sheet, rng.choice((2, 3, 4, 5)), seed)
    inflict(Loss(0, 0.3, 0.3), cluster)
    for number in range(20):
        cluster.submit(rng.choice(cluster.ids), (b"%d" % number,))
        cluster.run_for(rng.randrange(3_000))
    cluster.calm()
    cluster.run_for(500_000)
    found = delivered(cluster)
    assert all(sorted(each) == sorted(set(found[0])) for each in found)
    assert len(found[0]) == 20
    if sheet is FIGURE_12:
        assert all(each == found[0] for each in found), "S11: one order"


def test_s4_the_history_forgets_what_has_been_everywhere() -> None:
    cluster = ring(FIGURE_2, 3, 1)
    cluster.submit(1, (b"a",))
    cluster.run_for(60_000)
    holders = [cluster.machine(node) for node in cluster.ids]
    tokens = [m.token for m in holders if isinstance(m, Stone) and m.token is not None]
    assert all(isinstance(token, Token) and not token.history for token in tokens)


def test_s11_a_body_that_comes_before_its_number_waits_for_it() -> None:
    """G5: delivery needs both, whichever is first."""
    cluster = ring(FIGURE_12, 3, 1)
    cluster.submit(2, (b"a",))
    cluster.run_for(400)
    first = cluster.machine(1)
    assert isinstance(first, MovingSequencer)
    assert list(first.bodies) == [(2, 1)] and first.delivered == []
    cluster.run_for(10_000)
    assert delivered(cluster) == [[(2, 1)]] * 3
