"""Runs that are hard on recovery, for rules that the usual swarm reaches too rarely.

A small ring under load loses and delays many frames, falls apart and comes together again so
often that most attempts to form a ring are interrupted, and single tokens get lost on purpose.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from ringcast.sim.faults import Drop, Fault, Heal, NetworkPartition
from ringcast.sim.model import LinkModel, NetworkModel, Uniform
from ringcast.sim.spec import RunSpec
from ringcast.sim.swarm import draw
from ringcast.sim.workload import Poisson, Sizes

HOP_US = 400


def harsh(seed: int) -> RunSpec:
    """The run of ``seed``."""
    rng = Random(f"{seed}/harsh")
    n = rng.randint(3, 5)
    spec = draw(seed, nodes=n)
    unit_us = (8 + 4 * n) * HOP_US
    settings = {
        "token_loss_us": unit_us,
        "token_retransmit_us": unit_us // 4,
        "join_us": unit_us // 8,
        "consensus_us": unit_us // 2,
        "announce_us": 2 * unit_us,
        "fail_rcv_const": 50,
        "each_time": rng.choice((1, 3, 10)),
    }
    link = LinkModel(
        delay=Uniform(HOP_US // 2, 2 * HOP_US),
        loss=rng.choice((0.05, 0.15, 0.3)),
        unicast_loss=rng.choice((0.0, 0.05)),
        reorder=0.1,
        reorder_us=rng.choice((unit_us, 3 * unit_us)),
    )
    load = Poisson(
        rate=rng.choice((5, 20, 60)) * 1_000_000 / unit_us / n,
        safe=0.5,
        sizes=(Sizes(0, 80), Sizes(0, 1_400)),
    )
    duration_us = 25 * unit_us
    return replace(
        spec,
        seed=seed,
        duration_us=duration_us,
        network=NetworkModel(link=link),
        config={
            **spec.config,
            **settings,
            "hold_us": min(spec.config["hold_us"], unit_us // 10),
            "min_each": 1,
        },
        workload=(load,),
        faults=tuple(episodes(rng, n, duration_us, unit_us)),
        stagger_us=0,
        swarm=False,
    )


def episodes(rng: Random, n: int, duration_us: int, unit_us: int) -> list[Fault]:
    """Splits and remerges in quick succession, and tokens that get lost in between."""
    plan: list[Fault] = []
    at_us = 2 * unit_us
    while at_us < duration_us:
        side = [rng.randrange(2) for _ in range(n)]
        groups = [tuple(i + 1 for i in range(n) if side[i] == s) for s in (0, 1)]
        plan.append(
            rng.choice(
                (
                    NetworkPartition(at_us, tuple(group for group in groups if group)),
                    Heal(at_us),
                    Drop(at_us, message="Token", count=rng.randint(1, 6)),
                    Drop(at_us, message="CommitToken", count=rng.randint(1, 6)),
                    Drop(at_us, dst=rng.randint(1, n), count=rng.randint(1, 10)),
                )
            )
        )
        at_us += rng.randint(unit_us // 8, 2 * unit_us)
    return plan
