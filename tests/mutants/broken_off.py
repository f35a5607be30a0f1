"""Runs in which a recovery is broken off, for rules that random faults hit too rarely.

The last messages of processor 4 reach the others late or never, then it crashes. While the
others recover, the ring they form breaks as well.
"""

from __future__ import annotations

from random import Random

from ringcast.sim.faults import Drop, Fault, Heal, NetworkPartition, NodeCrash
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import Poisson

TOKEN_LOSS_US, CONSENSUS_US = 4_000, 2_000


def broken_off(seed: int) -> RunSpec:
    """The run of ``seed``."""
    rng = Random(f"{seed}/broken off")
    gone_us = 10_000
    recovery_us = gone_us + TOKEN_LOSS_US + CONSENSUS_US
    faults: list[Fault] = []
    for dst in (1, 2, 3):
        delay_us = rng.choice((0, rng.randint(5_000, 15_000)))
        since_us = gone_us - rng.randint(100, 1_500)
        faults.append(Drop(since_us, 4, dst, "Regular", 0, delay_us))
    faults.append(NodeCrash(gone_us, 4))
    again_us = recovery_us + rng.randint(400, 2_200)
    sides = rng.choice((((1,), (2,), (3,)), ((1, 2), (3,)), ((1, 3), (2,)), ((2, 3), (1,))))
    faults.append(
        rng.choice((NetworkPartition(again_us, sides), NodeCrash(again_us, rng.randint(1, 3))))
    )
    faults.append(Heal(again_us + 15_000))
    return RunSpec(
        nodes=4,
        seed=seed,
        duration_us=40_000,
        network=NetworkModel(link=LinkModel(delay=Constant(100))),
        config={
            "token_loss_us": TOKEN_LOSS_US,
            "token_retransmit_us": 1_000,
            "join_us": 400,
            "consensus_us": CONSENSUS_US,
            "announce_us": 8_000,
            "hold_us": 0,
            "fail_rcv_const": 50,
        },
        workload=(Poisson(rate=rng.choice((500.0, 1_500.0)), safe=0.5),),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_us)),
    )
