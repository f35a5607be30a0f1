"""What a run is specified by, and what the names in it stand for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ringcast.core.errors import RingcastError
from ringcast.core.explain import explained, known
from ringcast.core.ids import NodeId
from ringcast.core.registry import Sheet, protocol
from ringcast.core.rings import Rings
from ringcast.core.settings import FILLED_IN
from ringcast.protocols import DEFAULT
from ringcast.sim.faults import FaultPlan, named
from ringcast.sim.model import Micros, NetworkModel, Share
from ringcast.sim.presets import preset
from ringcast.sim.rings import attached, in_domain, unjoined
from ringcast.sim.workload import Grouped, Workload
from ringcast.traces import Claims


class SpecError(RingcastError, ValueError):
    """A run that cannot be made; the text names the setting and says what it may be."""


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
    gateways: dict[str, Any] = {}
    """Settings of processors in several rings that differ from all these."""
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
    each: Any
    """What a cluster takes: ``config``, or one for each processor where gateways differ."""


def prepare(spec: RunSpec) -> Setup:
    """Look up and check everything ``spec`` names; SpecError says what is wrong."""
    try:
        sheet = protocol(spec.protocol)
        model = preset(spec.network) if isinstance(spec.network, str) else spec.network
        settings = msgspec.to_builtins(sheet.profile(spec.profile)) | spec.config
    except LookupError as error:
        raise SpecError(str(error)) from None
    each = config = configured(spec, sheet, settings, "config")
    if spec.gateways:
        theirs = configured(spec, sheet, settings | spec.gateways, "gateways")
        ports = attached(spec.rings)
        each = {node: theirs if len(ports.get(node, ())) > 1 else config for node in spec.ids}
        if theirs not in each.values():
            raise SpecError("gateways: nobody is in several rings; leave it out, or give rings")
    if (spec.measure_from_us or 0) > spec.duration_us:
        raise SpecError(
            f"measure_from_us {spec.measure_from_us} is after the end ({spec.duration_us} us)"
        )
    if spec.rings and sorted({n for ring in spec.rings for n in ring}) != list(spec.ids):
        raise SpecError(f"rings: they must hold the processors 1 .. {spec.nodes}, each somewhere")
    widest = max((len(ports) for ports in attached(spec.rings).values()), default=1)
    if widest > sheet.most_ports:
        raise SpecError(
            f"rings: one processor is in {widest} of them; {spec.protocol} bears {sheet.most_ports}"
        )
    if apart := unjoined(spec.rings):
        raise SpecError(f"rings: no gateways lead from the first ring to {list(map(list, apart))}")
    domains = [{*in_domain(spec.rings, i, spec.ids)} for i in range(len(spec.rings))]
    domains = domains or [{*spec.ids}]
    for i, fault in enumerate(spec.faults):
        domain = getattr(fault, "domain", None)
        if domain is not None and not 0 <= domain < len(domains):
            raise SpecError(f"faults[{i}]: domain {domain} is none of 0 .. {len(domains) - 1}")
        there = set(spec.ids) if domain is None else domains[domain]
        if strangers := sorted(named(fault) - there):
            where = f" in domain {domain}, which has {sorted(there)}" if domain is not None else ""
            raise SpecError(f"faults[{i}]: no such processors{where}: {strangers}")
        if fault.at_us > spec.duration_us:
            raise SpecError(
                f"faults[{i}]: at_us {fault.at_us} is after the end ({spec.duration_us} us)"
            )
    if isinstance(spec.core, tuple) and (not spec.core or set(spec.core) - set(spec.ids)):
        raise SpecError(f"core: {list(spec.core)} are not processors of 1 .. {spec.nodes}")
    for i, work in enumerate(spec.workload):
        if strangers := sorted(set(work.senders) - set(spec.ids)):
            raise SpecError(f"workload[{i}]: no such processors: {strangers}")
        some = "some" if getattr(work, "some", 0) else "to" if work.to else ""
        if some and not sheet.multicast:
            raise SpecError(f"workload[{i}]: {some}: {spec.protocol} sends every message to all")
        if isinstance(work, Grouped) and not sheet.groups:
            raise SpecError(f"workload[{i}]: {spec.protocol} sends every message to all groups")
        if work.to and not {*work.senders} <= {*work.to} <= {*spec.ids}:
            raise SpecError(f"workload[{i}]: to: name processors, and all that send among them")
        if work.to and (not work.senders or work.to != tuple(sorted({*work.to}))):
            raise SpecError(f"workload[{i}]: to: ascending, each once, and with senders named")
    return Setup(sheet, config, model, each)


def configured(spec: RunSpec, sheet: Sheet, settings: dict[str, Any], field: str) -> Any:
    """The configuration that these settings make; SpecError names the field that gives them."""
    if strange := sorted(settings.keys() - set(sheet.config.__struct_fields__)):
        names = sheet.config.__struct_fields__
        there = known(strange[0], (name for name in names if name not in FILLED_IN))
        raise SpecError(f"{field}: {spec.protocol} has no setting {', '.join(strange)}; {there}")
    try:
        config = sheet.for_group(msgspec.convert(settings, sheet.config), spec.ids)
    except msgspec.ValidationError as error:
        raise SpecError(f"{field}: {explained(error, sheet.config, FILLED_IN)}") from None
    except ValueError as error:
        raise SpecError(f"{field}: {error}") from None
    if why := config.unfit(spec.nodes):
        raise SpecError(f"{field}: {why}")
    return config


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
