"""Swarms of TOTAL: each mode keeps what it claims, and prefix mode breaks what it does not."""

from __future__ import annotations

import pytest

from ringcast.checks import suite
from ringcast.protocols.total import SHEET
from ringcast.sim.batch import Job
from ringcast.sim.run import RunResult, run
from ringcast.sim.spec import claims_of, repeat_command
from ringcast.sim.swarm import draw

SEEDS = range(8)


def once(mode: str, seed: int, seen: dict[tuple[str, int], RunResult] = {}) -> RunResult:  # noqa: B006
    """The run of a seed; a second call does not run it again."""
    if (mode, seed) not in seen:
        seen[mode, seed] = run(draw(seed, "total", profile=mode))
    return seen[mode, seed]


@pytest.mark.parametrize("mode", SHEET.profiles)
def test_seeds_break_nothing(mode: str) -> None:
    for seed in SEEDS:
        result = once(mode, seed)
        assert not result.violations, f"{result.violations[0]}"
        claims = claims_of(draw(seed, "total", profile=mode)).tags
        assert result.verdicts.keys() == set(claims) <= set(SHEET.claims(SHEET.profiles[mode]))


def test_a_seed_gives_the_same_trace_twice_and_another_one_in_another_mode() -> None:
    assert run(draw(5, "total", profile="agreed")).digest == once("agreed", 5).digest
    assert once("uniform", 5).digest != once("agreed", 5).digest


def ends_differently(mode: str, seed: int) -> bool:
    """Whether members that went on together had not delivered the same."""
    same_set = suite(["D6"])
    run(draw(seed, "total", profile=mode), [same_set.feed])
    return bool(same_set.violations)


def test_without_a_flush_a_view_ends_differently_for_its_members() -> None:
    """Prefix mode does not promise D6 and breaks it; with a flush the same seed keeps it."""
    seed = next(seed for seed in SEEDS if ends_differently("prefix", seed))
    assert not ends_differently("agreed", seed)
    assert not ends_differently("uniform", seed)


def test_a_number_proposed_again_without_storage_is_nobodys_fault() -> None:
    """G-1: the number of a proposal rests on storage, as M8 does."""
    result = run(Job(3012518, "total", 6, profile="prefix").make())
    assert not result.violations


def test_in_uniform_mode_all_messages_are_safe_ones() -> None:
    result = once("uniform", 0)
    assert result.deliveries > 0
    assert {result.verdicts["D10"], result.verdicts["D11"]} <= {"valid", "unknown"}


def test_the_line_that_repeats_a_run_names_the_mode() -> None:
    spec = Job(3, "total", 4, profile="uniform").make()
    assert spec.profile == "uniform"
    assert repeat_command(spec) == (
        "ringcast sim --protocol total --profile uniform --nodes 4 --seeds 3..4 --faults swarm"
    )
