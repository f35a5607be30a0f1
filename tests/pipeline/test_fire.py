"""Exactly once under fire, in short: ``fire.py`` by hand has more kills, and any seed."""

from __future__ import annotations

from pathlib import Path

import fire
import pytest


@pytest.mark.parametrize(("seed", "kills"), [(105, 5)])
def test_rows_out_are_rows_in(first_session: None, tmp_path: Path, seed: int, kills: int) -> None:
    assert fire.run(seed, kills, tmp_path) == []


@pytest.mark.parametrize("volatile", [False, True], ids=["killed", "without power"])
def test_all_members_at_once(tmp_path: Path, volatile: bool) -> None:
    """What was acknowledged is in every journal afterwards, in the same order."""
    assert fire.all_at_once(tmp_path, 2, volatile) == []


def test_a_plan_is_drawn_from_its_seed() -> None:
    assert fire.draw(3, 40) == fire.draw(3, 40) != fire.draw(4, 40)
    assert {moment for moment, *_ in fire.draw(3, 20)} == set(fire.MOMENTS)
