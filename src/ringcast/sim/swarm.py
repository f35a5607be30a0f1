"""Swarm testing: a whole configuration drawn from one seed.

Each seed enables only some kinds of faults and only some features. A draw that always used
everything would hide what only shows when most things are quiet. Every topic has its own random
stream, so fixing the number of processors leaves the other draws as they were.

Times are drawn in proportion to the delay of a link, which makes the runs short: a simulated
run is some tens of token losses long, however long that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from random import Random
from typing import Any

from msgspec.structs import replace

from ringcast.core.ids import NodeId
from ringcast.sim.faults import (
    Burst,
    Crash,
    Cut,
    Drift,
    Drop,
    Fault,
    Heal,
    Leave,
    Link,
    Loss,
    Mend,
    Partition,
    Pause,
    Restart,
    Resume,
    StorageFail,
    Torn,
)
from ringcast.sim.model import (
    BurstTail,
    Constant,
    CpuModel,
    Delay,
    Exponential,
    LinkModel,
    Lognormal,
    NetworkModel,
    Uniform,
)
from ringcast.sim.run import RunSpec
from ringcast.sim.workload import Bursts, ClosedLoop, Fill, Poisson, Saturate, Sizes, Workload

FEWEST, MOST = 3, 9
"""Processors of a run, when the number is not fixed."""

FEWEST_FIXED = 2
"""When it is: a swarm breaks links, so there must be one."""


def draw(seed: int, protocol: str = "totem", nodes: int | None = None) -> RunSpec:
    """The run of ``seed``; with ``nodes`` given, of that many processors."""

    def stream(topic: str) -> Random:
        return Random(f"{seed}/swarm/{topic}")

    n = nodes or stream("nodes").randint(FEWEST, MOST)
    hop_us = stream("hop").choice((200, 400, 800))
    unit_us = (8 + 4 * n) * hop_us
    """A handful of token rotations: the measure for timeouts and for how long faults last."""
    duration_us = unit_us * stream("duration").randint(6, 16)
    large = draw_large(stream("large"), n, duration_us)
    tune = SETTINGS.get(protocol)
    config = tune(stream, n, unit_us, bool(large)) if tune else {}
    model = draw_network(stream("network"), hop_us)
    model = draw_medium(stream("medium"), model, config, unit_us)
    return RunSpec(
        protocol=protocol,
        nodes=n,
        seed=seed,
        duration_us=duration_us,
        network=model,
        config=config,
        workload=draw_workload(stream("workload"), n, unit_us) + large,
        faults=in_order(
            draw_faults(stream("faults"), n, model, duration_us, unit_us),
            draw_leaves(stream("leaves"), n, duration_us, unit_us),
        ),
        stagger_us=stream("stagger").choice((0, 0, hop_us, 3 * unit_us)),
        swarm=True,
    )


def draw_network(rng: Random, hop_us: int) -> NetworkModel:
    """A network whose frames take about ``hop_us``, in a good or a bad state."""
    delay: Delay = rng.choice(
        (
            Constant(hop_us),
            Uniform(hop_us // 2, 2 * hop_us),
            Exponential(hop_us // 2, hop_us // 2, 10 * hop_us),
            Lognormal(hop_us, 0.6, 10 * hop_us),
        )
    )
    link = LinkModel(
        delay=delay,
        loss=_sometimes(rng, 0.5, 0.2),
        unicast_loss=_sometimes(rng, 0.5, 0.2),
        duplicate=_sometimes(rng, 0.3, 0.1),
        reorder=_sometimes(rng, 0.3, 0.2),
        reorder_us=8 * hop_us,
    )
    cpu = None
    if rng.random() < 0.15:
        cost = hop_us / 40
        cpu = CpuModel(
            send_us=cost, receive_us=cost, unicast_send_us=4 * cost, unicast_receive_us=2 * cost
        )
    return NetworkModel(link=link, cpu=cpu, receive_buffer=rng.choice((20, 200, 2000)))


def draw_medium(
    rng: Random, model: NetworkModel, config: Mapping[str, Any], unit_us: int
) -> NetworkModel:
    """In one seed of four, wires that take time: one for each link, or one for all.

    They carry all that a ring may send in one rotation, and all that is said while one is formed,
    several times in the unit of time; or else no timeout would be long enough.
    """
    share, shared = rng.choice((5, 10, 30)), rng.random() < 0.5
    if rng.random() > 0.25:
        return model
    rotation_bytes = config.get("window_size", 50) * config.get("max_packet", 1460)
    bandwidth_bps = share * max(rotation_bytes, 70_000) * 8_000_000 // unit_us
    link = replace(model.link, bandwidth_bps=bandwidth_bps, queue_us=unit_us)
    return replace(model, link=link, shared=shared, overhead_bytes=66)


def draw_large(rng: Random, n: int, duration_us: int) -> tuple[Workload, ...]:
    """In one seed of thirty, somebody sends messages of 200 kB to 1 MB, one or a few."""
    if rng.random() > 1 / 30:
        return ()
    common: dict[str, Any] = {"senders": (_node(rng, n),), "safe": rng.choice((0.0, 1.0))}
    every_us = duration_us // rng.randint(1, 3)
    return (Bursts(messages=1, every_us=every_us, sizes=(Sizes(200_000, 1_000_000),), **common),)


def draw_workload(rng: Random, n: int, unit_us: int) -> tuple[Workload, ...]:
    """One or two kinds of load; now and then none."""
    most = rng.choice((0, 40, 400, 400, 3000, 20_000))
    common: dict[str, Any] = {
        "sizes": (Sizes(0, 80, 20.0), Sizes(0, most)),
        "safe": rng.choice((0.0, 0.3, 0.5, 1.0)),
        "senders": tuple(sorted(rng.sample(range(1, n + 1), rng.randint(1, n)))),
    }
    some = rng.choice((5, 20, 60)) / n
    patterns: list[Workload] = [
        Poisson(rate=some * 1_000_000 / unit_us, **common),
        Bursts(messages=rng.choice((2, 8, 40)), every_us=2 * unit_us, **common),
        ClosedLoop(outstanding=rng.choice((1, 3)), think_us=unit_us // 20, **common),
        Fill(queue=rng.choice((5, 20)), every_us=unit_us, **common),
        Saturate(think_us=unit_us // 2, **common),
    ]
    chosen = rng.choices(patterns, (6, 3, 1, 3, 1), k=2)
    return tuple(chosen[: rng.choice((0, 1, 1, 1, 1, 2))])


Stream = Callable[[str], Random]
"""The random stream of a topic."""


def _totem(stream: Stream, n: int, unit_us: int, large: bool) -> dict[str, Any]:
    """Settings of the Totem single ring, in unusual but legal combinations."""
    rng = stream("config")
    each_time = rng.choice((1, 3, 10, 30))
    consensus_us = rng.choice((unit_us // 2, unit_us))
    queue = rng.choice((20, 60))
    settings: dict[str, Any] = {
        "token_loss_us": unit_us,
        "token_retransmit_us": unit_us // rng.choice((3, 5)),
        "join_us": consensus_us // rng.choice((3, 5)),
        "consensus_us": consensus_us,
        "announce_us": 2 * unit_us,
        "hold_us": rng.choice((0, unit_us // (3 * n))),
        "max_fast_rounds": rng.choice((1, 5, 30)),
        "window_size": rng.choice((4, 20, 50, 100)),
        "each_time": each_time,
        "min_each": rng.choice((0, 1, 1, 1)),
        "adaptive": rng.random() < 0.5,
        "min_window": rng.choice((2, 10)),
        "target_rotation_us": unit_us // rng.choice((1, 4)),
        "fail_rcv_const": rng.choice((5, 20, 20, 50)),
        "max_requests": rng.choice((3, 90, 90)),
        "miss_visits": rng.choice((0, 0, 0, 2)),
        "max_packet": rng.choice((600, 1460, 1460, 9000)),
        "packing": rng.random() < 0.8,
        "max_queue": queue,
        "min_queue": queue * 3 // 4,
        "mutual": rng.random() < 0.75,
        "merge_backoff_us": stream("backoff").choice((0, 0, 0, unit_us // 64, unit_us // 16)),
    }
    if large:  # through in some rotations, of which the bound on progress has a hundred
        settings |= {"each_time": 30, "window_size": 100, "min_window": 10, "max_packet": 9000}
    return settings


SETTINGS: Mapping[str, Callable[[Stream, int, int, bool], dict[str, Any]]] = {"totem": _totem}
"""How to draw the settings of a protocol from its streams, a number of processors, a unit of time
and whether there are large messages; a protocol that is not here has its default profile."""


def draw_faults(
    rng: Random, n: int, model: NetworkModel, duration_us: int, unit_us: int
) -> tuple[Fault, ...]:
    """Episodes of the kinds this seed has, each with a beginning and mostly an end."""
    enabled = [kind for kind in KINDS if rng.random() < 0.35]
    plan: list[Fault] = []
    if rng.random() < 0.3:
        most = rng.choice((100, 5_000, 50_000))
        plan += [Drift(0, node, rng.randint(-most, most)) for node in range(1, n + 1)]
    for _ in range(rng.randint(1, 8) if enabled else 0):
        kind = rng.choice(enabled)
        begin_us = rng.randrange(duration_us)
        lasts_us = int(rng.expovariate(1.0 / (2 * unit_us))) + 1
        end_us = begin_us + lasts_us
        episode = EPISODES[kind](rng, n, model, begin_us, end_us)
        plan += [fault for fault in episode if fault.at_us < duration_us]
    return in_order(plan)


def draw_leaves(rng: Random, n: int, duration_us: int, unit_us: int) -> list[Fault]:
    """In one seed of five a processor leaves on purpose and comes back, now or later."""
    if rng.random() > 0.2:
        return []
    node, at_us = _node(rng, n), rng.randrange(duration_us)
    back_us = at_us + rng.choice((1, 50, unit_us, 4 * unit_us))
    plan: list[Fault] = [Leave(at_us, node), Restart(back_us, node)]
    return [fault for fault in plan if fault.at_us < duration_us]


def in_order(*plans: Iterable[Fault]) -> tuple[Fault, ...]:
    """Fault plans merged by time; at the same time, in the order given."""
    return tuple(sorted(chain(*plans), key=lambda fault: fault.at_us))


def _sometimes(rng: Random, chance: float, most: float) -> float:
    """Zero, or with ``chance`` anything up to ``most``, small values being likelier."""
    return round(most * rng.random() ** 2, 4) if rng.random() < chance else 0.0


def _node(rng: Random, n: int) -> NodeId:
    return rng.randint(1, n)


def _pair(rng: Random, n: int) -> tuple[NodeId, NodeId]:
    src, dst = rng.sample(range(1, n + 1), 2)
    return src, dst


def _partition(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    sides = rng.choice((2, 2, 3))
    side = {node: rng.randrange(sides) for node in range(1, n + 1)}
    groups = [tuple(x for x in side if side[x] == i) for i in range(sides)]
    return [Partition(begin, tuple(group for group in groups if group)), Heal(end)]


def _cut(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    src, dst = _pair(rng, n)
    return [Cut(begin, src, dst), Mend(end, src, dst)]


def _crash(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    node = _node(rng, n)
    soon = begin + rng.choice((1, 50, end - begin))
    return [Crash(begin, node), Restart(soon, node, rng.random() < 0.85)]


def _mass_crash(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    kept = rng.random() < 0.8
    down: list[Fault] = [Crash(begin, node) for node in range(1, n + 1)]
    return down + [Restart(end, node, kept) for node in range(1, n + 1)]


def _torn(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    node = _node(rng, n)
    within = rng.choice(("persist", "persist", "send", "broadcast", "deliver"))
    return [Torn(begin, node, within), Restart(end, node)]  # type: ignore[arg-type]


def _storage(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    node = _node(rng, n)
    return [StorageFail(begin, node), Restart(end, node)]


def _pause(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    node = _node(rng, n)
    return [Pause(begin, node), Resume(end, node)]


def _link(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    src, dst = _pair(rng, n)
    slow = rng.choice((Uniform(1_000, 20_000), Exponential(500, 5_000, 50_000), model.link.delay))
    worse = LinkModel(delay=slow, loss=rng.random(), unicast_loss=rng.random())
    return [Link(begin, src, dst, worse), Link(end, src, dst, model.link)]


def _mtu(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    src, dst = _pair(rng, n)
    hole = LinkModel(delay=model.link.delay, mtu_bytes=rng.choice((100, 200, 1_000)))
    return [Link(begin, src, dst, hole), Link(end, src, dst, model.link)]


def _loss(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    usual = model.link
    storm = Loss(begin, rng.random(), rng.random())
    return [storm, Loss(end, usual.loss, usual.unicast_loss)]


def _burst(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    return [Burst(begin, BurstTail(rng.randint(1, 4), rng.choice((0.2, 1.0)))), Burst(end)]


def _drop(rng: Random, n: int, model: NetworkModel, begin: int, end: int) -> list[Fault]:
    src, dst = rng.choice((_pair(rng, n), (_node(rng, n), 0), (0, _node(rng, n))))
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

KINDS = tuple(EPISODES)
"""The kinds of faults a seed may enable."""
