"""Runs of multiple-ring: two or three small rings, and a gateway or a link of one that fails."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from ringcast.core.rings import Rings, shaped
from ringcast.sim.faults import Fault, Heal, NetworkPartition, NodeCrash, Restart
from ringcast.sim.model import Exponential, LinkModel, NetworkModel
from ringcast.sim.rings import in_domain
from ringcast.sim.spec import RunSpec
from ringcast.sim.workload import Grouped, Poisson

MS = 1_000

SHORT_TIMES = {
    "token_loss_us": 12 * MS,
    "token_retransmit_us": 3 * MS,
    "join_us": 3 * MS,
    "consensus_us": 12 * MS,
    "announce_us": 20 * MS,
    "hold_us": 0,
    "gv_min_us": 1 * MS,
}
"""A ring notices and mends a fault within a few hundredths of a second."""


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
            **SHORT_TIMES,
            "timestamp_interval": 100,
            "acyclic": not pair,
        },
        workload=(Poisson(rate=150, safe=0.5),),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_us)),
        core="all",
    )


def addressed(seed: int) -> RunSpec:
    """The same on trees, with many messages that are for some processors only."""
    spec = joined(seed)
    rng = Random(f"{seed}/addressed")
    rings = shaped("chain", 3, rng.choice((1, 2)), rng)
    return replace(
        spec,
        nodes=max(node for ring in rings for node in ring),
        rings=rings,
        config=spec.config | {"acyclic": True},
        workload=(Poisson(rate=100, safe=0.2), Poisson(rate=300, some=1.0, safe=0.2)),
        faults=(NodeCrash(100 * MS, 1), Restart(140 * MS, 1)) if rng.random() < 0.7 else (),
    )


def grouped(seed: int) -> RunSpec:
    """The same with messages to groups, which processors join and leave all the time."""
    spec = addressed(seed)
    rng = Random(f"{seed}/grouped")
    crash_us, node = rng.randrange(60, 200) * MS, rng.randint(spec.nodes - 1, spec.nodes)
    faults = (NodeCrash(crash_us, node), Restart(crash_us + 40 * MS, node))
    groups = Grouped(rate=200, groups=3, every_us=30 * MS, safe=0.3)
    workload = (Poisson(rate=50, safe=0.2), groups)
    return replace(spec, workload=workload, faults=spec.faults or faults)


def crashing(seed: int) -> RunSpec:
    """The same with safe messages alone, and gateways that crash and come back."""
    rng = Random(f"{seed}/crashing")
    spec, at_us = grouped(seed), 60 * MS
    faults: list[Fault] = []
    while at_us < 260 * MS:
        node = rng.randint(spec.nodes - 1, spec.nodes)
        faults += [NodeCrash(at_us, node), Restart(at_us + 30 * MS, node)]
        at_us += rng.randint(70, 100) * MS
    groups = Grouped(rate=300, groups=2, every_us=6 * MS, safe=1.0)
    return replace(spec, workload=(groups,), faults=tuple(faults))


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


def split(seed: int) -> RunSpec:
    """A cycle of three rings, of which one parts, and the parts stay connected. Many frames are
    lost, so that each part has messages which the other lacks."""
    rng = Random(f"{seed}/split")
    rings = shaped("cycle", 3, rng.choice((1, 2)), rng)
    parted = between_gateways(rng, rings, rng.randrange(3), 60 * MS + rng.randrange(9 * MS))
    delay = Exponential(base_us=80, tail_us=100, most_us=5_000)
    return replace(
        joined(seed),
        nodes=max(node for ring in rings for node in ring),
        rings=rings,
        duration_us=120 * MS,
        network=NetworkModel(link=LinkModel(delay=delay, loss=0.3, unicast_loss=0.02)),
        config=joined(seed).config | {"acyclic": False},
        workload=(Poisson(rate=500, safe=0.3),),
        faults=(parted, Heal(100 * MS)),
    )


def turned(seed: int) -> RunSpec:
    """A cycle of three rings: one parts, then it heals while another one parts, so that what was
    reached one way is reached the other way round (Figure 5.15)."""
    rng = Random(f"{seed}/turned")
    rings = shaped("cycle", 3, rng.choice((1, 2)), rng)
    heal_us = 90 * MS + rng.randrange(30 * MS)
    first, second = rng.sample(range(3), 2)
    part_us = heal_us + rng.choice((0, 1, 3, 6, 9, 12)) * MS
    faults = (
        between_gateways(rng, rings, first, 60 * MS),
        Heal(heal_us),
        between_gateways(rng, rings, second, part_us),
    )
    return replace(
        split(seed),
        nodes=max(node for ring in rings for node in ring),
        rings=rings,
        duration_us=part_us + 60 * MS,
        network="lossy",
        workload=(Poisson(rate=300, safe=0.3),),
        faults=faults,
    )


def halved(seed: int) -> RunSpec:
    """A cycle of six rings in two halves. One ring joins them and parts again before its gateways
    have told each other where they lead; another one joins them meanwhile."""
    rng = Random(f"{seed}/halved")
    rings = shaped("cycle", 6, 1, rng)
    broken, whole = rng.sample(range(6), 2)
    parted = between_gateways(rng, rings, broken, 60 * MS)
    heal_us = 120 * MS
    joins = NetworkPartition(heal_us, (in_domain(rings, broken, rings[broken]),), broken)
    meets_us = heal_us + rng.randrange(15 * MS)
    faults = (
        parted,
        between_gateways(rng, rings, whole, 63 * MS),
        joins,
        NetworkPartition(meets_us, (in_domain(rings, whole, rings[whole]),), whole),
        replace(parted, at_us=heal_us + rng.randrange(2 * MS, 22 * MS)),
    )
    return replace(
        split(seed),
        nodes=max(node for ring in rings for node in ring),
        rings=rings,
        duration_us=200 * MS,
        network=NetworkModel(
            link=LinkModel(
                delay=Exponential(base_us=80, tail_us=100, most_us=5_000),
                loss=0.1,
                unicast_loss=0.02,
            )
        ),
        workload=(Poisson(rate=200, safe=0.5),),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_us)),
    )


def between_gateways(rng: Random, rings: Rings, domain: int, at_us: int) -> NetworkPartition:
    """A ring parts, with one of its two gateways on each side."""
    *members, one, other = in_domain(rings, domain, rings[domain])
    rng.shuffle(members)
    cut = rng.randint(0, len(members))
    return NetworkPartition(at_us, ((*members[:cut], one), (*members[cut:], other)), domain)
