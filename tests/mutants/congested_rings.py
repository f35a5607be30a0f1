"""Runs of multiple-ring with short queues and much to send: two rings, two gateways."""

from __future__ import annotations

from random import Random

from joined_rings import MS, SHORT_TIMES

from ringcast.core.rings import shaped
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import Poisson


def congested(seed: int) -> RunSpec:
    """Nobody fails; processors are congested again and again."""
    rings = shaped("chain", 2, 1, Random(0), twice=True)
    return RunSpec(
        protocol="totem-multi",
        nodes=4,
        rings=rings,
        seed=seed,
        duration_us=150 * MS,
        network="lan",
        config={
            **SHORT_TIMES,
            "max_queue": 3,
            "min_queue": 1,
            "each_time": 1,
            "window_size": 4,
            "packing": False,
        },
        workload=(Poisson(rate=1500),),
        core="all",
    )
