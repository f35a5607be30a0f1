"""Replicas over every protocol with a membership, under swarm faults, lost disks included; and
engines that are wrong on purpose, which the judge must catch."""

from __future__ import annotations

import pytest
from simulated import World, Wrong
from wrong_engines import (
    AcksBeforeTheDisk,
    AppendsAfterTheView,
    AppendsBeforeActivation,
    CountsBlankDisks,
    LongestWins,
    ReadsAtOnce,
    RefusesInAMinority,
    SaysTooLittle,
    TooFewDisks,
)

from ringcast.replica.engine import Engine

SEEDS = range(20)


@pytest.mark.parametrize("protocol", ["totem", "total", "token-fd"])
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_confirmed_is_lost_or_contradicted(protocol: str, seed: int) -> None:
    world = World(seed, protocol, by_number=seed % 3 == 0)
    world.run()
    if protocol != "token-fd":  # crashed members do not come back there
        world.settle()


@pytest.mark.parametrize("protocol", ["totem", "total"])
def test_nor_while_cuts_move_and_all_are_killed(protocol: str) -> None:
    """Much is confirmed, and reads are answered, although disks are lost."""
    confirmed = reads = 0
    for seed in range(12):
        world = World(seed, protocol, by_number=seed % 3 == 0, moving=True)
        world.run()
        world.settle()
        confirmed += world.judge.confirmed
        reads += world.judge.reads
    assert confirmed > 12 * 40
    assert reads > 12 * 4


CAUGHT = {
    AcksBeforeTheDisk: 20,
    SaysTooLittle: 7,
    CountsBlankDisks: 22,
    AppendsAfterTheView: 477,
    TooFewDisks: 12,
    ReadsAtOnce: 0,
    AppendsBeforeActivation: 2,
    LongestWins: 0,
    RefusesInAMinority: 0,
}
"""Each wrong engine, and a seed that once showed it."""


def caught(mutant: type[Engine], seed: int) -> bool:
    world = World(seed, engine=mutant, moving=True)
    try:
        world.run()
        world.settle()
    except Wrong:
        return True
    return False


@pytest.mark.parametrize("mutant", CAUGHT, ids=lambda mutant: mutant.__name__)
def test_a_wrong_engine_is_caught(mutant: type[Engine]) -> None:
    """By its seed or, when a change makes that take another course, by one of the first ones."""
    seeds = (CAUGHT[mutant], *range(600))
    assert any(caught(mutant, seed) for seed in seeds), mutant.__doc__
