"""A run: one specification in, one result out, in two stages.

First anything may go wrong, and safety is checked at every step. Then a core of the processors
is healed, and must come together and make progress in time (``sim.settle``).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from random import Random
from time import perf_counter

import msgspec

from ringcast.checks import Violation, suite
from ringcast.core.ids import NodeId
from ringcast.core.trace import Ended, TraceEvent
from ringcast.sim import workload as load
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import schedule
from ringcast.sim.meter import Measures, Meter, Turns
from ringcast.sim.record import Observer
from ringcast.sim.rings import attached
from ringcast.sim.scenario.log import Seer, tapped
from ringcast.sim.settle import Watch, draw_fixed_core, draw_whole_core, settle
from ringcast.sim.spec import RunSpec, claims_of, prepare, repeat_command
from ringcast.sim.storm import StormWatch


class Breach(msgspec.Struct, frozen=True):
    """A violation, and how to see it again."""

    property: str
    seed: int
    explanation: str
    repeat: str
    nodes: tuple[NodeId, ...] = ()
    messages: tuple[str, ...] = ()
    t_us: int = 0


class RunResult(msgspec.Struct, frozen=True):
    """What came of a run. Everything but ``wall_s`` is a function of the specification."""

    seed: int
    nodes: int
    events: int
    submitted: int
    deliveries: int
    views: int
    frames: int
    """Frames sent."""
    handled: int
    """Frames handed to machines."""
    lost: dict[str, int]
    faults: dict[str, int]
    """Faults of the first stage that took effect, by kind."""
    settled: tuple[NodeId, ...]
    """Who was healed and had to make progress; nobody if there was no second stage."""
    simulated_us: int
    measures: Measures
    """Empty unless the specification asks for them."""
    wall_s: float
    violations: tuple[Breach, ...]
    verdicts: dict[str, str]
    visits: dict[str, int]
    """How often each cell of the dispatch table was reached, as ``phase/input``."""
    digest: str
    """Hash of the whole trace."""


def run(
    spec: RunSpec,
    observers: Iterable[Observer] = (),
    repeat: str = "",
    taps: Iterable[Seer] = (),
) -> RunResult:
    """Carry out a run; ``repeat`` is the command to name in violations, if not the usual one.
    ``taps`` see the effects of machines besides."""
    began_s = perf_counter()
    setup = prepare(spec)
    claims = claims_of(spec)
    checks = suite(claims.tags, claims.bound_us)
    watch = Watch(setup.sheet.fixed)
    digest = blake2b(digest_size=16)
    encode = msgspec.msgpack.Encoder().encode

    def judge(event: TraceEvent) -> None:
        digest.update(encode(event))
        checks.feed(event)
        if checks.violations:
            cluster.scheduler.halted = True

    sheet = setup.sheet
    watching: list[Observer] = [judge, watch, *observers]
    seers = list(taps)
    meter: Meter | None = None
    if spec.measure_from_us is not None:
        meter = Meter(spec.measure_from_us, spec.duration_us)
        watching.append(meter)
        if sheet.turn:
            seers.append(Turns(meter, sheet.turn))
    for seer in seers:
        sheet = msgspec.structs.replace(sheet, make=tapped(sheet.make, seer))
    cluster = Cluster(
        sheet,
        setup.each,
        spec.ids,
        setup.model,
        spec.seed,
        watching,
        attached(spec.rings) or None,
        outsider=spec.outsider,
    )
    storms = StormWatch(cluster)
    schedule(spec.faults, cluster)
    stagger = Random(f"{spec.seed}/stagger")
    for node in spec.ids:
        at_us = stagger.randint(0, spec.stagger_us)
        cluster.scheduler.at(at_us, lambda node: cluster.start(node), node)
    loads = load.start(spec.workload, cluster, spec.seed)
    cluster.run_until(spec.duration_us)
    faults = dict(sorted(cluster.counts.faults.items()))

    found: list[Violation] = []
    settled: tuple[NodeId, ...] = ()
    if spec.settle and not cluster.scheduler.halted:
        for each in loads:
            each.stop()
        if sheet.fixed:
            settled = draw_fixed_core(spec, setup, cluster)
        else:
            settled = draw_whole_core(spec, setup, cluster, watch)
        if settled:
            found.extend(settle(cluster, setup, watch, settled, spec))
    if not cluster.scheduler.halted and not found:
        cluster.recorder.emit(Ended(cluster.now_us, watch.core))
    found = [*checks.violations, *cluster.recorder.violations, *storms.violations, *found]

    again = repeat or repeat_command(spec)
    counts = cluster.counts
    return RunResult(
        seed=spec.seed,
        nodes=spec.nodes,
        events=counts.events,
        submitted=counts.submitted,
        deliveries=counts.deliveries,
        views=counts.views,
        frames=counts.sent,
        handled=counts.handled,
        lost=dict(sorted(counts.lost.items())),
        faults=faults,
        settled=settled,
        simulated_us=cluster.now_us,
        measures=meter.read() if meter else Measures(),
        wall_s=perf_counter() - began_s,
        violations=tuple(
            Breach(v.property, spec.seed, v.explanation, again, v.nodes, v.messages, v.t_us)
            for v in found
        ),
        verdicts={name: str(verdict) for name, verdict in sorted(checks.verdicts().items())},
        visits=dict(sorted(cluster.visits.items())),
        digest=digest.hexdigest(),
    )
