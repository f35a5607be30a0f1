"""Runs in which one member abandons the ring being formed, and the other must not wait for it.

Three processors form their first ring. While they do, the third crashes and starts again, and only
one of the others hears of that; it gives the ring up. The last one learns of it from Joins that
carry the number of the very ring it is waiting for (totem R52, R68). Should it not heed them, a
token loss timeout will tell it, which here takes far longer than the second stage may.
"""

from __future__ import annotations

from random import Random

from ringcast.sim.faults import Drop, NodeCrash, Restart
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.spec import RunSpec

TOKEN_LOSS_US, CONSENSUS_US = 1_000_000, 4_000
FORMING_US = (300, 1_600)
"""When the first ring is being formed, with a hop of 100 us."""


def abandoned(seed: int) -> RunSpec:
    """The run of ``seed``."""
    rng = Random(f"{seed}/abandoned")
    deaf = rng.choice((1, 2))
    gone_us = rng.randint(*FORMING_US)
    return RunSpec(
        nodes=3,
        seed=seed,
        duration_us=gone_us + 250,
        network=NetworkModel(link=LinkModel(delay=Constant(100))),
        config={
            "token_loss_us": TOKEN_LOSS_US,
            "token_retransmit_us": 1_000,
            "join_us": 400,
            "consensus_us": CONSENSUS_US,
            "announce_us": 8_000,
            "hold_us": 0,
        },
        faults=(
            NodeCrash(gone_us, 3),
            Drop(gone_us, 3, deaf, "Join", 0),
            Restart(gone_us + 1, 3),
        ),
        core=(1, 2),
        progress_us=10 * CONSENSUS_US,
    )
