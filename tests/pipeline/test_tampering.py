"""Every kind of tampering, in the trace of every protocol, is found by every engine alike.

The engines are the checks fed event by event, the condensed verification, and the queries of the
cross-check. Each must name the property and the processors that the table names.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import edits
import pytest
from edits import Rights, by_checks, condensed_differs, edited, protocol_of, write
from tampering import PROTOCOLS, TAMPERINGS, Nodes, Tampering, Trace

from ringcast.checks import PROPERTIES
from ringcast.core.registry import protocol as sheet_of
from ringcast.core.trace import TraceEvent
from ringcast.pipeline.verify.crosscheck import CrossResult, cross_check, disagreements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

CASES = [
    (kind, protocol)
    for kind in TAMPERINGS.values()
    for protocol in PROTOCOLS
    if kind.unseen or protocol in kind.breaks
]


SEEDS = (27, 33, 40, 69, 102, 181, 245, 345, 650, *range(1000, 1023))
"""Random edits; the first ones are those that engines have disagreed about."""


class Case:
    """One tampered trace, and what is to be found in it."""

    def __init__(self, kind: Tampering, protocol: str, events: list[TraceEvent]) -> None:
        trace = Trace(events)
        self.nodes: Nodes = kind.edit(trace)
        self.events = trace.events


@pytest.fixture(scope="module")
def rights() -> Rights:
    return edits.rights()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, rights: Rights) -> tuple[Path, list[Nodes]]:
    """All tampered traces, a run each, and who is to be named; then the random edits."""
    path = tmp_path_factory.mktemp("tampered")
    named = []
    for number, (kind, protocol) in enumerate(CASES):
        events, claims = rights[protocol]
        case = Case(kind, protocol, events)
        named.append(case.nodes)
        write(path, number, case.events, claims)
    for number, seed in enumerate(SEEDS, len(CASES)):
        write(path, number, edited(seed, rights), rights[protocol_of(seed)][1])
    return path, named


@pytest.mark.parametrize(
    "number", range(len(CASES)), ids=lambda n: f"{CASES[n][0].name}-{CASES[n][1]}"
)
def test_checks_and_condensed(
    number: int, folder: tuple[Path, list[Nodes]], rights: Rights
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
    assert list(condensed_differs(path, number, checks, claims)) == []


@pytest.fixture(scope="module")
def answers(spark: SparkSession, folder: tuple[Path, list[Nodes]]) -> list[CrossResult]:
    return cross_check(spark, folder[0], PROPERTIES)


def test_queries(
    folder: tuple[Path, list[Nodes]], answers: list[CrossResult], rights: Rights
) -> None:
    lines = []
    for number, (kind, protocol) in enumerate(CASES):
        checks = by_checks(folder[0], number, rights[protocol][1])
        found = disagreements(number, checks.verdicts(), checks.violations, answers)
        lines += [f"{kind.name} in {protocol}: {line}" for line in found]
    assert not lines, "\n".join(lines)


def test_random_edits(
    folder: tuple[Path, list[Nodes]], answers: list[CrossResult], rights: Rights
) -> None:
    """All three engines alike; ``edits.py`` looks at ten thousand."""
    path, _ = folder
    lines = edits.differences(path, SEEDS, rights, answers, first=len(CASES))
    assert not (found := list(lines)), "\n".join(found)


def test_what_cannot_be_seen_says_why() -> None:
    unseen = [kind for kind in TAMPERINGS.values() if not kind.breaks]
    assert len(unseen) < len(TAMPERINGS) / 8
    assert all(kind.unseen for kind in unseen)


def test_every_protocol_claims_that_one_place_is_one_message() -> None:
    for name in PROTOCOLS:
        sheet = sheet_of(name)
        for config in sheet.profiles.values():
            assert "content" in sheet.claims(config)
