"""Swarms of iRBP: nothing breaks, and runs repeat; docs/simulator.md records longer ones."""

from __future__ import annotations

import pytest

from ringcast.sim.run import run
from ringcast.sim.swarm import draw

SEEDS = (range(8), range(8, 16))

FORMER = (14, 36, 50, 68, 108, 245, 794)
"""Seeds that once found a bug."""


@pytest.mark.parametrize("seeds", (*SEEDS, FORMER), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_seeds_break_nothing(seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        result = run(draw(seed, "irbp"))
        assert not result.violations, f"{result.violations[0]}"


def test_a_seed_gives_the_same_run_again() -> None:
    assert run(draw(3, "irbp")).digest == run(draw(3, "irbp")).digest
