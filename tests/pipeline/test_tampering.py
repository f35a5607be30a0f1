"""Every kind of tampering, in the trace of every protocol, is found by every engine alike.

The engines are the checks fed event by event, the condensed verification, and the queries of the
cross-check. Each must name the property and the processors that the table names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import edits
import msgspec
import pytest
from edits import Edited, by_checks, condensed_differs, edited, write
from published import PUBLISHED
from tampering import PROTOCOLS, TAMPERINGS, Nodes, Trace, right

from ringcast.checks import PROPERTIES
from ringcast.core.trace import TraceEvent
from ringcast.pipeline.verify.crosscheck import CrossResult, cross_check, disagreements
from ringcast.traces import Claims

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

CASES = [
    (kind, protocol)
    for kind in TAMPERINGS.values()
    for protocol in PROTOCOLS
    if kind.unseen or protocol in kind.breaks
]

QUERIED = [
    number
    for number, (kind, protocol) in enumerate(CASES)
    if protocol in edits.SHORT or (protocol, kind.breaks.get(protocol)) == ("counter", "content")
]
"""What the queries judge: most kinds look the same to them in every protocol."""

SEEDS = (27, 33, 40, 69, 102, 181, 245, 345, 650, *range(1000, 1010), *range(10_000, 10_006))
"""Random edits; the first ones are those that engines have disagreed about."""

Rights = dict[str, tuple[list[TraceEvent], Claims]]


class Folder(msgspec.Struct, frozen=True):
    """All tampered traces, a run each, and who is to be named; then the random edits."""

    path: Path
    named: list[Nodes]
    edits: dict[int, Edited]


@pytest.fixture(scope="module")
def rights() -> Rights:
    """A right trace of each protocol, and what is claimed of it."""
    return {protocol: right(protocol) for protocol in PROTOCOLS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, rights: Rights) -> Folder:
    path = tmp_path_factory.mktemp("tampered")
    named = []
    for number, (kind, protocol) in enumerate(CASES):
        events, claims = rights[protocol]
        trace = Trace(events)
        named.append(kind.edit(trace))
        write(path, number, trace.events, claims)
    random = {seed: edited(seed) for seed in SEEDS}
    for number, case in enumerate(random.values(), len(CASES)):
        write(path, number, case.events, case.claims)
    return Folder(path, named, random)


@pytest.mark.parametrize(
    "number", range(len(CASES)), ids=lambda n: f"{CASES[n][0].name}-{CASES[n][1]}"
)
def test_checks_and_condensed(number: int, folder: Folder, rights: Rights) -> None:
    path, named, (kind, protocol) = folder.path, folder.named, CASES[number]
    _, claims = rights[protocol]
    checks = by_checks(path, number, claims)
    found = {violation.property: violation.nodes for violation in checks.violations}
    if kind.unseen:
        assert not found
    else:
        assert kind.breaks[protocol] in found
        assert named[number] in (None, found[kind.breaks[protocol]])
    assert list(condensed_differs(path, number, checks, claims)) == []


@pytest.fixture(scope="module")
def answers(spark: SparkSession, folder: Folder) -> list[CrossResult]:
    runs = [*QUERIED, *range(len(CASES), len(CASES) + len(SEEDS))]
    return cross_check(spark, folder.path, PROPERTIES, runs)


def test_queries(folder: Folder, answers: list[CrossResult], rights: Rights) -> None:
    lines = []
    for number in QUERIED:
        kind, protocol = CASES[number]
        checks = by_checks(folder.path, number, rights[protocol][1])
        found = disagreements(number, checks.verdicts(), checks.violations, answers)
        lines += [f"{kind.name} in {protocol}: {line}" for line in found]
    assert not lines, "\n".join(lines)


def test_random_edits(folder: Folder, answers: list[CrossResult]) -> None:
    """All three engines alike; ``edits.py`` looks at ten thousand."""
    lines = edits.differences(folder.path, folder.edits, answers, first=len(CASES))
    assert not (found := list(lines)), "\n".join(found)


def test_what_cannot_be_seen_says_why() -> None:
    unseen = [kind for kind in TAMPERINGS.values() if not kind.breaks]
    assert len(unseen) < len(TAMPERINGS) / 8
    assert all(kind.unseen for kind in unseen)


def test_every_protocol_claims_that_one_place_is_one_message() -> None:
    """And what its sender submitted: those that are only compared as well, whatever else Table 4 of
    Chang and Hwang says of them (``protocols/compared``)."""
    for sheet in PUBLISHED:
        for config in sheet.profiles.values():
            assert "content" in sheet.claims(config), sheet.name


def test_right_traces_are_as_long_as_the_edits_need(rights: Rights) -> None:
    assert all(len(events) > 200 for events, _ in rights.values())


def test_edits_run_by_themselves() -> None:
    """Without what pytest puts on the path."""
    edits_py = Path(edits.__file__)
    env = {**os.environ, "PYTHONPATH": str(edits_py.parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, str(edits_py), "--help"], capture_output=True, text=True, env=env
    )
    assert done.returncode == 0 and "Such as" in done.stdout, done.stderr
