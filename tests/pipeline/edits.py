"""Random edits of right traces, through all three engines: checks, condensed and queries.

Seeds below ``DRAWN`` edit one short run of a protocol, those from there on a run that a swarm
draws, with restarts, partitions, merges, quorums and messages reported uncertain. The tests look at
a few. By hand, as many as there is time for, in passes of so many runs each:

    python tests/pipeline/edits.py 10000..20000 --step 2000
    python tests/pipeline/edits.py 20000..40000 --no-queries

The second compares the checks with the condensed verification alone, which takes no Spark.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from random import Random
from typing import Annotated

import msgspec
import pytest
import typer
from spoiling import EVERY_KIND, spoil
from tampering import right

from ringcast.checks import PROPERTIES, Suite, suite
from ringcast.checks.property import Reads
from ringcast.core.trace import Crashed, Faulted, ReportedUncertain, TraceEvent
from ringcast.pipeline.spark.session import Where, open_session
from ringcast.pipeline.verify.crosscheck import CrossResult, cross_check, disagreements
from ringcast.pipeline.verify.run_verifier import VerifyRequest, verify_run
from ringcast.sim.run import run as simulate
from ringcast.sim.spec import claims_of
from ringcast.sim.swarm import draw
from ringcast.traces import Claims, TraceWriter, read_trace

sys.path.append(str(Path(__file__).parents[2] / "tools"))  # as for the tests

from test_verify_condense import culprits, set_sizes

SHORT = ("totem", "total", "token-fd")
DRAWN = 10_000
SEVERAL = (
    *(("total", profile) for profile in ("agreed", "uniform", "prefix")),
    *((name, "") for name in ("totem", "token-fd", "counter", "rbp", "irbp", "totem-multi")),
)
"""Protocols and profiles whose runs are drawn."""


class Edited(msgspec.Struct, frozen=True):
    """A trace with one or two random mistakes, and what is claimed of it."""

    name: str
    events: list[TraceEvent]
    claims: Claims


@cache
def short(protocol: str) -> tuple[list[TraceEvent], Claims]:
    """One short run, the same for all seeds."""
    return right(protocol)


def drawn(seed: int) -> tuple[str, list[TraceEvent], Claims]:
    """A run of a swarm: one that is not long, breaks nothing and in which somebody fails."""
    protocol, profile = SEVERAL[seed % len(SEVERAL)]
    rng = Random(f"edits/{seed}")
    while True:
        spec = draw(rng.randrange(10**6), protocol, profile=profile)
        events: list[TraceEvent] = []
        broken = simulate(spec, [events.append]).violations
        fails = any(isinstance(e, Crashed | Faulted | ReportedUncertain) for e in events)
        if fails and not broken and 150 < len(events) < 2500:
            return f"{protocol} {profile} {spec.seed}", events, claims_of(spec)


def edited(seed: int) -> Edited:
    """The trace of a seed."""
    if seed < DRAWN:
        name = SHORT[seed % len(SHORT)]
        events, claims = short(name)
        return Edited(name, spoil(events, Random(seed), 1 + seed // len(SHORT) % 2), claims)
    name, events, claims = drawn(seed)
    return Edited(name, spoil(events, Random(seed), 1 + seed % 2, EVERY_KIND), claims)


def write(folder: Path, run: int, events: list[TraceEvent], claims: Claims) -> None:
    """One run of the folder."""
    with TraceWriter(folder, run, claims) as writer:
        for event in events:
            writer(event)


def by_checks(folder: Path, run: int, claims: Claims) -> Suite:
    """What the checks say, fed event by event."""
    checks = suite(claims.tags, claims.bound_us)
    for event in read_trace(folder, run):
        checks.feed(event)
    return checks


def condensed_differs(folder: Path, run: int, checks: Suite, claims: Claims) -> Iterator[str]:
    """Where the condensed verification says something else, culprits included."""
    tags = tuple(tag for tag in claims.tags if PROPERTIES[tag].reads < Reads.EVERY_EVENT)
    with pytest.MonkeyPatch.context() as patch:
        set_sizes(patch, group=64, window=120, run=4)
        found = verify_run(folder, run, VerifyRequest(tags, Claims(())))
    if found.error:
        yield f"condensed: {found.error}"
        return
    verdicts = checks.verdicts()
    for tag in tags:
        if found.verdicts[tag] != verdicts[tag]:
            yield f"{tag}: {verdicts[tag]}, but {found.verdicts[tag]} when condensed"
    named = {each for each in culprits(checks) if each[0] in tags}
    for each in sorted(map(str, culprits(found) ^ named)):
        yield f"condensed or checks alone name {each}"


def differences(
    folder: Path,
    traces: Mapping[int, Edited],
    answers: Sequence[CrossResult] | None,
    first: int = 0,
) -> Iterator[str]:
    """Where the three engines differ, or the first two if there are no answers; the edits, by seed,
    are runs of the folder, from ``first`` on."""
    by_run: dict[int, list[CrossResult]] = {}
    for answer in answers or ():
        by_run.setdefault(answer.run, []).append(answer)
    for run, (seed, trace) in enumerate(traces.items(), first):
        checks = by_checks(folder, run, trace.claims)
        lines = []
        if answers is not None:
            lines = disagreements(run, checks.verdicts(), checks.violations, by_run[run])
        for line in (*lines, *condensed_differs(folder, run, checks, trace.claims)):
            yield f"seed {seed}, {trace.name}: {line}"


def main(
    seeds: Annotated[str, typer.Argument(help="Such as 10000..20000, the end not included.")],
    step: Annotated[int, typer.Option(help="Edits that are judged in one pass of queries.")] = 1000,
    cores: Annotated[int, typer.Option(help="Of this machine, for Spark.")] = 1,
    queries: Annotated[bool, typer.Option(help="Ask the queries, on Spark, as well.")] = True,
) -> None:
    """Compare the engines on random edits; a line for each difference, one for each pass."""
    first, _, last = seeds.partition("..")
    todo = range(int(first), int(last))
    total = 0
    with open_session(Where(cores=cores)) if queries else nullcontext() as spark:
        for at in range(0, len(todo), step):
            some, start = todo[at : at + step], time.monotonic()
            folder = Path(tempfile.mkdtemp(prefix="ringcast-edits-"))
            try:
                traces = {seed: edited(seed) for seed in some}
                for run, trace in enumerate(traces.values()):
                    write(folder, run, trace.events, trace.claims)
                answers = cross_check(spark, folder, PROPERTIES) if spark else None
                for line in differences(folder, traces, answers):
                    total += 1
                    print(line, flush=True)
            finally:
                shutil.rmtree(folder)
            seconds = time.monotonic() - start
            print(f"{some[0]}..{some[-1]} in {seconds:.0f} s, {total} differences", flush=True)
    raise typer.Exit(1 if total else 0)


if __name__ == "__main__":
    typer.run(main)
