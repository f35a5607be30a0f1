"""Swarms on networks of rings: some seeds here, thousands by hand (docs/simulator.md)."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from ringcast.core.rings import SHAPES, shaped
from ringcast.sim.faults import NetworkPartition, NodeCrash, Restart
from ringcast.sim.rings import PORT, attached, connected, in_domain
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec, prepare
from ringcast.sim.swarm import draw
from ringcast.sim.workload import Poisson


@pytest.mark.parametrize("seed", range(4))
def test_a_swarm_finds_nothing(seed: int) -> None:
    assert not run(draw(seed, "totem-multi")).violations


def test_a_run_can_be_repeated_from_its_number_of_processors() -> None:
    spec = draw(3, "totem-multi")
    assert draw(3, "totem-multi", spec.nodes) == spec
    assert run(spec).digest == run(spec).digest


@pytest.mark.parametrize("at_us", range(100_000, 1_000_000, 300_000))
@pytest.mark.parametrize("gateway", [5, 6])
def test_either_of_two_gateways_may_be_killed_at_any_moment(gateway: int, at_us: int) -> None:
    """Nothing is lost, nothing is delivered twice: validity of the rest is P-9, P-11, P-13."""
    spec = RunSpec(
        protocol="totem-multi",
        nodes=6,
        rings=shaped("chain", 2, 2, Random(0), twice=True),
        seed=at_us,
        duration_us=1_200_000,
        network="lossy",
        workload=(Poisson(rate=60, safe=0.5),),
        faults=(NodeCrash(at_us, gateway),),
        core=tuple(node for node in range(1, 7) if node != gateway),
    )
    assert not run(spec).violations


def test_rings_are_placed_and_joined() -> None:
    rings = shaped("chain", 3, 1, Random(0))
    assert rings == ((1, 4), (2, 4, 5), (3, 5))
    assert attached(rings)[4] == ((0, 4), (1, 4 + PORT))
    assert in_domain(rings, 1, (2, 4)) == (2, 4 + PORT)
    assert connected(rings, (1, 2, 4)) and not connected(rings, (1, 2))
    for shape in SHAPES:
        found = shaped(shape, 4, 2, Random(1))
        assert connected(found, {node for ring in found for node in ring})


def test_what_does_not_fit_a_network_of_rings_is_refused() -> None:
    rings = ((1, 3), (2, 3))
    spec = RunSpec(protocol="totem-multi", nodes=3, rings=rings)
    prepare(spec)
    faults = (NetworkPartition(5, ((2,), (3 + PORT,)), 1), Restart(6, 3))
    prepare(msgspec.structs.replace(spec, faults=faults))
    for wrong, why in (
        (msgspec.structs.replace(spec, protocol="totem"), "one processor is in 2 of them"),
        (msgspec.structs.replace(spec, nodes=4), "each somewhere"),
        (msgspec.structs.replace(spec, faults=(NodeCrash(5, 9),)), "no such processors"),
    ):
        with pytest.raises(ValueError, match=why):
            prepare(wrong)
