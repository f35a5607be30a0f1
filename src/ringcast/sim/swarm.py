"""Swarm testing: a whole configuration drawn from one seed.

Each seed enables only some kinds of faults and only some features. A draw that always used
everything would hide what only shows when most things are quiet. Every topic has its own random
stream, so fixing the number of processors leaves the other draws as they were.

Times are drawn in proportion to the delay of a link, which makes the runs short: a simulated
run is some tens of token losses long, however long that is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from msgspec.structs import replace

from ringcast.sim import swarm_token_fd, swarm_total
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
from ringcast.sim.run import RunSpec
from ringcast.sim.swarm_faults import any_node, draw_faults, draw_leaves, in_order
from ringcast.sim.workload import Bursts, ClosedLoop, Fill, Poisson, Saturate, Sizes, Workload

FEWEST, MOST = 3, 9
"""Processors of a run, when the number is not fixed."""

FEWEST_FIXED = 2
"""When it is: a swarm breaks links, so there must be one."""


def draw(
    seed: int, protocol: str = "totem", nodes: int | None = None, profile: str = ""
) -> RunSpec:
    """The run of ``seed``; with ``nodes`` given, of that many processors. What is not drawn of the
    protocol's settings is the profile's."""

    def stream(topic: str) -> Random:
        return Random(f"{seed}/swarm/{topic}")

    fixed = protocol == "token-fd"
    rng = stream("nodes")
    n = nodes or (rng.choice(swarm_token_fd.NODES) if fixed else rng.randint(FEWEST, MOST))
    hop_us = stream("hop").choice((200, 400, 800))
    unit_us = (8 + 4 * n) * hop_us
    """A handful of token rotations: the measure for timeouts and for how long faults last."""
    duration_us = unit_us * stream("duration").randint(6, 16)
    large = draw_large(stream("large"), n, duration_us)
    tune = SETTINGS.get(protocol)
    config = tune(stream, n, unit_us, bool(large)) if tune else {}
    model = draw_network(stream("network"), hop_us)
    model = draw_medium(stream("medium"), model, config, unit_us)
    if fixed:
        faults = swarm_token_fd.faults(stream, n, model, duration_us, unit_us)
    else:
        faults = in_order(
            draw_faults(stream("faults"), n, model, duration_us, unit_us),
            draw_leaves(stream("leaves"), n, duration_us, unit_us),
        )
    return RunSpec(
        protocol=protocol,
        profile=profile,
        nodes=n,
        seed=seed,
        duration_us=duration_us,
        network=model,
        config=config,
        workload=draw_workload(stream("workload"), n, unit_us) + large,
        faults=faults,
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


SETTINGS: Mapping[str, Callable[[Stream, int, int, bool], dict[str, Any]]] = {
    "totem": _totem,
    "token-fd": swarm_token_fd.settings,
    "total": swarm_total.settings,
}
"""How to draw the settings of a protocol from its streams, a number of processors, a unit of time
and whether there are large messages; a protocol that is not here has its default profile."""


def _sometimes(rng: Random, chance: float, most: float) -> float:
    """Zero, or with ``chance`` anything up to ``most``, small values being likelier."""
    return round(most * rng.random() ** 2, 4) if rng.random() < chance else 0.0
