"""Every kind of tampering, in the trace of every protocol, is found by every engine alike.

The engines are the checks fed event by event, the condensed verification, and the queries of the
cross-check. Each must name the property and the processors that the table names.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tampering import PROTOCOLS, TAMPERINGS, Nodes, Tampering, Trace, right
from test_verify_condense import culprits, set_sizes

from ringcast.checks import PROPERTIES, Suite, suite
from ringcast.checks.property import Reads
from ringcast.core.registry import protocol as sheet_of
from ringcast.core.trace import TraceEvent
from ringcast.pipeline.verify.crosscheck import CrossResult, cross_check, disagreements
from ringcast.pipeline.verify.run_verifier import ToJudge, judge
from ringcast.traces import Claims, TraceWriter, read_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

CASES = [
    (kind, protocol)
    for kind in TAMPERINGS.values()
    for protocol in PROTOCOLS
    if kind.unseen or protocol in kind.breaks
]


class Case:
    """One tampered trace, and what is to be found in it."""

    def __init__(self, kind: Tampering, protocol: str, events: list[TraceEvent]) -> None:
        trace = Trace(events)
        self.nodes: Nodes = kind.edit(trace)
        self.events = trace.events


@pytest.fixture(scope="module")
def rights() -> dict[str, tuple[list[TraceEvent], Claims]]:
    return {protocol: right(protocol) for protocol in PROTOCOLS}


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, rights: dict[str, tuple[list[TraceEvent], Claims]]
) -> tuple[Path, list[Nodes]]:
    """All tampered traces, a run each, and who is to be named."""
    path = tmp_path_factory.mktemp("tampered")
    named = []
    for number, (kind, protocol) in enumerate(CASES):
        events, claims = rights[protocol]
        case = Case(kind, protocol, events)
        named.append(case.nodes)
        with TraceWriter(path, number, claims) as writer:
            for event in case.events:
                writer(event)
    return path, named


def by_checks(path: Path, number: int, claims: Claims) -> Suite:
    checks = suite(claims.tags, claims.bound_us)
    for event in read_trace(path, number):
        checks.feed(event)
    return checks


@pytest.mark.parametrize(
    "number", range(len(CASES)), ids=lambda n: f"{CASES[n][0].name}-{CASES[n][1]}"
)
def test_checks_and_condensed(
    number: int,
    folder: tuple[Path, list[Nodes]],
    rights: dict[str, tuple[list[TraceEvent], Claims]],
) -> None:
    (path, named), (kind, protocol) = folder, CASES[number]
    _, claims = rights[protocol]
    checks = by_checks(path, number, claims)
    found = {violation.property: violation.nodes for violation in checks.violations}
    if kind.unseen:
        assert not found
    else:
        assert kind.breaks[protocol] in found
        assert named[number] in (None, found[kind.breaks[protocol]])
    tags = tuple(tag for tag in claims.tags if PROPERTIES[tag].reads < Reads.EVERY_EVENT)
    with pytest.MonkeyPatch.context() as patch:
        set_sizes(patch, group=64, window=120, run=4)
        condensed = judge(path, number, ToJudge(tags, Claims(())))
    assert not condensed.error
    verdicts = {tag: verdict for tag, verdict in checks.verdicts().items() if tag in tags}
    assert condensed.verdicts == verdicts
    assert culprits(condensed) == {each for each in culprits(checks) if each[0] in tags}


@pytest.fixture(scope="module")
def answers(spark: SparkSession, folder: tuple[Path, list[Nodes]]) -> list[CrossResult]:
    return cross_check(spark, folder[0], PROPERTIES)


def test_queries(
    folder: tuple[Path, list[Nodes]],
    answers: list[CrossResult],
    rights: dict[str, tuple[list[TraceEvent], Claims]],
) -> None:
    lines = []
    for number, (kind, protocol) in enumerate(CASES):
        checks = by_checks(folder[0], number, rights[protocol][1])
        found = disagreements(number, checks.verdicts(), checks.violations, answers)
        lines += [f"{kind.name} in {protocol}: {line}" for line in found]
    assert not lines, "\n".join(lines)


def test_what_cannot_be_seen_says_why() -> None:
    unseen = [kind for kind in TAMPERINGS.values() if not kind.breaks]
    assert len(unseen) < len(TAMPERINGS) / 8
    assert all(kind.unseen for kind in unseen)


def test_every_protocol_claims_that_one_place_is_one_message() -> None:
    for name in PROTOCOLS:
        sheet = sheet_of(name)
        for config in sheet.profiles.values():
            assert "content" in sheet.claims(config)
