"""Networks of rings: what they carry, when it is delivered, what is said besides, what a cut costs.

For protocols that bear gateways (``Sheet.most_ports``). A network is given by its shape, the number
of its rings and the processors of each besides gateways (``core.rings``). In one ring by itself a
silent processor is in a gateway's place, so that tokens have as far to go.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ringcast.core.effects import Broadcast, Effect
from ringcast.core.ids import NodeId
from ringcast.core.rings import Rings, shaped
from ringcast.core.trace import Delivered, Installed, TraceEvent
from ringcast.pipeline.papers.outages import longest
from ringcast.pipeline.sweep.study import StudyError
from ringcast.sim import workload
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import NodeCrash, Restart
from ringcast.sim.meter import Meter
from ringcast.sim.rings import attached
from ringcast.sim.run import RunResult
from ringcast.sim.run import run as simulate
from ringcast.sim.spec import RunSpec, prepare
from ringcast.sim.workload import ClosedLoop, Poisson, Sizes, Workload, made_here

FORMED_US = 900_000
"""By then all rings are joined, of a chain of 16 too."""
WARM_US = 30_000
"""From the first message until a loop of messages is as it stays."""


class RingRate(msgspec.Struct, frozen=True):
    """What a network orders."""

    messages_per_s: float
    """Over all rings."""


class RingDelay(msgspec.Struct, frozen=True):
    """How long messages take, and what is said about them."""

    messages: int
    mean_ms: float
    """From sending to delivery, averaged over receivers …"""
    last_ms: float
    """… and to the last of them."""
    words: float
    """Bytes of what machines say to each other in frames besides applications' messages, on all
    rings, for each message: bounds and acknowledgements, while nothing changes."""


class RingCut(msgspec.Struct, frozen=True):
    """What it takes until a network knows that it fell apart, and that it is whole again."""

    first_ms: float
    """From the crash of a gateway until somebody announces another topology …"""
    last_ms: float
    """… and until the last one is announced."""
    silent_ms: float
    """The longest time without a delivery at the processor that stays up and waits most …"""
    silent_least_ms: float
    """… and at the one that waits least."""
    changes: float
    """Topologies that a processor announces meanwhile, on average."""
    whole_last_ms: float
    """The same from its restart until the last one is announced …"""
    whole_changes: float
    """… and how many there are."""
    astray: int
    """Processors that are in another topology than they should be, by the end of either time."""


class GatewayShare(msgspec.Struct, frozen=True):
    """Rings joined by a gateway that may send so much in a visit of the token."""

    messages_per_s: float
    blocked: float
    """Share of the time in which applications are refused …"""
    blocks_per_s: float
    """… and how often that begins."""
    longest: int
    """The longest queue of a gateway, in messages."""
    idle: float
    """Share of the time in which a processor that is no gateway has nothing to send."""


def network_of(shape: str, count: int, each: int) -> Rings:
    """``count`` rings of ``each`` processors and gateways."""
    if count == 1:
        return (tuple(range(1, each + 2)),)
    return shaped(shape, count, each, Random(0))


def run_of(
    protocol: str,
    rings: Rings,
    loads: tuple[Workload, ...],
    config: dict[str, Any],
    from_us: int,
    span_us: int,
    seed: int,
    gateways: dict[str, Any] | None = None,
) -> RunSpec:
    """A run on a LAN in which ``span_us`` are measured."""
    return RunSpec(
        protocol=protocol,
        nodes=max(node for ring in rings for node in ring),
        rings=rings if len(rings) > 1 else (),
        seed=seed,
        duration_us=from_us + span_us,
        measure_from_us=from_us,
        config=config,
        gateways=gateways or {},
        workload=loads,
        settle=False,
    )


def sound(result: RunResult) -> RunResult:
    """The result; StudyError if a property was violated, which leaves nothing to measure."""
    if result.violations:
        raise StudyError(f"seed {result.seed}: {result.violations[0].explanation}")
    return result


def ring_rate(
    protocol: str,
    shape: str,
    rings: int,
    each: int,
    local: bool,
    under_way: int,
    span_us: int,
    config: dict[str, Any],
    gateways: dict[str, Any],
    seed: int,
) -> RingRate:
    """Everybody but gateways sends, to its own ring (``local``) or to all.

    ``under_way`` messages of 1,000 bytes of each sender are what fills a ring and no queue, which
    would block all; where everything goes to all rings, senders share them.
    """
    joined = network_of(shape, rings, each)
    loads = tuple(
        ClosedLoop(
            senders=ring[:each],
            to=tuple(sorted(ring)) if local else (),
            sizes=(Sizes(1000, 1000),),
            outstanding=under_way if local else max(under_way // rings, 1),
            think_us=1,
            start_us=FORMED_US,
        )
        for ring in joined
    )
    from_us = FORMED_US + WARM_US
    spec = run_of(protocol, joined, loads, config, from_us, span_us, seed, gateways)
    return RingRate(sound(simulate(spec)).measures.messages_per_s)


class SpokenWords:
    """Adds up what machines say to each other within frames, from a moment on.

    A frame that packs messages has them in its contents. What an application sent, or a gateway
    passes on of that, holds a body of the workload. Words are arrays of MessagePack.
    """

    def __init__(self, from_us: int) -> None:
        self._from_us = from_us
        self.bytes = 0

    def see(self, node: NodeId, effects: list[Effect], now_us: int) -> list[Effect]:
        """What a processor sends."""
        if now_us >= self._from_us:
            for effect in effects:
                if type(effect) is Broadcast:
                    contents = getattr(effect.message, "contents", None)
                    bodies: tuple[bytes, ...] = getattr(contents, "bodies", ())
                    self.bytes += sum(len(body) for body in bodies if is_word(body))
        return effects


def is_word(body: bytes) -> bool:
    """Whether a machine says it, not an application."""
    return 0x90 <= body[:1][0] <= 0x9F and not made_here(body) if body else False


def ring_delay(
    protocol: str,
    shape: str,
    rings: int,
    each: int,
    senders: Literal["one", "all"],
    rate: float,
    safe: float,
    span_us: int,
    config: dict[str, Any],
    seed: int,
) -> RingDelay:
    """``rate`` messages a second of 100 bytes, of one processor in the first ring or of all that
    are no gateways together."""
    joined = network_of(shape, rings, each)
    ids = tuple(range(1, rings * each + 1)) if senders == "all" else (1,)
    load = Poisson(
        rate=rate / len(ids),
        senders=ids,
        safe=safe,
        sizes=(Sizes(100, 100),),
        start_us=FORMED_US,
    )
    from_us = FORMED_US + WARM_US
    words = SpokenWords(from_us)
    spec = run_of(protocol, joined, (load,), config, from_us, span_us, seed)
    measures = sound(simulate(spec, taps=[words])).measures
    latency = measures.agreed + measures.safe
    if not latency.messages:
        raise StudyError("nothing was delivered in the part that is measured")
    return RingDelay(
        messages=latency.messages,
        mean_ms=latency.mean_ms,
        last_ms=latency.last_ms,
        words=words.bytes / measures.messages,
    )


def ring_cut(
    protocol: str,
    rings: int,
    each: int,
    rate: float,
    apart_us: int,
    whole_us: int,
    config: dict[str, Any],
    seed: int,
) -> RingCut:
    """The gateway in the middle of a chain crashes, and is started again after ``apart_us``.
    Everybody but gateways sends ``rate`` messages a second."""
    joined = network_of("chain", rings, each)
    gateway = rings * each + rings // 2
    load = Poisson(rate=rate, senders=tuple(range(1, rings * each + 1)))
    cut_us = FORMED_US + WARM_US
    again_us = cut_us + apart_us
    spec = run_of(protocol, joined, (load,), config, cut_us, apart_us + whole_us, seed)
    seen: list[Installed] = []
    delivered_us: dict[NodeId, list[int]] = {node: [] for node in spec.ids}

    def observe(event: TraceEvent) -> None:
        if isinstance(event, Installed):
            seen.append(event)
        elif isinstance(event, Delivered):
            delivered_us[event.node].append(event.t_us)

    faults = (NodeCrash(cut_us, gateway), Restart(again_us, gateway))
    sound(simulate(replace(spec, faults=faults), [observe]))
    apart = [event for event in seen if cut_us <= event.t_us < again_us]
    whole = [event for event in seen if again_us <= event.t_us]
    all_nodes = {*spec.ids}
    parts = (joined[: rings // 2], joined[rings // 2 :])
    halves = [{node for ring in part for node in ring} - {gateway} for part in parts]
    silences_us = [
        longest([at_us for at_us in delivered_us[node] if at_us < again_us], cut_us, again_us)
        for node in all_nodes - {gateway}
    ]
    return RingCut(
        first_ms=(apart[0].t_us - cut_us) / 1e3,
        last_ms=(apart[-1].t_us - cut_us) / 1e3,
        silent_ms=max(silences_us) / 1e3,
        silent_least_ms=min(silences_us) / 1e3,
        changes=len(apart) / (spec.nodes - 1),
        whole_last_ms=(whole[-1].t_us - again_us) / 1e3,
        whole_changes=len(whole) / spec.nodes,
        astray=sum(astray(apart, half) for half in halves) + astray(whole, all_nodes),
    )


def astray(seen: Iterable[Installed], members: set[NodeId]) -> int:
    """How many of these processors did not end in a topology of all of them."""
    last = {event.node: set(event.members) for event in seen}
    return sum(last.get(node) != members for node in members)


LOOK_US = 5_000
"""How often queues are looked at."""


def gateway_share(spec: RunSpec) -> GatewayShare:
    """Carry ``spec`` out and look at the queues of its processors, ``Machine.snapshot``'s."""
    setup, places = prepare(spec), attached(spec.rings)
    between = [node for node, ports in places.items() if len(ports) > 1]
    from_us = spec.measure_from_us or 0
    meter = Meter(from_us, spec.duration_us)
    parts = (setup.sheet, setup.each, spec.ids, setup.model, spec.seed, [meter])
    cluster = Cluster(*parts, places)
    cluster.start()
    workload.start(spec.workload, cluster, spec.seed)
    cluster.run_until(from_us)
    looks = refused = begins = idle = most = 0
    before = True
    while cluster.now_us < spec.duration_us:
        cluster.run_for(LOOK_US)
        ready = all(cluster.nodes[node].ready for node in spec.ids)
        looks += 1
        refused += not ready
        begins += before and not ready
        before = ready
        for node in spec.ids:
            rings: Any = cluster.machine(node).snapshot()["rings"]
            queued = max(ring["queued"] for ring in rings.values())
            if node in between:
                most = max(most, queued)
            else:
                idle += not queued
    seconds = (spec.duration_us - from_us) / 1e6
    return GatewayShare(
        messages_per_s=meter.read().messages_per_s,
        blocked=refused / looks,
        blocks_per_s=begins / seconds,
        longest=most,
        idle=idle / looks / (spec.nodes - len(between)),
    )
