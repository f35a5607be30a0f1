"""Golden traces: small stories in the trace language, with the verdict of every property.

Below ``----`` stand the properties that are ``invalid`` and those that are ``unknown``; all others
are valid, but those that are about notes of which the story has none: these are unknown. The same
files are meant for every implementation of the checks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import ringcast.protocols  # noqa: F401  (some properties are a protocol's own)
from ringcast.checks import PROPERTIES, Verdict, suite
from ringcast.core.registry import protocol
from ringcast.core.trace import Noted
from ringcast.traces.text import parse

STORIES = sorted(Path(__file__).parent.glob("*.txt"))

TOPOLOGIES = {check.tag for check in protocol("totem-multi").checks}
"""These speak of several rings, which the stories do not have: ``tests/checks`` has wrong runs of
such networks."""

JUDGED = [tag for tag in PROPERTIES if tag not in TOPOLOGIES]


def expected(path: Path) -> dict[str, Verdict]:
    story, _, answers = path.read_text().partition("----\n")
    noted = {event.what for event in parse(story) if isinstance(event, Noted)}
    verdicts = {}
    for tag in JUDGED:
        kind = PROPERTIES[tag]
        silent = kind.needs_notes and noted.isdisjoint(kind.notes)
        verdicts[tag] = Verdict.UNKNOWN if silent else Verdict.VALID
    for line in answers.splitlines():
        verdict, *tags = line.split()
        for tag in tags:
            assert tag in JUDGED, tag
            verdicts[tag] = Verdict(verdict)
    return verdicts


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_verdicts(path: Path) -> None:
    checks = suite(JUDGED)
    for event in parse(path.read_text().partition("----\n")[0]):
        checks.feed(event)
    assert checks.verdicts() == expected(path)
    broken = {tag for tag, verdict in checks.verdicts().items() if verdict is Verdict.INVALID}
    assert {violation.property for violation in checks.violations} == broken


def test_every_property_is_broken_somewhere() -> None:
    seen = {
        tag
        for path in STORIES
        for line in path.read_text().partition("----\n")[2].splitlines()
        if line.startswith("invalid")
        for tag in line.split()[1:]
    }
    assert seen == set(JUDGED)


def test_every_property_is_valid_somewhere() -> None:
    valid = [path for path in STORIES if path.stem.startswith("valid_")]
    answers = [expected(path) for path in valid]
    assert all(any(a[tag] is Verdict.VALID for a in answers) for tag in JUDGED)
