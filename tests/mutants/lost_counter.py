"""Runs of the counter-based protocol: a sender crashes with messages that nobody else has."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from ringcast.sim.faults import Drop, NodeCrash, Restart
from ringcast.sim.model import LinkModel, NetworkModel, Uniform
from ringcast.sim.spec import RunSpec
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


def newcomer(seed: int) -> RunSpec:
    """The run of ``seed``: the same, and member 3 comes back while its messages are awaited."""
    rng = Random(f"{seed}/newcomer")
    back_us = rng.randrange(60_000, 80_000)
    lost_us = back_us + rng.randrange(30 * HOP_US)
    gone_us = lost_us + rng.randrange(5, 40) * HOP_US
    return replace(
        lost(seed),
        nodes=5,
        duration_us=300_000,
        faults=(
            NodeCrash(20_000, 3),
            Restart(back_us, 3),
            Drop(lost_us, 4, 0, "Msg", count=2000),
            NodeCrash(gone_us, 4),
        ),
        core=(1, 2, 3, 5),
    )
