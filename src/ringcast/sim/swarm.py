"""Swarm testing: a whole configuration drawn from one seed.

Each seed enables only some kinds of faults and only some features. A draw that always used
everything would hide what only shows when most things are quiet. Every topic has its own random
stream, so fixing the number of processors leaves the other draws as they were.

Times are drawn in proportion to the delay of a link, which makes the runs short: a simulated
run is some tens of token losses long, however long that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from ringcast.core.registry import Sheet, protocol
from ringcast.core.rings import Rings
from ringcast.core.swarm import Drawn, Stream
from ringcast.protocols import DEFAULT
from ringcast.sim.faults import Expire, FaultPlan
from ringcast.sim.model import (
    Constant,
    CpuModel,
    Delay,
    Exponential,
    LinkModel,
    Lognormal,
    NetworkModel,
    Uniform,
)
from ringcast.sim.spec import RunSpec
from ringcast.sim.swarm_faults import (
    KINDS,
    PASSING,
    any_node,
    draw_crashes,
    draw_faults,
    draw_frail,
    draw_leaves,
    in_order,
)
from ringcast.sim.workload import (
    Bursts,
    ClosedLoop,
    Fill,
    Grouped,
    Poisson,
    Saturate,
    Sizes,
    Workload,
)

FEWEST_FIXED = 2
"""Least number of processors that may be asked for: a swarm breaks links, so there must be one."""

USUAL_PACKET = 1460
"""Frames of a run whose protocol draws no other size."""


def draw(
    seed: int,
    name: str = DEFAULT,
    nodes: int | None = None,
    profile: str = "",
    config: Mapping[str, Any] = MappingProxyType({}),
) -> RunSpec:
    """The run of ``seed``; with ``nodes`` given, of that many processors, and with these settings.
    What is not drawn of the protocol's settings is the profile's."""

    def stream(topic: str) -> Random:
        return Random(f"{seed}/swarm/{topic}")

    sheet = protocol(name)
    rings = sheet.swarm.rings(stream, nodes)
    n = nodes or stream("nodes").choice(sheet.swarm.nodes)
    if rings:
        n = max(node for ring in rings for node in ring)
    hop_us = stream("hop").choice((200, 400, 800))
    unit_us = (8 + 4 * n) * hop_us
    """A handful of token rotations: the measure for timeouts and for how long faults last."""
    duration_us = unit_us * stream("duration").randint(6, 16)
    large = draw_large(stream("large"), n, duration_us)
    drawn = sheet.swarm.settings(stream, n, unit_us, bool(large))
    model = draw_network(stream("network"), hop_us)
    model = draw_medium(stream("medium"), model, drawn, unit_us)
    grouped = sheet.swarm.groups(drawn.settings)
    return RunSpec(
        protocol=name,
        profile=profile,
        nodes=n,
        rings=rings,
        seed=seed,
        duration_us=duration_us,
        network=model,
        config={**drawn.settings, **config},
        workload=(
            *draw_workload(stream("workload"), n, unit_us),
            *large,
            *(draw_multicast(stream("multicast"), n, unit_us) if sheet.multicast else ()),
            *(draw_groups(stream("groups"), n, unit_us) if grouped else ()),
        ),
        faults=draw_plan(sheet, stream, n, model, duration_us, unit_us, rings),
        stagger_us=stream("stagger").choice((0, 0, hop_us, 3 * unit_us)),
        swarm=not config,
    )


def draw_plan(
    sheet: Sheet,
    stream: Stream,
    n: int,
    model: NetworkModel,
    duration_us: int,
    unit_us: int,
    rings: Rings = (),
) -> FaultPlan:
    """The faults that suit a protocol, and the mistakes it asks for.

    Of fixed members nobody comes back: so only as many crash as the group bears.
    """
    own = sheet.swarm
    if strange := sorted(set(own.without) - set(KINDS)):
        raise ValueError(f"{sheet.name}: no kind of fault {strange}; known: {', '.join(KINDS)}")
    fixed = sheet.fixed
    kinds = [kind for kind in (PASSING if fixed else KINDS) if kind not in own.without]
    frail = draw_frail(stream("minority"), n, own.minority)
    episodes = draw_faults(stream("faults"), n, model, duration_us, unit_us, kinds, rings, frail)
    if fixed:
        gone = draw_crashes(stream("crashes"), n, own.crashes(n), duration_us)
    else:
        gone = draw_leaves(stream("leaves"), n, duration_us, unit_us, frail)
    mistakes = [
        Expire(mistake.at_us, mistake.timer, 0, mistake.every_us)
        for mistake in own.mistakes(stream, duration_us, unit_us)
    ]
    return in_order(episodes, gone, mistakes)


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


def draw_medium(rng: Random, model: NetworkModel, drawn: Drawn, unit_us: int) -> NetworkModel:
    """In one seed of four, wires that take time: one for each link, or one for all.

    They carry all that a group may send in one round, and all that is said while one is formed,
    several times in the unit of time; or else no timeout would be long enough.
    """
    share, shared = rng.choice((5, 10, 30)), rng.random() < 0.5
    if rng.random() > 0.25:
        return model
    round_bytes = drawn.frames * drawn.settings.get("max_packet", USUAL_PACKET)
    bandwidth_bps = share * max(round_bytes, 70_000) * 8_000_000 // unit_us
    link = replace(model.link, bandwidth_bps=bandwidth_bps, queue_us=unit_us)
    return replace(model, link=link, shared=shared, overhead_bytes=66)


def draw_large(rng: Random, n: int, duration_us: int) -> tuple[Workload, ...]:
    """In one seed of thirty, somebody sends messages of 200 kB to 1 MB, one or a few."""
    if rng.random() > 1 / 30:
        return ()
    common: dict[str, Any] = {"senders": (any_node(rng, n),), "safe": rng.choice((0.0, 1.0))}
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


def draw_multicast(rng: Random, n: int, unit_us: int) -> tuple[Workload, ...]:
    """In half of the seeds, messages to some members only, among others to all."""
    if rng.random() < 0.5:
        return ()
    rate = rng.choice((5, 20, 60)) / n * 1_000_000 / unit_us
    sizes = (Sizes(0, 80, 20.0), Sizes(0, rng.choice((40, 400, 3000))))
    return (Poisson(rate=rate, some=rng.choice((0.3, 0.7, 1.0)), sizes=sizes),)


def draw_groups(rng: Random, n: int, unit_us: int) -> tuple[Workload, ...]:
    """In half of the seeds, groups that processors join and leave, and messages to these."""
    if rng.random() < 0.5:
        return ()
    rate = rng.choice((5, 20, 60)) / n * 1_000_000 / unit_us
    sizes = (Sizes(0, 80, 20.0), Sizes(0, rng.choice((40, 400, 3000))))
    every_us = n * unit_us // rng.choice((1, 4, 16))
    groups, safe = rng.choice((1, 3, 8)), rng.choice((0.0, 0.3, 1.0))
    return (Grouped(rate=rate, groups=groups, every_us=every_us, sizes=sizes, safe=safe),)


def _sometimes(rng: Random, chance: float, most: float) -> float:
    """Zero, or with ``chance`` anything up to ``most``, small values being likelier."""
    return round(most * rng.random() ** 2, 4) if rng.random() < chance else 0.0
