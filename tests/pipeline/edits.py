"""Random edits of right traces, through all three engines: checks, condensed and queries.

Seeds below ``DRAWN`` edit one short run of a protocol, those from there on a run that a swarm
draws, with restarts, partitions, merges, quorums and messages reported uncertain. From ``SHARED``
on several seeds edit the same run, up to three times each, so that drawing costs little, and from
``LITTLE`` on little is sent in it: queries take time by the row, and an edit meets a change of the
group more often. From ``EVERY`` on every field of an event may be changed. The tests look at a
few. By hand, as many as there is time for, in passes of so many edits each:

    python tests/pipeline/edits.py 400000..410000 --record
    python tests/pipeline/edits.py 20000..40000 --no-queries

The first writes ``bench/results/edits.json`` after each pass and skips, when called again, the
passes that the same commit has made; its 10,000 edits take about half an hour of one core, half of
it for the queries. The second compares the checks with the condensed verification
alone, which takes no Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pyarrow.parquet
import pytest
import typer
from spoiling import EVERY_KIND, spoil
from tampering import LONG_US, right

from ringcast.checks import PROPERTIES, Suite, suite
from ringcast.checks.property import Reads
from ringcast.core.trace import Crashed, Delivered, Faulted, ReportedUncertain, TraceEvent
from ringcast.pipeline.spark.session import Where, open_session
from ringcast.pipeline.verify.crosscheck import CrossResult, disagreements, judge
from ringcast.pipeline.verify.crosscheck.compare import time_bounds
from ringcast.pipeline.verify.crosscheck.relations import interpreted, read_tables
from ringcast.pipeline.verify.run_verifier import VerifyRequest, verify_run
from ringcast.sim.run import run as simulate
from ringcast.sim.spec import claims_of
from ringcast.sim.swarm import draw
from ringcast.sim.workload import Bursts
from ringcast.traces import Claims, TraceFile, TraceWriter
from ringcast.traces import runs as runs_of
from ringcast.traces.schema import TABLES

sys.path.append(str(Path(__file__).parents[2] / "tools"))  # as for the tests
sys.path.append(str(Path(__file__).parents[2] / "bench"))

import record
from test_verify_condense import culprits, set_sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT = ("totem", "total", "token-fd")
DRAWN = 10_000
SHARED = 100_000
LITTLE = 200_000
EVERY = 400_000
EDITS_OF_ONE = 20
"""Edits of the same run, from ``SHARED`` on."""
SEVERAL = (
    *(("total", profile) for profile in ("agreed", "uniform", "prefix")),
    *((name, "") for name in ("totem", "token-fd", "counter", "rbp", "irbp", "totem-multi")),
)
"""Protocols and profiles whose runs are drawn."""


FULL_COMPILER = "-XX:TieredStopAtLevel=4"
"""For the JVM, by ``_JAVA_OPTIONS``: over several passes it saves half of the work on rows, which
our sessions, made for a quick start, forgo."""
ONE_STAGE = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}
"""Traces are small, so nothing is won by cutting them into parts or planning them anew."""


class Edited(msgspec.Struct, frozen=True):
    """A trace with one or two random mistakes, and what is claimed of it."""

    name: str
    events: list[TraceEvent]
    claims: Claims


@cache
def short(protocol: str) -> tuple[list[TraceEvent], Claims]:
    """One short run, the same for all seeds."""
    return right(protocol, every_us=LONG_US)


@lru_cache(maxsize=1)
def drawn(
    seed: int, longest: int = 2500, little: bool = False
) -> tuple[str, list[TraceEvent], Claims]:
    """A run of a swarm: one that is not long, breaks nothing and in which somebody fails; or one in
    which little is sent, too."""
    protocol, profile = SEVERAL[seed % len(SEVERAL)]
    rng = Random(f"edits/{seed}")
    while True:
        spec = draw(rng.randrange(10**6), protocol, profile=profile)
        if little:
            now_and_then = Bursts(messages=2, every_us=1 + spec.duration_us // 4, safe=0.4)
            spec = msgspec.structs.replace(spec, workload=(now_and_then,))
        events: list[TraceEvent] = []
        broken = simulate(spec, [events.append]).violations
        fails = any(isinstance(e, Crashed | Faulted | ReportedUncertain) for e in events)
        told = sum(isinstance(e, Delivered) for e in events)
        if fails and not broken and 150 < len(events) < longest and (told < 250 or not little):
            return f"{protocol} {profile} {spec.seed}", events, claims_of(spec)


def edited(seed: int) -> Edited:
    """The trace of a seed."""
    if seed < DRAWN:
        name = SHORT[seed % len(SHORT)]
        events, claims = short(name)
        return Edited(name, spoil(events, Random(seed), 1 + seed // len(SHORT) % 2), claims)
    if seed < SHARED:
        name, events, claims = drawn(seed)
        return Edited(name, spoil(events, Random(seed), 1 + seed % 2, EVERY_KIND), claims)
    name, events, claims = drawn(seed // EDITS_OF_ONE, longest=1000, little=seed >= LITTLE)
    edits = spoil(events, Random(seed), 1 + seed % 3, EVERY_KIND, every_field=seed >= EVERY)
    return Edited(name, edits, claims)


def write(folder: Path, run: int, events: list[TraceEvent], claims: Claims) -> None:
    """One run of the folder."""
    with TraceWriter(folder, run, claims) as writer:
        for event in events:
            writer(event)


def by_checks(events: Iterable[TraceEvent], claims: Claims) -> Suite:
    """What the checks say, fed event by event."""
    checks = suite(claims.tags, claims.bound_us)
    for event in events:
        checks.feed(event)
    return checks


def condensed_differs(folder: Path, run: int, checks: Suite, claims: Claims) -> Iterator[str]:
    """Where the condensed verification says something else, culprits included."""
    tags = tuple(tag for tag in claims.tags if PROPERTIES[tag].reads < Reads.EVERY_EVENT)
    with pytest.MonkeyPatch.context() as patch:
        set_sizes(patch, group=64, window=120, run=4)
        patch.setattr(TraceFile, "read", read_once)
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


def read_once(file: TraceFile, group: int, names: list[str] | None = None) -> Any:
    """Columns of a small file, of which one column after the other takes ten times as long."""
    whole = whole_group(file.path, group)
    return whole if names is None else whole.select(names)


@lru_cache(maxsize=64)
def whole_group(path: Path, group: int) -> Any:
    """All columns of a group of rows."""
    return pyarrow.parquet.ParquetFile(path).read_row_group(group, use_threads=False)


def by_queries(spark: SparkSession, folder: Path, together: Path) -> list[CrossResult]:
    """What the queries say, asked of all runs of a folder in one file for each table: of thousands
    of small files Spark would open each for each query."""
    runs = runs_of(folder)
    for table in TABLES:
        (together / table).mkdir(parents=True)
        found = [pyarrow.parquet.read_table(folder / table / f"{run}.parquet") for run in runs]
        pyarrow.parquet.write_table(pyarrow.concat_tables(found), together / table / "0.parquet")
    with interpreted(spark, together):
        tables = read_tables(spark, together, None)
        return judge(spark, tables, list(PROPERTIES), runs, time_bounds(folder, runs))


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
        checks = by_checks(trace.events, trace.claims)
        lines = []
        if answers is not None:
            lines = disagreements(run, checks.verdicts(), checks.violations, by_run[run])
        for line in (*lines, *condensed_differs(folder, run, checks, trace.claims)):
            yield f"seed {seed}, {trace.name}: {line}"


def one_pass(spark: SparkSession | None, seeds: Sequence[int]) -> list[str]:
    """Where the engines differ on these edits."""
    folder = Path(tempfile.mkdtemp(prefix="ringcast-edits-"))
    try:
        traces = {seed: edited(seed) for seed in seeds}
        for run, trace in enumerate(traces.values()):
            write(folder, run, trace.events, trace.claims)
        whole = folder / "together"
        answers = by_queries(spark, folder, whole) if spark else None
        return list(differences(folder, traces, answers))
    finally:
        shutil.rmtree(folder)


@contextmanager
def long_session(cores: int) -> Iterator[SparkSession]:
    """A session for many passes over small traces, in a process of its own."""
    os.environ.setdefault("_JAVA_OPTIONS", FULL_COMPILER)
    with open_session(Where(cores=cores)) as spark:
        for name, value in ONE_STAGE.items():
            spark.conf.set(name, value)
        yield spark


def recorded(commit: str) -> list[dict[str, Any]]:
    """The passes that this commit has made; sources that differ from it (+) begin anew."""
    file = record.RESULTS / "edits.json"
    found = json.loads(file.read_bytes()) if file.exists() else {}
    same = found.get("commit") == commit and not commit.endswith("+")
    passes: list[dict[str, Any]] = found["passes"] if same else []
    return passes


def main(
    seeds: Annotated[str, typer.Argument(help="Such as 10000..20000, the end not included.")],
    step: Annotated[int, typer.Option(help="Edits that are judged in one pass of queries.")] = 2000,
    cores: Annotated[int, typer.Option(help="Of this machine, for Spark.")] = 1,
    queries: Annotated[bool, typer.Option(help="Ask the queries, on Spark, as well.")] = True,
    keep: Annotated[
        bool, typer.Option("--record", help="Write the record, or go on with it.")
    ] = False,
    minutes: Annotated[float, typer.Option(help="No pass begins later than that.")] = 10**6,
) -> None:
    """Compare the engines on random edits; a line for each difference, one for each pass."""
    first, _, last = seeds.partition("..")
    todo, deadline = range(int(first), int(last)), time.monotonic() + 60 * minutes
    passes = recorded(record.commit()) if keep else []
    total = sum(len(each["differences"]) for each in passes)
    made = {(each["first"], each["last"], each["queries"]) for each in passes}
    with long_session(cores) if queries else nullcontext() as spark:
        for at in range(0, len(todo), step):
            some, start = todo[at : at + step], time.monotonic()
            if (some[0], some[-1], queries) in made or start > deadline:
                continue
            found = one_pass(spark, some)
            total += len(found)
            seconds = time.monotonic() - start
            for line in found:
                print(line)
            print(f"{some[0]}..{some[-1]} in {seconds:.0f} s, {total} differences", flush=True)
            done = {"first": some[0], "last": some[-1], "queries": queries, "differences": found}
            passes.append({**done, "seconds": round(seconds)})
            if keep:
                edits = sum(each["last"] - each["first"] + 1 for each in passes)
                record.write("edits", {"edits": edits, "differences": total, "passes": passes})
    raise typer.Exit(1 if total else 0)


if __name__ == "__main__":
    typer.run(main)
