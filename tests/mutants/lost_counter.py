"""Runs of the counter-based protocol: a sender crashes with messages that nobody else has."""

from __future__ import annotations

from random import Random

from ringcast.sim.faults import Drop, NodeCrash
from ringcast.sim.model import LinkModel, NetworkModel, Uniform
from ringcast.sim.run import RunSpec
from ringcast.sim.workload import Poisson

HOP_US = 400


def lost(seed: int) -> RunSpec:
    """The run of ``seed``: all that member 4 sends is lost, except its tokens, until it is gone."""
    rng = Random(f"{seed}/lost")
    at_us = rng.randrange(20_000, 40_000)
    return RunSpec(
        protocol="counter",
        nodes=4,
        seed=seed,
        duration_us=200_000,
        network=NetworkModel(link=LinkModel(delay=Uniform(HOP_US // 2, HOP_US))),
        config={"token_us": HOP_US, "idle_us": 0, "reissue_us": 8 * HOP_US, "packing": False},
        workload=(Poisson(rate=400.0),),
        faults=(Drop(at_us, 4, 0, "Msg", count=500), NodeCrash(at_us + 15 * HOP_US, 4)),
        core=(1, 2, 3),
    )
