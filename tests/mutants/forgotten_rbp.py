"""Runs of RBP that aim at what few members hold."""

from __future__ import annotations

from random import Random

from ringcast.sim.faults import Heal, NetworkPartition, NodeCrash, Restart
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.spec import RunSpec
from ringcast.sim.swarm import draw
from ringcast.sim.workload import Poisson

MS = 1_000


def bare(seed: int) -> RunSpec:
    """Anything, at a level that delivers what one member holds: a change must wait for all."""
    return draw(seed, "rbp", config={"resiliency": "number", "tolerated": 0})


def forgotten(seed: int) -> RunSpec:
    """Members 1 and 2 deliver what 3 lacks; 2 forgets it and is left with 3; then 1 is back."""
    rng = Random(f"{seed}/forgotten")
    at_us = 700 * MS + rng.randrange(20 * MS)
    return RunSpec(
        protocol="rbp",
        nodes=3,
        seed=seed,
        duration_us=2_500 * MS,
        network=NetworkModel(link=LinkModel(delay=Constant(1 * MS))),
        config={"resiliency": "majority", "idle_us": 0},
        workload=(Poisson(rate=500),),
        faults=(
            NetworkPartition(at_us, ((1, 2), (3,))),
            NodeCrash(at_us + 20 * MS, 2),
            NetworkPartition(at_us + 21 * MS, ((1,), (2, 3))),
            Restart(at_us + 22 * MS, 2),
            Heal(at_us + 1_200 * MS),
        ),
    )
