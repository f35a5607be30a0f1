"""Random edits of right traces, through all three engines: checks, condensed and queries.

The tests look at a few. By hand, as many as there is time for, in passes of so many runs each:

    python tests/pipeline/edits.py 0..10000 --step 2000
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Annotated

import pytest
import typer
from spoiling import spoil
from tampering import PROTOCOLS, right
from test_verify_condense import culprits, set_sizes

from ringcast.checks import PROPERTIES, Suite, suite
from ringcast.checks.property import Reads
from ringcast.core.trace import TraceEvent
from ringcast.pipeline.spark.session import Where, open_session
from ringcast.pipeline.verify.crosscheck import CrossResult, cross_check, disagreements
from ringcast.pipeline.verify.run_verifier import VerifyRequest, verify_run
from ringcast.traces import Claims, TraceWriter, read_trace

Rights = dict[str, tuple[list[TraceEvent], Claims]]


def rights() -> Rights:
    """A right trace of each protocol, and what is claimed of it."""
    return {protocol: right(protocol) for protocol in PROTOCOLS}


def protocol_of(seed: int) -> str:
    """Whose trace a seed edits."""
    return PROTOCOLS[seed % len(PROTOCOLS)]


def edited(seed: int, found: Rights) -> list[TraceEvent]:
    """The trace with one or two random mistakes."""
    events, _ = found[protocol_of(seed)]
    return spoil(events, Random(seed), 1 + seed // len(PROTOCOLS) % 2)


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
    seeds: Sequence[int],
    found: Rights,
    answers: Sequence[CrossResult],
    first: int = 0,
) -> Iterator[str]:
    """Where the three engines differ; the edits are runs of the folder, from ``first`` on."""
    by_run: dict[int, list[CrossResult]] = {}
    for answer in answers:
        by_run.setdefault(answer.run, []).append(answer)
    for run, seed in enumerate(seeds, first):
        protocol = protocol_of(seed)
        claims = found[protocol][1]
        checks = by_checks(folder, run, claims)
        lines = disagreements(run, checks.verdicts(), checks.violations, by_run[run])
        for line in (*lines, *condensed_differs(folder, run, checks, claims)):
            yield f"seed {seed}, {protocol}: {line}"


def main(
    seeds: Annotated[str, typer.Argument(help="Such as 0..10000, the end not included.")],
    step: Annotated[int, typer.Option(help="Edits that are judged in one pass of queries.")] = 1000,
    cores: Annotated[int, typer.Option(help="Of this machine, for Spark.")] = 1,
) -> None:
    """Compare the engines on random edits; a line for each difference, one for each pass."""
    first, _, last = seeds.partition("..")
    todo = range(int(first), int(last))
    found, total = rights(), 0
    with open_session(Where(cores=cores)) as spark:
        for at in range(0, len(todo), step):
            some, start = todo[at : at + step], time.monotonic()
            folder = Path(tempfile.mkdtemp(prefix="ringcast-edits-"))
            try:
                for run, seed in enumerate(some):
                    write(folder, run, edited(seed, found), found[protocol_of(seed)][1])
                answers = cross_check(spark, folder, PROPERTIES)
                for line in differences(folder, some, found, answers):
                    total += 1
                    print(line, flush=True)
            finally:
                shutil.rmtree(folder)
            seconds = time.monotonic() - start
            print(f"{some[0]}..{some[-1]} in {seconds:.0f} s, {total} differences", flush=True)
    raise typer.Exit(1 if total else 0)


if __name__ == "__main__":
    typer.run(main)
