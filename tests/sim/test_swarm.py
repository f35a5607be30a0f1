"""The swarm: what a seed draws, many seeds at once, and shrinking one that fails."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from toy import SHEET

from ringcast.sim.batch import CHUNK, Job, Summary, run_batch
from ringcast.sim.faults import Crash, Drift, Pause, Restart, Resume
from ringcast.sim.run import RunSpec, prepare, run
from ringcast.sim.shrink import minimise, shrink
from ringcast.sim.swarm import EPISODES, FEWEST, MOST, draw
from ringcast.sim.workload import Poisson

assert SHEET.name == "toy"


def test_draws_are_legal_repeatable_and_within_bounds() -> None:
    for seed in range(200):
        spec = draw(seed)
        assert spec == draw(seed)
        assert FEWEST <= spec.nodes <= MOST
        prepare(spec)


def test_naming_the_number_of_processors_drawn_changes_nothing() -> None:
    for seed in range(50):
        spec = draw(seed)
        assert draw(seed, nodes=spec.nodes) == spec


def test_a_seed_enables_only_some_kinds_and_all_are_enabled_by_some() -> None:
    drawn = [{type(fault).__name__ for fault in draw(seed).faults} for seed in range(300)]
    everything = set().union(*drawn)
    assert len(everything) > len(EPISODES)
    assert all(len(kinds) < len(everything) for kinds in drawn)


def test_totem_holds_under_a_small_swarm() -> None:
    summary = Summary()
    for seed in range(25):
        summary.add(run(draw(seed)))
    assert [breach.repeat for breach in summary.violations] == []
    assert summary.runs == 25
    assert summary.deliveries > 1000


def test_a_batch_over_processes_gives_what_one_process_gives() -> None:
    jobs = [Job(seed, nodes=3) for seed in range(CHUNK + 4)]
    alone = {result.seed: result.digest for result in run_batch(jobs, workers=1)}
    shared = {result.seed: result.digest for result in run_batch(jobs, workers=2)}
    assert alone == shared
    assert len(alone) == CHUNK + 4
    assert not multiprocessing.active_children()


def test_leaving_a_batch_early_ends_its_workers() -> None:
    results = run_batch((Job(seed, nodes=3) for seed in range(10_000)), workers=2)
    next(results)
    assert multiprocessing.active_children()
    results.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()


def test_a_batch_can_repeat_one_specification() -> None:
    spec = RunSpec(protocol="toy", nodes=3, settle=False, duration_us=5_000)
    results = run_batch([Job(seed, spec=spec) for seed in (4, 5)], workers=1)
    assert [result.seed for result in results] == [4, 5]


@given(st.lists(st.integers(0, 30), unique=True), st.sets(st.integers(0, 30)))
def test_minimise_keeps_exactly_what_matters(items: list[int], needed: set[int]) -> None:
    relevant = needed & set(items)
    assert set(minimise(items, lambda rest: relevant <= set(rest))) == relevant


def test_shrinking_leaves_out_what_does_not_matter() -> None:
    faults: tuple[Any, ...] = (
        Drift(0, 1, 50),
        Pause(1_000, 3),
        Resume(2_000, 3),
        Crash(5_000, 2),
        Restart(6_000, 2),
        Pause(7_000, 1),
        Resume(8_000, 1),
    )
    spec = RunSpec(
        protocol="toy",
        nodes=3,
        duration_us=60_000,
        config={"raise_at": 3},
        workload=(Poisson(rate=200, start_us=10_000), Poisson(rate=100, start_us=40_000)),
        faults=faults,
        swarm=True,
    )
    small = shrink(spec)
    assert small.breach.property == "no-crash"
    assert small.spec.faults == ()
    assert len(small.spec.workload) == 1
    assert len(small.spec.workload[0].senders) in (1, 2)
    assert not small.spec.swarm
    assert run(small.spec).violations == (small.breach,)


def test_shrinking_stops_at_its_budget_and_refuses_what_does_not_fail() -> None:
    failing = RunSpec(
        protocol="toy",
        nodes=3,
        duration_us=60_000,
        config={"raise_at": 2},
        workload=(Poisson(rate=500),),
    )
    assert shrink(failing, budget=3).runs == 3
    with pytest.raises(ValueError, match="breaks no property"):
        shrink(replace(failing, config={}, settle=False))
