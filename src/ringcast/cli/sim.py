"""``ringcast sim``: a scenario, a run file, a seed, or a range of seeds over all cores."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from itertools import chain, count
from pathlib import Path
from random import Random
from shlex import quote
from time import perf_counter
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace

from ringcast.checks import PROPERTIES
from ringcast.cli.load import load_of
from ringcast.console.options import (
    OK,
    UNKNOWN,
    VIOLATED,
    check_within,
    fail,
    read_text,
    seed_range,
)
from ringcast.console.output import (
    as_json,
    coverage,
    figures,
    print_coverage,
    print_figures,
    print_summary,
    print_violations,
    progress,
    say,
)
from ringcast.core.explain import known
from ringcast.core.registry import Sheet
from ringcast.core.rings import SHAPES, Rings, shaped
from ringcast.protocols import DEFAULT
from ringcast.sim import runfile
from ringcast.sim.batch import CHUNK, Job, Summary, run_batch
from ringcast.sim.faults import FaultPlan
from ringcast.sim.run import RunResult, run
from ringcast.sim.scenario.parser import ScenarioError, run_text
from ringcast.sim.scenario.syntax import settings
from ringcast.sim.shrink import shrink
from ringcast.sim.spec import RunSpec, claims_of, prepare
from ringcast.sim.swarm import FEWEST_FIXED
from ringcast.sim.workload import MOST_BYTES
from ringcast.traces import TraceError, TraceWriter

LONGEST_S = 1e6
"""A longer simulation is taken for a slip of the pen."""


class SimPlan(msgspec.Struct, frozen=True):
    """What to run for each seed, and how to say one of the runs again."""

    seeds: range
    job: Callable[[int], Job]
    sheet: Sheet
    again: Callable[[int], str] | None = None
    """The command for one seed; None if the runs know it themselves."""


def sheet_of(spec: RunSpec) -> Sheet:
    """The sheet of a specification in which everything can be found."""
    try:
        return prepare(spec).sheet
    except ValueError as error:
        fail(str(error))


def plan_of_file(file: Path, seeds: str | None) -> SimPlan:
    """A run file, with its own seed or with those asked for."""
    try:
        spec = runfile.load(file)
    except ValueError as error:
        fail(str(error))
    chosen = seed_range(seeds) if seeds else range(spec.seed, spec.seed + 1)
    again = f"ringcast sim {file} --seeds"
    return SimPlan(chosen, lambda n: Job(n, spec=spec), sheet_of(spec), lambda n: f"{again} {n}")


def settings_of(given: dict[str, Any]) -> dict[str, Any]:
    """What ``--set`` says."""
    try:
        return settings(given["--set"] or ())
    except ValueError as error:
        fail(f"--set {error}")


def plan_of_swarm(given: dict[str, Any], seeds: str) -> SimPlan:
    """Everything drawn from the seed, but what is given here."""
    nodes, profile = given["--nodes"], given["--profile"] or ""
    protocol, config = given["--protocol"] or DEFAULT, settings_of(given)
    outsider = given["--outsider"] or 0.0
    if nodes is not None and nodes < FEWEST_FIXED:
        fail(f"--nodes {nodes} is too few for --faults swarm; it needs {FEWEST_FIXED} or more")
    sheet = sheet_of(RunSpec(protocol=protocol, profile=profile, nodes=nodes or FEWEST_FIXED))
    chosen = seed_range(seeds)

    def job(seed: int) -> Job:
        return Job(seed, protocol, nodes, profile=profile, outsider=outsider, config=config)

    if not config:
        return SimPlan(chosen, job, sheet)
    for seed in chosen:  # what is set may contradict what is drawn
        try:
            prepare(job(seed).make())
        except ValueError as error:
            fail(f"--set does not suit what seed {seed} draws: {error}")
    again = " ".join(["ringcast sim", *as_typed(given), "--seeds"])
    return SimPlan(chosen, job, sheet, lambda seed: f"{again} {seed}")


def plan_of_options(given: dict[str, Any], seeds: str) -> SimPlan:
    """The same group, network, load and faults for every seed."""
    nodes, rings = given["--nodes"] or 5, rings_of(given)
    if rings:
        nodes = max(node for ring in rings for node in ring)
    faults = () if given["--faults"] == "none" else read_faults(Path(given["--faults"]), nodes)
    seconds = given["--seconds"]
    if seconds is None:
        seconds = max((fault.at_us for fault in faults), default=0) / 1e6 + 1
    check_within("--seconds", seconds, 0.001, LONGEST_S)
    duration_us = round(seconds * 1e6)
    spec = RunSpec(
        protocol=given["--protocol"] or DEFAULT,
        nodes=nodes,
        rings=rings,
        network=given["--network"] or "lan",
        profile=given["--profile"] or "",
        config=settings_of(given),
        duration_us=duration_us,
        measure_from_us=duration_us // 2,
        workload=load_of(given["--load"], given["--size"], given["--safe"]),
        faults=faults,
    )
    again = " ".join(["ringcast sim", *as_typed(given), "--seeds"])
    chosen = seed_range(seeds)
    return SimPlan(chosen, lambda n: Job(n, spec=spec), sheet_of(spec), lambda n: f"{again} {n}")


def rings_of(given: dict[str, Any]) -> Rings:
    """The network of rings that is asked for; none, if none is."""
    count, shape = given["--rings"], given["--topology"]
    if shape is not None and shape.endswith(".toml"):
        if count is not None or given["--nodes"] is not None:
            fail(f"{shape} says which rings there are: leave --rings and --nodes out")
        try:
            return runfile.load_rings(Path(shape))
        except ValueError as error:
            fail(f"--topology: {error}")
    if count is None:
        if shape is not None:
            fail("--topology says how rings are joined: add --rings COUNT, or name a .toml file")
        return ()
    if shape is not None and shape not in SHAPES:
        fail(f"--topology {shape!r}: {known(shape, sorted(SHAPES))}; or name a .toml file")
    return shaped(shape or "chain", count, given["--nodes"] or 2, Random(0))


def as_typed(given: dict[str, Any]) -> Generator[str, None, None]:
    """The options that were given, as words of a command line."""
    for name, value in given.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                yield f"{name} {quote(str(each))}"


def read_faults(file: Path, nodes: int) -> FaultPlan:
    """The plan of ``--faults FILE``; warnings go to the error stream."""
    try:
        plan, warnings = runfile.load_faults(file, range(1, nodes + 1))
    except ValueError as error:
        fail(str(error))
    for warning in warnings:
        typer.echo(f"{file}: {warning}", err=True)
    return plan


def results(
    plan: SimPlan, workers: int | None, folder: Path | None
) -> Generator[RunResult, None, None]:
    """The runs as they end; traced ones one after another in this process."""
    if folder is None:
        yield from run_batch(map(plan.job, plan.seeds), workers)
        return
    for seed in plan.seeds:
        spec = plan.job(seed).make()
        with TraceWriter(folder, seed, claims_of(spec)) as writer:
            result = run(spec, [writer])
        yield result


def verdicts(summary: Summary) -> dict[str, str]:
    """What any run claimed, over all runs: invalid if one broke it, unknown if none could tell."""
    broken = {breach.property for breach in summary.violations}
    judged = broken | summary.valid.keys() | summary.unknown.keys()
    return {
        claim: "invalid" if claim in broken else "unknown" if not summary.valid[claim] else "valid"
        for claim in PROPERTIES
        if claim in judged
    }


def free_name(stem: str) -> Path:
    """A run file that does not exist yet: ``stem.toml``, or else with a number."""
    names = chain([stem], (f"{stem}-{i}" for i in count(2)))
    return next(file for name in names if not (file := Path(f"{name}.toml")).exists())


def shrink_first(plan: SimPlan, summary: Summary, out: Path | None) -> dict[str, object]:
    """Reduce the first run that failed and write it down as a run file."""
    seed = min(breach.seed for breach in summary.violations)
    shrunk = shrink(plan.job(seed).make())
    file = out or free_name(f"shrunk-{seed}")
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(runfile.dump(shrunk.spec))
    except OSError as error:
        print_violations(summary.violations, err=True)
        fail(f"cannot write {str(file)!r} ({error.strerror}); --out says where else")
    return {
        "file": str(file),
        "property": shrunk.breach.property,
        "faults": len(shrunk.spec.faults),
        "runs": shrunk.runs,
        "repeat": f"ringcast sim {quote(str(file))}",
    }


def run_scenario(file: Path, json: bool) -> None:
    """Carry out a scenario file and compare what is seen with what it says."""
    text = read_text(file, "a scenario file is wanted here")
    try:
        result = run_text(text, str(file))
    except ScenarioError as error:
        fail(str(error))
    if json:
        as_json({"ok": result.ok, "diff": result.diff, "violations": result.violations})
    else:
        if result.diff:
            typer.echo(result.diff)
        for violation in result.violations:
            typer.echo(f"violated {violation.property}: {violation.explanation}")
        typer.echo(f"{file}: {'as written' if result.ok else 'differs from what is written'}")
    raise typer.Exit(OK if result.ok else VIOLATED)


def command(
    file: Annotated[
        Path | None, typer.Argument(help="A scenario (.txt) or a run file (.toml).")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help=f"The protocol [default: {DEFAULT}].")
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=255,
            help="Members [default: 3 to 9 in a swarm, more on several rings, else 5].",
        ),
    ] = None,
    rings: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=16,
            help="Rings that gateways join, each of --nodes members [default: 2] and gateways.",
        ),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            help=f"How they are joined: {', '.join(SHAPES)}, or a .toml file with its own rings "
            "[default: chain]."
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="A seed, or a range such as 0..200 [default: 0..100].")
    ] = None,
    faults: Annotated[
        str | None, typer.Option(help="swarm, none, or a file with a plan [default: swarm].")
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="A named network; a swarm draws its own [default: lan].")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="The protocol's settings, by name [default: the first].")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="<key=value>", help="Another setting; may be repeated."),
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(
            help="poisson:RATE, in messages a second and member, saturate, or none "
            "[default: poisson:200]."
        ),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=0, max=MOST_BYTES, help="Bytes a message [default: 16 to 64].")
    ] = None,
    safe: Annotated[
        float | None, typer.Option(help="Share of the messages that are safe [default: 0.3].")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Simulated; speed is measured in the second half "
            "[default: until 1 s after the last fault]."
        ),
    ] = None,
    outsider: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="In a swarm: seal frames, and let somebody without the key act upon this share.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Write the traces as Parquet files into this directory.")
    ] = None,
    shrinking: Annotated[
        bool, typer.Option("--shrink", help="Reduce the first failing run to a small run file.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Where --shrink puts the run file [default: shrunk-SEED.toml here]."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Processes [default: one a core].")
    ] = None,
    covering: Annotated[
        bool, typer.Option("--coverage", help="Count the visits of each (phase, input) cell.")
    ] = False,
) -> None:
    """Run simulated groups under faults and check every property the protocol claims."""
    began_s = perf_counter()
    drawn: dict[str, Any] = {
        "--rings": rings,
        "--topology": topology,
        "--network": network,
        "--load": load,
        "--size": size,
        "--safe": safe,
        "--seconds": seconds,
    }
    given: dict[str, Any] = {"--protocol": protocol, "--nodes": nodes, "--faults": faults}
    given["--outsider"] = outsider
    given |= {"--network": network, "--profile": profile, "--set": changes or None} | drawn
    if file is not None:
        beside = dict(given)
        if file.suffix == ".txt":
            beside |= {"--seeds": seeds, "--trace": trace, "--jobs": jobs}
            beside |= {"--shrink": shrinking or None, "--coverage": covering or None}
        if excess := [name for name, value in beside.items() if value is not None]:
            fail(f"{excess[0]} cannot be combined with a file, which says it all: {file}")
    if trace is not None and jobs is not None:
        fail("--jobs cannot be combined with --trace, which writes one run after another")
    if out is not None and not shrinking:
        fail("--out is where --shrink puts its run file, so add --shrink")
    if out is not None and (out.exists() or not out.parent.is_dir()):
        why = "is there already" if out.exists() else f"needs a directory {str(out.parent)!r}"
        fail(f"--out {out} {why}; name a new file")

    if file is not None and file.suffix == ".txt":
        run_scenario(file, json)
    if file is not None:
        plan = plan_of_file(file, seeds)
    elif faults in (None, "swarm"):
        if excess := [name for name, value in drawn.items() if value is not None]:
            fail(f"{excess[0]} is drawn by a swarm from the seed; to choose it, add --faults none")
        plan = plan_of_swarm(given, seeds or "0..100")
    elif outsider is not None:
        fail("--outsider is for --faults swarm; in a run file, say outsider = SHARE")
    else:
        plan = plan_of_options(given, seeds or "0..100")

    summary = Summary()
    total = len(plan.seeds)
    workers = min(jobs, total) if jobs else 1 if total <= CHUNK else None
    try:
        with (
            closing(results(plan, workers, trace)) as source,
            closing(progress(source, total, quiet=json or total == 1)) as shown,
        ):
            for result in shown:
                summary.add(result)
    except (OSError, TraceError) as error:
        fail(str(error))
    if plan.again is not None:
        again = plan.again
        summary.violations = [replace(b, repeat=again(b.seed)) for b in summary.violations]

    judged = verdicts(summary)
    certain = bool(judged) and "unknown" not in judged.values()
    code = VIOLATED if summary.violations else OK if certain else UNKNOWN
    report: dict[str, object] = {
        "protocol": plan.sheet.name,
        "runs": summary.runs,
        "events": summary.events,
        "deliveries": summary.deliveries,
        "views": summary.views,
        "frames": summary.frames,
        "simulated_s": summary.simulated_us / 1e6,
        "wall_s": round(perf_counter() - began_s, 3),
        "faults": dict(sorted(summary.faults.items())),
        "verdicts": judged,
        "judged": {claim: [summary.valid[claim], summary.unknown[claim]] for claim in judged},
        "violations": summary.violations,
    }
    if summary.measures.span_us:
        report |= figures(summary.measures)
    if shrinking and summary.violations:
        report["shrunk"] = shrink_first(plan, summary, out)
    if covering:
        report["coverage"] = coverage(plan.sheet, summary.visits)
    if json:
        as_json(report)
        raise typer.Exit(code)
    if covering:
        print_coverage(coverage(plan.sheet, summary.visits))
    print_violations(summary.violations)
    if isinstance(shrunk := report.get("shrunk"), dict):
        say(f"shrunk to {shrunk['faults']} faults in {shrunk['runs']} runs: {shrunk['repeat']}")
    if summary.measures.span_us:
        print_figures(summary.measures)
    print_summary(summary, judged, perf_counter() - began_s)
    raise typer.Exit(code)
