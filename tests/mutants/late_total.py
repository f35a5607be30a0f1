"""Runs of TOTAL aimed at two moments that a swarm seldom meets.

``late``: the sequencer leaves. What it numbered last is on its way to one member, slowly, and lost
to the others; it arrives before, while or after that member says what it holds (total FL-1).

``remerged``: the sequencer cannot be heard but hears, so it numbers and delivers alone what the
others ask for, until they go on without it. It comes back while what one of them asks for in the
new view gets lost (total TL-22).
"""

from __future__ import annotations

from random import Random

from ringcast.core.ids import NodeId
from ringcast.sim.faults import Drop, Fault, Leave, LinkCut, Mend
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import Poisson, Sizes

HOP_US = 200
LEAVES_US = 40_000


def late(seed: int) -> RunSpec:
    """The run of ``seed``."""
    rng = Random(f"{seed}/late")
    faults: tuple[Fault, ...] = (
        Drop(LEAVES_US - 4 * HOP_US, 1, 2, "Bcast", 0),
        Drop(LEAVES_US - 4 * HOP_US, 1, 3, "Bcast", 0, delay_us=rng.randint(1, 8 * HOP_US)),
        Leave(LEAVES_US, 1),
    )
    return three(seed, rng.choice(("agreed", "uniform")), faults, core=(2, 3))


def remerged(seed: int) -> RunSpec:
    """The run of ``seed``."""
    rng = Random(f"{seed}/remerged")
    back_us = LEAVES_US + rng.randint(30, 90) * HOP_US
    faults: tuple[Fault, ...] = (
        LinkCut(LEAVES_US, 1, 2),
        LinkCut(LEAVES_US, 1, 3),
        Drop(LEAVES_US + 4 * HOP_US, 3, 2, "Request", 0),
        Mend(back_us, 1, 2),
        Mend(back_us, 1, 3),
    )
    return three(seed, "agreed", faults, core=(1, 2, 3))


def three(seed: int, profile: str, faults: tuple[Fault, ...], core: tuple[NodeId, ...]) -> RunSpec:
    """Three processors that send much, on a network without chance."""
    times = {"beat_us": 8, "suspect_us": 24, "suspect_max_us": 24, "announce_us": 40, "away_us": 1}
    config = {name: hops * HOP_US for name, hops in times.items()}
    return RunSpec(
        protocol="total",
        profile=profile,
        nodes=3,
        seed=seed,
        duration_us=LEAVES_US + 200 * HOP_US,
        network=NetworkModel(link=LinkModel(delay=Constant(HOP_US))),
        config=config | {"join_us": HOP_US, "merge_us": HOP_US, "ack_every": 1},
        workload=(Poisson(rate=4_000, senders=(1, 2, 3), sizes=(Sizes(8, 8),)),),
        faults=faults,
        core=core,
    )
