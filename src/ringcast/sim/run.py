"""A run: one specification in, one result out, in two stages.

First anything may go wrong, and safety is checked at every step. Then a core of the processors
is healed, the others stay as broken as they are and cut off from it, and the core must come
together and make progress within the protocol's own bound (``Sheet.progress_bound_us``), or a
tighter one that the specification sets: once
for forming a configuration of exactly the core, and from then on between one delivery and the
next, until fresh messages of every core member, agreed and safe, are delivered everywhere in the
core. (Submitting has ended by then, and queues are bounded, so that is a bound on the whole.)
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from random import Random
from time import perf_counter
from typing import Annotated, Any, Literal

import msgspec

from ringcast.checks import Violation, suite
from ringcast.core.explain import known
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.registry import Membership, Sheet, protocol
from ringcast.core.rings import Rings
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Installed,
    Restarted,
    Submit,
    TraceEvent,
)
from ringcast.protocols import DEFAULT
from ringcast.sim import workload as load
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import FaultPlan, named, schedule
from ringcast.sim.meter import Measures, Meter, Turns
from ringcast.sim.model import Micros, NetworkModel, Share
from ringcast.sim.presets import preset
from ringcast.sim.record import Observer
from ringcast.sim.rings import attached, connected, in_domain
from ringcast.sim.scenario.log import tapped
from ringcast.sim.storm import StormWatch
from ringcast.sim.workload import Workload
from ringcast.traces import Claims


class RunSpec(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Everything a run depends on. The same specification gives the same trace."""

    protocol: str = DEFAULT
    nodes: Annotated[int, msgspec.Meta(ge=1, le=255)] = 5
    """The processors are 1 .. nodes."""
    rings: Rings = ()
    """The processors of each broadcast domain; one in several is a gateway (``sim.rings``). Empty:
    all are in one."""
    seed: int = 0
    duration_us: Micros = 1_000_000
    """Length of the first stage."""
    measure_from_us: Micros | None = None
    """Measure rates and latencies, of the first stage from here on."""
    network: str | NetworkModel = "lan"
    """The name of a preset, or a model."""
    profile: str = ""
    """The protocol's profile; empty is its default one."""
    config: dict[str, Any] = {}
    """Settings that differ from the profile."""
    workload: tuple[Workload, ...] = ()
    faults: FaultPlan = ()
    stagger_us: Micros = 0
    """The processors start at random moments within this time."""
    settle: bool = True
    """Whether there is a second stage."""
    core: Literal["drawn", "all"] | tuple[NodeId, ...] = "drawn"
    """Who is healed for it: any of them, all if there are no faults; all; or these."""
    progress_us: Annotated[int, msgspec.Meta(gt=0)] | None = None
    """A bound on it that is tighter than the protocol's own, for a run aimed at one delay."""
    outsider: Share = 0.0
    """Frames are sealed, and somebody on the path without the key acts upon this share of them."""
    swarm: bool = False
    """Whether ``swarm.draw`` made this from protocol, nodes and seed alone."""

    @property
    def ids(self) -> tuple[NodeId, ...]:
        """The processors."""
        return tuple(range(1, self.nodes + 1))


class Setup(msgspec.Struct, frozen=True):
    """A specification with its names looked up."""

    sheet: Sheet
    config: Any
    model: NetworkModel


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


def prepare(spec: RunSpec) -> Setup:
    """Look up and check everything ``spec`` names; ValueError says what is wrong."""
    try:
        sheet = protocol(spec.protocol)
        model = preset(spec.network) if isinstance(spec.network, str) else spec.network
        settings = msgspec.to_builtins(sheet.profile(spec.profile)) | spec.config
    except LookupError as error:
        raise ValueError(str(error)) from None
    if strange := sorted(settings.keys() - set(sheet.config.__struct_fields__)):
        there = known(strange[0], sheet.config.__struct_fields__)
        raise ValueError(f"config: {spec.protocol} has no setting {', '.join(strange)}; {there}")
    try:
        config = sheet.for_group(msgspec.convert(settings, sheet.config), spec.ids)
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"config: {error}") from None
    if (spec.measure_from_us or 0) > spec.duration_us:
        raise ValueError(
            f"measure_from_us {spec.measure_from_us} is after the end ({spec.duration_us} us)"
        )
    if spec.rings and sorted({n for ring in spec.rings for n in ring}) != list(spec.ids):
        raise ValueError(f"rings: they must hold the processors 1 .. {spec.nodes}, each somewhere")
    widest = max((len(ports) for ports in attached(spec.rings).values()), default=1)
    if widest > sheet.most_ports:
        raise ValueError(
            f"rings: one processor is in {widest} of them; {spec.protocol} bears {sheet.most_ports}"
        )
    pids = set(spec.ids)
    pids |= {pid for ports in attached(spec.rings).values() for _, pid in ports}
    for i, fault in enumerate(spec.faults):
        if strangers := sorted(named(fault) - pids):
            raise ValueError(f"faults[{i}]: no such processors: {strangers}")
        if fault.at_us > spec.duration_us:
            raise ValueError(
                f"faults[{i}]: at_us {fault.at_us} is after the end ({spec.duration_us} us)"
            )
    if isinstance(spec.core, tuple) and (not spec.core or set(spec.core) - set(spec.ids)):
        raise ValueError(f"core: {list(spec.core)} are not processors of 1 .. {spec.nodes}")
    for i, work in enumerate(spec.workload):
        if strangers := sorted(set(work.senders) - set(spec.ids)):
            raise ValueError(f"workload[{i}]: no such processors: {strangers}")
    return Setup(sheet, config, model)


def claims_of(spec: RunSpec) -> Claims:
    """What the protocol claims for this run."""
    setup = prepare(spec)
    sheet, config = setup.sheet, setup.config
    return Claims(sheet.claims(config), sheet.progress_bound_us(config, spec.nodes))


def repeat_command(spec: RunSpec) -> str:
    """The command that makes and runs ``spec`` again."""
    if not spec.swarm:
        return "ringcast sim RUN.toml"
    seeds = f"{spec.seed}..{spec.seed + 1}"
    profile = f" --profile {spec.profile}" if spec.profile else ""
    named = f"--protocol {spec.protocol}{profile} --nodes {spec.nodes}"
    named += f" --outsider {spec.outsider:g}" if spec.outsider else ""
    return f"ringcast sim {named} --seeds {seeds} --faults swarm"


class Watch:
    """What the second stage needs to know of the trace."""

    def __init__(self, fixed: bool = False) -> None:
        self._fixed = fixed
        self.views: dict[NodeId, tuple[ViewId, tuple[NodeId, ...]]] = {}
        """The regular configuration each processor is in, if it is in one."""
        self.awaited: dict[tuple[NodeId, int], set[NodeId]] = {}
        """Fresh messages, by sender and number, and who has yet to deliver them."""
        self.core: tuple[NodeId, ...] = ()
        """Whose submissions are fresh; nobody's in the first stage."""
        self.last_us = 0
        """When a processor of the core last delivered."""
        self.reached: dict[NodeId, int] = {}
        """The highest number each processor has delivered, the crashed ones included."""

    def __call__(self, event: TraceEvent) -> None:
        """Take note of one event."""
        match event:
            case Delivered():
                self.reached[event.node] = max(event.seq, self.reached.get(event.node, 0))
                if event.node not in self.core:
                    return
                self.last_us = event.t_us
                for number in range(event.first, event.first + len(event.digests)):
                    missing = self.awaited.get((event.sender, number))
                    if missing is not None:
                        missing.discard(event.node)
                        if not missing:
                            del self.awaited[event.sender, number]
            case Installed():
                if event.transitional:
                    self.views.pop(event.node, None)
                else:
                    self.views[event.node] = (event.view, event.members)
            case Submit(node=node) if node in self.core:
                for number in range(event.first, event.first + len(event.sizes)):
                    self.awaited[node, number] = set(self.core)
            case Crashed(node=node) | Restarted(node=node):
                self.views.pop(node, None)

    def common_view(self) -> ViewId | None:
        """The configuration that all of the core are in, if there is one.

        Nobody else is in it, unless the members are fixed.
        """
        found = [self.views.get(node) for node in self.core]
        first = found[0]
        if first is None or found.count(first) < len(found):
            return None
        return first[0] if first[1] == self.core or self._fixed else None

    def even(self) -> bool:
        """Whether all of the core have delivered what anybody has, as they must in a fixed group.

        A processor outside the core may hear it, and be the first to deliver.
        """
        furthest = max(self.reached.values(), default=None)
        return not self._fixed or all(self.reached.get(n) == furthest for n in self.core)

    def undelivered(self) -> str:
        """Some fresh messages that are still awaited."""
        open_ = [f"p{s}:{k} at {sorted(who)}" for (s, k), who in sorted(self.awaited.items())]
        return f"undelivered {open_[:4]}"


def run(spec: RunSpec, observers: Iterable[Observer] = (), repeat: str = "") -> RunResult:
    """Carry out a run; ``repeat`` is the command to name in violations, if not the usual one."""
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
    meter: Meter | None = None
    if spec.measure_from_us is not None:
        meter = Meter(spec.measure_from_us, spec.duration_us)
        watching.append(meter)
        if sheet.turn:
            turns = Turns(meter, sheet.turn)
            sheet = msgspec.structs.replace(sheet, make=tapped(sheet.make, turns))
    cluster = Cluster(
        sheet,
        setup.config,
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
        settled = draw_fixed_core(spec, setup, cluster) if sheet.fixed else draw_core(spec)
        settled = settled if remembers(settled, setup, cluster, watch) else ()
        if settled:
            found.extend(settle(cluster, setup, watch, settled, spec))
    if not cluster.scheduler.halted and not found:
        cluster.recorder.emit(Ended(cluster.now_us, settled))
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


def draw_core(spec: RunSpec) -> tuple[NodeId, ...]:
    """Which processors are healed; if drawn, often all, otherwise any number of them.

    Where one part alone goes on, it is such a part, or nobody: then nothing is promised.
    """
    setup = prepare(spec)
    primary = setup.sheet.membership is Membership.PRIMARY
    least = spec.nodes - setup.config.faults if primary else 1
    least = max(least, min(getattr(setup.config, "quorum", 0), spec.nodes))
    if isinstance(spec.core, tuple):
        core = tuple(sorted(set(spec.core)))
        return core if len(core) >= least else ()
    if spec.core == "all" or not spec.faults:
        return spec.ids
    rng = Random(f"{spec.seed}/core")
    size = spec.nodes if rng.random() < 0.4 else rng.randint(least, spec.nodes)
    core = tuple(sorted(rng.sample(spec.ids, size)))
    return core if not spec.rings or connected(spec.rings, core) else spec.ids


def remembers(core: tuple[NodeId, ...], setup: Setup, cluster: Cluster, watch: Watch) -> bool:
    """Whether enough of the core never crashed since they took part, for a protocol that relies on
    what they know."""
    nodes = cluster.nodes
    whole = [
        n for n in core if nodes[n].incarnation == 1 and n in watch.views and not nodes[n].leaving
    ]
    least = setup.config.steadfast if setup.sheet.listed else 0
    return len(whole) >= least


def draw_fixed_core(spec: RunSpec, setup: Setup, cluster: Cluster) -> tuple[NodeId, ...]:
    """Of a group with fixed members, those who never crashed, and perhaps not all of them.

    Nobody, if more have failed than the group bears: then nothing is promised.
    """
    nodes = cluster.nodes
    whole = [n for n in spec.ids if nodes[n].incarnation == 1 and nodes[n].machine is not None]
    spare = setup.config.faults - (spec.nodes - len(whole))
    wanted = spec.core if isinstance(spec.core, tuple) else spec.ids
    if spare < 0 or len(set(whole).difference(wanted)) > spare:
        return ()
    if spec.core == "drawn" and spec.faults:
        rng = Random(f"{spec.seed}/core")
        for _ in range(rng.randint(0, spare)):
            whole.remove(rng.choice(whole))
    return tuple(node for node in whole if node in wanted)


def settle(
    cluster: Cluster, setup: Setup, watch: Watch, core: tuple[NodeId, ...], spec: RunSpec
) -> list[Violation]:
    """The second stage; returns what the core failed to do in time."""
    bound_us = spec.progress_us or setup.sheet.progress_bound_us(setup.config, len(core))
    pulse_us = max(1, bound_us // 500)
    heal_core(cluster, core, Random(f"{spec.seed}/outsiders").random() < 0.7, spec.rings)
    deadline_us = cluster.now_us + bound_us
    watch.core = core
    view: ViewId | None = None
    wanted: list[tuple[NodeId, Level]] = []
    while not cluster.scheduler.halted:
        if view is None or watch.common_view() != view:
            # Not together yet, or only as a leftover of earlier days: fresh messages start anew.
            watch.awaited.clear()
            view = watch.common_view()
            wanted = [(node, level) for node in core for level in Level]
            watch.last_us = cluster.now_us
            if view is None and cluster.now_us >= deadline_us:
                return [_no_progress(cluster, watch, "no common configuration")]
        if view is not None:
            wanted = [fresh for fresh in wanted if not cluster.submit(fresh[0], (b"",), fresh[1])]
            if not wanted and not watch.awaited and watch.even():
                return []
            if cluster.now_us >= watch.last_us + bound_us:
                refused = [f"p{node} {level.name.lower()}" for node, level in wanted]
                return [_no_progress(cluster, watch, f"refused {refused}, {watch.undelivered()}")]
        cluster.run_for(pulse_us)
    return []


def heal_core(cluster: Cluster, core: tuple[NodeId, ...], deaf: bool, rings: Rings = ()) -> None:
    """Make ``core`` whole. The others cannot reach it; unless ``deaf``, they hear it."""
    cluster.calm()
    others = tuple(node for node in cluster.ids if node not in core)
    for domain in range(len(cluster.networks)):
        inside, outsiders = core, others
        if rings:
            inside, outsiders = (in_domain(rings, domain, some) for some in (core, others))
        if outsiders and deaf:
            cluster.partition([inside, outsiders], domain)
        else:
            for src in outsiders:
                for dst in inside:
                    cluster.cut(src, dst, domain)
    for node in core:
        cluster.nodes[node].disarm()
        if cluster.nodes[node].leaving:
            cluster.crash(node)  # it would go when the others let it, and it is to come back
        cluster.restart(node)
        cluster.resume(node)


def _no_progress(cluster: Cluster, watch: Watch, text: str) -> Violation:
    states = []
    for node in watch.core:
        machine = cluster.nodes[node].machine
        phase = "down" if machine is None else str(machine.phase)
        view, members = watch.views.get(node, ("no view", ""))
        states.append(f"p{node} {phase} {view}{members}")
    explanation = f"core {watch.core} at {cluster.now_us} us: {text}; {', '.join(states)}"
    return Violation("progress", explanation, watch.core, (), cluster.now_us)
