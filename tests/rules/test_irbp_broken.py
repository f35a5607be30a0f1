"""Scenarios notice what is broken: iRBP, broken in one place each."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken_irbp import BROKEN

from ringcast.sim.scenario.parser import run_file

SCENARIOS = Path(__file__).parents[1] / "scenarios" / "irbp"


@pytest.mark.parametrize("name", BROKEN)
def test_a_scenario_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, scenario = BROKEN[name]
    path = SCENARIOS / f"{scenario}.txt"
    patch(monkeypatch)
    assert not run_file(path).ok


def test_figure_34_as_printed_gives_a_delivered_number_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T38: the ring begins before what a member has delivered, which notices and stops."""
    patch, scenario = BROKEN["figure_34_as_printed"]
    patch(monkeypatch)
    result = run_file(SCENARIOS / f"{scenario}.txt")
    (violation,) = result.violations
    assert violation.property == "no-crash" and "begins at" in violation.explanation
