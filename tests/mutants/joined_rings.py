"""Runs of multiple-ring: two or three small rings, and a gateway or a link of one that fails."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from ringcast.core.rings import shaped
from ringcast.sim.faults import Fault, Heal, NetworkPartition, NodeCrash, Restart
from ringcast.sim.rings import in_domain
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import Poisson

MS = 1_000


def joined(seed: int) -> RunSpec:
    """A chain or a pair of gateways; one of them crashes and restarts, and a ring parts."""
    rng = Random(f"{seed}/joined")
    pair = rng.random() < 0.3
    rings = shaped("chain", 2 if pair else rng.choice((2, 3)), rng.choice((1, 2)), rng, pair)
    nodes = max(node for ring in rings for node in ring)
    domain = rng.randrange(len(rings))
    pids = list(in_domain(rings, domain, rings[domain]))
    rng.shuffle(pids)
    cut = rng.randint(1, len(pids) - 1)
    crash_us, cut_us = rng.randrange(60, 200), rng.randrange(60, 200)
    node = rng.randint(1, nodes) if rng.random() < 0.3 else nodes
    faults: list[Fault] = [
        NodeCrash(crash_us * MS, node),
        Restart((crash_us + rng.choice((1, 40, 80))) * MS, node),
        NetworkPartition(cut_us * MS, (tuple(pids[:cut]), tuple(pids[cut:])), domain),
        Heal((cut_us + rng.choice((25, 60))) * MS),
    ]
    return RunSpec(
        protocol="totem-multi",
        nodes=nodes,
        rings=rings,
        seed=seed,
        duration_us=300 * MS,
        network=rng.choice(("lan", "lossy")),
        config={
            "token_loss_us": 12 * MS,
            "token_retransmit_us": 3 * MS,
            "join_us": 3 * MS,
            "consensus_us": 12 * MS,
            "announce_us": 20 * MS,
            "hold_us": 0,
            "gv_min_us": 1 * MS,
            "timestamp_interval": 100,
            "acyclic": not pair,
        },
        workload=(Poisson(rate=150, safe=0.5),),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_us)),
        core="all",
    )


def overlapping(seed: int) -> RunSpec:
    """Rings part and come together again faster than the network gets over it, on lossy links."""
    rng = Random(f"{seed}/overlapping")
    kind = rng.choice(("chain", "pair", "cycle"))
    shape, twice = ("chain", True) if kind == "pair" else (kind, False)
    rings = shaped(shape, 2 if twice else 3, rng.choice((1, 2)), rng, twice)
    at_us = 60 * MS
    faults: list[Fault] = []
    for _ in range(rng.randint(4, 8)):
        at_us += rng.choice((3, 8, 15, 30)) * MS
        domain = rng.randrange(len(rings))
        pids = list(in_domain(rings, domain, rings[domain]))
        rng.shuffle(pids)
        cut = rng.randint(1, len(pids) - 1)
        parted = NetworkPartition(at_us, (tuple(pids[:cut]), tuple(pids[cut:])), domain)
        faults.append(Heal(at_us) if rng.random() < 0.25 else parted)
    spec = joined(seed)
    return replace(
        spec,
        nodes=max(node for ring in rings for node in ring),
        rings=rings,
        duration_us=at_us + 20 * MS,
        network="lossy",
        config=spec.config | {"acyclic": kind == "chain"},
        workload=(Poisson(rate=400, safe=0.5),),
        faults=tuple(faults),
    )
