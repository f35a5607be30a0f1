"""Bugs of small programs are found, and nothing is reported on the same programs without them."""

from __future__ import annotations

import pytest
from seeded_bugs import CATALOGUE

from ringcast.testing import World, simtest

each = pytest.mark.parametrize("name", CATALOGUE)


@each
def test_the_bug_is_found(name: str) -> None:
    """By the seed that is written down, or by another one: a change of a protocol moves them."""
    bug = CATALOGUE[name]
    errors = (bug.run(seed, broken=True).error for seed in (bug.shown_by, *range(1000)))
    assert isinstance(next(filter(None, errors), None), AssertionError)


@each
def test_nothing_is_reported_without_the_bug(name: str) -> None:
    bug = CATALOGUE[name]
    for seed in (bug.shown_by, *range(5)):
        outcome = bug.run(seed, broken=False)
        assert outcome.error is None, f"seed {seed}: {outcome.error}"


def test_there_are_twelve_and_each_says_what_it_is() -> None:
    assert len(CATALOGUE) >= 12
    for name, bug in CATALOGUE.items():
        assert bug.test.__doc__, name


@simtest(seeds=20, faults="swarm", span=5.0)
async def test_a_fenced_lock_protects_what_is_written(world: World) -> None:
    """``bench/simulated.py million`` runs a million seeds of this one on Spark."""
    await CATALOGUE["lock_without_fencing"].test(world, False)
