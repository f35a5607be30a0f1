"""Runs of iRBP in which the ring shrinks to two of five, and the others go on."""

from __future__ import annotations

from random import Random

from ringcast.sim.faults import Heal, NetworkPartition
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import Poisson

MS = 1_000


def parted(seed: int) -> RunSpec:
    """A ring of three; then two of these are alone, and the third is with those outside."""
    rng = Random(f"{seed}/parted")
    a, b, c, d, e = rng.sample(range(1, 6), 5)
    at_us = 100 * MS + rng.randrange(20 * MS)
    later_us = at_us + rng.randrange(60 * MS, 100 * MS)
    return RunSpec(
        protocol="irbp",
        nodes=5,
        seed=seed,
        duration_us=1_500 * MS,
        network=NetworkModel(link=LinkModel(delay=Constant(1 * MS))),
        config={
            "beat_us": 5 * MS,
            "suspect_us": 20 * MS,
            "suspect_max_us": 60 * MS,
            "exclude_us": 300 * MS,
            "exclude_max_us": 300 * MS,
            "dwell_us": 50 * MS,
            "act_us": 120 * MS,
        },
        workload=(Poisson(rate=100),),
        faults=(
            NetworkPartition(at_us, ((a, b, c), (d, e))),
            NetworkPartition(later_us, ((a, b), (c, d, e))),
            Heal(later_us + 600 * MS),
        ),
        core="all",
    )
