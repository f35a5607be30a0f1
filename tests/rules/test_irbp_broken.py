"""Scenarios notice what is broken: iRBP, broken in one place each, and the source as printed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from broken_irbp import BROKEN

from ringcast.sim.scenario.parser import run_file

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))
import literal_irbp  # noqa: F401
from mutant import MUTANTS

SCENARIOS = Path(__file__).parents[1] / "scenarios" / "irbp"


@pytest.mark.parametrize("name", BROKEN)
def test_a_scenario_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, scenario = BROKEN[name]
    path = SCENARIOS / f"{scenario}.txt"
    patch(monkeypatch)
    assert not run_file(path).ok


@pytest.mark.parametrize(
    ("mutant", "scenario", "broken", "words"),
    [
        pytest.param(
            "a-contribution-binds-nobody",
            "t37_an_ack_after_the_freeze",
            "no-crash",
            "never took part before",
            id="T37, G31",
        ),
        pytest.param(
            "figure-34-as-printed",
            "t38_the_ring_begins_with_one_that_missed_it",
            "no-crash",
            "never took part before",
            id="T38, G35",
        ),
        pytest.param(
            "a-majority-of-the-ring-decides",
            "t39_two_of_five",
            "uniform-in-view",
            "did not deliver it",
            id="T39, G37",
        ),
    ],
)
def test_the_source_read_literally_loses_what_was_delivered(
    mutant: str, scenario: str, broken: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G31, G35, G37: a ring or a view begins before what a member has delivered; that member stops,
    or others go on without it."""
    MUTANTS[mutant].patch(monkeypatch)
    (violation,) = run_file(SCENARIOS / f"{scenario}.txt").violations
    assert violation.property == broken and words in violation.explanation
