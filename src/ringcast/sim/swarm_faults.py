"""Swarm faults: what goes wrong in a run of a swarm, each with a beginning and mostly an end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from random import Random

from msgspec.structs import replace

from ringcast.core.ids import NodeId
from ringcast.core.rings import Rings
from ringcast.sim.faults import (
    Burst,
    ClockDrift,
    Drop,
    Fault,
    Heal,
    Leave,
    Link,
    LinkCut,
    Loss,
    Mend,
    NetworkPartition,
    NodeCrash,
    NodePause,
    Restart,
    Resume,
    StorageFail,
    Torn,
)
from ringcast.sim.model import BurstTail, Exponential, LinkModel, NetworkModel, Uniform
from ringcast.sim.rings import in_domain


def draw_faults(
    rng: Random,
    n: int,
    model: NetworkModel,
    duration_us: int,
    unit_us: int,
    kinds: Iterable[str],
    rings: Rings = (),
    frail: tuple[NodeId, ...] | None = None,
) -> tuple[Fault, ...]:
    """Episodes of the kinds this seed has, out of ``kinds``; with ``frail``, no other processors
    crash."""
    enabled = [kind for kind in kinds if rng.random() < 0.35]
    plan: list[Fault] = []
    if rng.random() < 0.3:
        most = rng.choice((100, 5_000, 50_000))
        plan += [ClockDrift(0, node, rng.randint(-most, most)) for node in range(1, n + 1)]
    for _ in range(rng.randint(1, 8) if enabled else 0):
        kind = rng.choice(enabled)
        begin_us = rng.randrange(duration_us)
        lasts_us = int(rng.expovariate(1.0 / (2 * unit_us))) + 1
        end_us = begin_us + lasts_us
        if rings and kind in IN_A_DOMAIN:
            episode = in_a_domain(rng, rings, kind, model, begin_us, end_us)
        elif frail is not None and kind in ENDING:
            episode = among(rng, frail, kind, model, begin_us, end_us)
        else:
            episode = EPISODES[kind](rng, n, model, begin_us, end_us)
        plan += [fault for fault in episode if fault.at_us < duration_us]
    return in_order(plan)


def in_a_domain(
    rng: Random, rings: Rings, kind: str, model: NetworkModel, begin: int, end: int
) -> list[Fault]:
    """An episode that befalls one broadcast domain of several, drawn with two processors or more:
    drawn for processors 1, 2, ..., which then stand for those of the domain."""
    domain = rng.choice([at for at, ring in enumerate(rings) if len(ring) > 1])
    pids = in_domain(rings, domain, rings[domain])
    episode = EPISODES[kind](rng, len(pids), model, begin, end)
    return [_placed(fault, domain, (0, *pids)) for fault in episode]


def among(
    rng: Random, frail: tuple[NodeId, ...], kind: str, model: NetworkModel, begin: int, end: int
) -> list[Fault]:
    """An episode that befalls some processors only: drawn for 1, 2, ..., which stand for them."""
    if not frail:
        return []
    episode = EPISODES[kind](rng, len(frail), model, begin, end)
    return [
        replace(fault, node=frail[fault.node - 1])
        for fault in episode
        if isinstance(fault, NodeCrash | Torn | StorageFail | Restart)
    ]


def draw_frail(rng: Random, n: int, share: float) -> tuple[NodeId, ...] | None:
    """In a ``share`` of the seeds, the minority that may crash; None: anybody may."""
    if rng.random() >= share:
        return None
    return tuple(sorted(rng.sample(range(1, n + 1), rng.randint(0, (n - 1) // 2))))


def _placed(fault: Fault, domain: int, pids: tuple[int, ...]) -> Fault:
    match fault:
        case NetworkPartition(groups=groups):
            there = tuple(tuple(pids[each] for each in group) for group in groups)
            return replace(fault, groups=there, domain=domain)
        case LinkCut() | Mend() | Link() | Drop():
            return replace(fault, src=pids[fault.src], dst=pids[fault.dst], domain=domain)
        case _:
            return fault


def draw_leaves(
    rng: Random, n: int, duration_us: int, unit_us: int, frail: tuple[NodeId, ...] | None = None
) -> list[Fault]:
    """In one seed of five a processor leaves on purpose and comes back, now or later; with
    ``frail``, one of these."""
    if rng.random() > 0.2 or frail == ():
        return []
    node, at_us = any_node(rng, n), rng.randrange(duration_us)
    if frail:
        node = frail[node % len(frail)]
    back_us = at_us + rng.choice((1, 50, unit_us, 4 * unit_us))
    plan: list[Fault] = [Leave(at_us, node), Restart(back_us, node)]
    return [fault for fault in plan if fault.at_us < duration_us]


def draw_crashes(rng: Random, n: int, most: int, duration_us: int) -> list[Fault]:
    """Up to ``most`` processors go for good; some try to come back."""
    plan: list[Fault] = []
    for node in rng.sample(range(1, n + 1), rng.randint(0, most)):
        at_us = rng.randrange(duration_us)
        within = rng.choice(("send", "broadcast", "deliver"))
        end = rng.choice((NodeCrash(at_us, node), Torn(at_us, node, within), Leave(at_us, node)))  # type: ignore[arg-type]
        plan.append(end)
        back_us = at_us + rng.randrange(duration_us)
        if rng.random() < 0.3 and back_us < duration_us:
            plan.append(Restart(back_us, node))
    return plan


def in_order(*plans: Iterable[Fault]) -> tuple[Fault, ...]:
    """Fault plans merged by time; at the same time, in the order given."""
    return tuple(sorted(chain(*plans), key=lambda fault: fault.at_us))


def any_node(rng: Random, n: int) -> NodeId:
    """One of the processors 1 .. n."""
    return rng.randint(1, n)


def any_pair(rng: Random, n: int) -> tuple[NodeId, NodeId]:
    """Two different ones."""
    src, dst = rng.sample(range(1, n + 1), 2)
    return src, dst


def _partition(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    sides = rng.choice((2, 2, 3))
    side = {node: rng.randrange(sides) for node in range(1, n + 1)}
    groups = [tuple(x for x in side if side[x] == i) for i in range(sides)]
    return [NetworkPartition(begin, tuple(group for group in groups if group)), Heal(end)]


def _cut(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    src, dst = any_pair(rng, n)
    return [LinkCut(begin, src, dst), Mend(end, src, dst)]


def _crash(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    node = any_node(rng, n)
    soon = begin + rng.choice((1, 50, end - begin))
    return [NodeCrash(begin, node), Restart(soon, node, rng.random() < 0.85)]


def _mass_crash(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    kept = rng.random() < 0.8
    down: list[Fault] = [NodeCrash(begin, node) for node in range(1, n + 1)]
    return down + [Restart(end, node, kept) for node in range(1, n + 1)]


def _torn(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    node = any_node(rng, n)
    within = rng.choice(("persist", "persist", "send", "broadcast", "deliver"))
    return [Torn(begin, node, within), Restart(end, node)]  # type: ignore[arg-type]


def _storage(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    node = any_node(rng, n)
    return [StorageFail(begin, node), Restart(end, node)]


def _pause(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    node = any_node(rng, n)
    return [NodePause(begin, node), Resume(end, node)]


def _link(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    src, dst = any_pair(rng, n)
    slow = rng.choice((Uniform(1_000, 20_000), Exponential(500, 5_000, 50_000), model.link.delay))
    worse = LinkModel(delay=slow, loss=rng.random(), unicast_loss=rng.random())
    return [Link(begin, src, dst, worse), Link(end, src, dst, model.link)]


def _mtu(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    src, dst = any_pair(rng, n)
    hole = LinkModel(delay=model.link.delay, mtu_bytes=rng.choice((100, 200, 1_000)))
    return [Link(begin, src, dst, hole), Link(end, src, dst, model.link)]


def _loss(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    usual = model.link
    storm = Loss(begin, rng.random(), rng.random())
    return [storm, Loss(end, usual.loss, usual.unicast_loss)]


def _burst(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    return [Burst(begin, BurstTail(rng.randint(1, 4), rng.choice((0.2, 1.0)))), Burst(end)]


def _drop(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    src, dst = rng.choice((any_pair(rng, n), (any_node(rng, n), 0), (0, any_node(rng, n))))
    delay_us = rng.choice((0, end - begin))
    copy = delay_us > 0 and rng.random() < 0.5
    return [Drop(begin, src, dst, count=rng.randint(1, 10), delay_us=delay_us, copy=copy)]


EPISODES: Mapping[str, Callable[[Random, int, NetworkModel, int, int], list[Fault]]] = {
    "partition": _partition,
    "cut": _cut,
    "crash": _crash,
    "mass crash": _mass_crash,
    "torn crash": _torn,
    "storage failure": _storage,
    "pause": _pause,
    "link": _link,
    "mtu": _mtu,
    "loss": _loss,
    "burst tail": _burst,
    "drop": _drop,
}

IN_A_DOMAIN = ("partition", "cut", "link", "mtu", "drop")
"""Kinds that speak of links."""

KINDS = tuple(EPISODES)
"""The kinds of faults a seed may enable."""

ENDING = ("crash", "mass crash", "torn crash", "storage failure")
PASSING = tuple(kind for kind in KINDS if kind not in ENDING)
"""Kinds of episodes in which nobody crashes."""
