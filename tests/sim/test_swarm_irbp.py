"""Swarms of iRBP: nothing breaks, runs repeat, and unsafe is what it says.

docs/simulator.md records longer ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ringcast.checks import Violation
from ringcast.core.registry import register
from ringcast.protocols.irbp import SHEET, Config, Irbp
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import NetworkPartition
from ringcast.sim.run import run
from ringcast.sim.settle import settle
from ringcast.sim.spec import RunSpec
from ringcast.sim.swarm import draw

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))
from parted_irbp import parted

SEEDS = (
    range(8),
    range(8, 16),
    (6000074, 6010235, 6020374, 6040627, 6060129, 6050243),
    (6060971, 6061093, 6061317, 6070053, 6072684, 6071425),
)
"""The third: one that came back without its storage is no member, though it takes itself for one;
all but one remember nothing; one starts late, with a number that the others gave anew; and a Join
comes late, of a life that is over. The last: storage is lost of one that was a member no longer;
and whoever decided on a ring crashes, before those that it is for know of it."""

FORMER = (14, 36, 50, 55, 68, 108, 245, 794, 979, 3000230)
"""Seeds that once found a bug, with the usual history, when anybody could crash in every run."""

FELL = (197, 266, 278, 681, 1485, 2000018)
"""The same, where nobody keeps anything."""

HELD = (3015455, 3016061, 3016145, 3027315)
"""Seeds of which more was asked than is promised, or that found a bug since a minority crashes in
most runs."""


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_seeds_break_nothing(seeds: Sequence[int]) -> None:
    for seed in seeds:
        result = run(draw(seed, "irbp"))
        assert not result.violations, f"{result.violations[0]}"
        assert result.settled, "its core must come together and deliver"


@pytest.fixture
def anybody_crashes() -> Iterator[None]:
    """Runs as they were drawn when these seeds found something."""
    register(replace(SHEET, swarm=replace(SHEET.swarm, minority=0.0)))
    yield
    register(SHEET)


@pytest.mark.usefixtures("anybody_crashes")
@pytest.mark.parametrize("history_bytes, seeds", [(Config().history_bytes, FORMER), (0, FELL)])
def test_former_seeds_break_nothing(history_bytes: int, seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        result = run(draw(seed, "irbp", config={"history_bytes": history_bytes}))
        assert not result.violations, f"{result.violations[0]}"


@pytest.mark.parametrize("seed", HELD)
def test_seeds_with_a_minority_that_crashes_break_nothing(seed: int) -> None:
    result = run(draw(seed, "irbp"))
    assert not result.violations, f"{result.violations[0]}"


def test_c3_buffers_are_empty_when_a_group_has_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload leaves the channel when it has arrived, or when a view proves its receiver gone:
    after the conservative limit and one change, whoever may have crashed."""
    looked = 0

    def settle_and_look(cluster: Cluster, *arguments: Any) -> list[Violation]:
        nonlocal looked
        found = settle(cluster, *arguments)
        for node in arguments[1].core if not found else ():
            machine = cluster.machine(node)
            assert isinstance(machine, Irbp)
            settings = machine.chooser.settings
            end_us = cluster.now_us + settings.exclude_max_us + 40 * settings.resend_us
            while machine.chooser.channel.machine.waiting and cluster.now_us < end_us:
                cluster.run_for(settings.resend_us)
            assert not machine.chooser.channel.machine.waiting, f"{node} at {cluster.now_us} us"
            looked += 1
        return found

    monkeypatch.setattr("ringcast.sim.run.settle", settle_and_look)
    for seed in range(20, 32):
        assert not run(draw(seed, "irbp")).violations
    assert looked > 20


def test_a_seed_gives_the_same_run_again() -> None:
    assert run(draw(3, "irbp")).digest == run(draw(3, "irbp")).digest


@pytest.mark.parametrize("core, promised", [((1, 3), False), ((1, 2), True), ((1, 2, 3), True)])
def test_nothing_is_promised_where_too_few_of_the_view_are_left(
    core: tuple[int, ...], promised: bool
) -> None:
    """A5: 3 was excluded for its long silence, so that one of two is no majority any more."""
    limits = {"suspect_us": 20_000, "exclude_us": 200_000, "exclude_max_us": 200_000}
    spec = RunSpec(
        protocol="irbp",
        nodes=3,
        duration_us=600_000,
        config={"beat_us": 5_000, "suspect_max_us": 40_000, **limits},
        workload=(),
        faults=(NetworkPartition(100_000, ((1, 2), (3,))),),
        core=core,
    )
    result = run(spec)
    assert not result.violations, f"{result.violations[0]}"
    assert result.settled == (core if promised else ())


UNSAFE_SEED = 285


def unsafe(seed: int) -> RunSpec:
    """A ring of three of five, of which two are cut off, at the level unsafe."""
    spec = parted(seed)
    return replace(spec, config=spec.config | {"resiliency": "unsafe"})


@pytest.fixture(params=["uniform-in-view", "D9", "content"])
def claimed(request: pytest.FixtureRequest) -> Iterator[str]:
    """A property that the level unsafe does not claim, claimed."""
    register(replace(SHEET, claims=lambda config: (request.param,)))
    yield request.param
    register(SHEET)


def test_the_unsafe_level_delivers_what_is_void(claimed: str) -> None:
    """T25: P2 (uniform-in-view) and P4 (one order in a view) are violated."""
    (violation,) = run(unsafe(UNSAFE_SEED)).violations
    assert violation.property == claimed
    assert not run(parted(UNSAFE_SEED)).violations, "and not at the level total"


def test_the_unsafe_level_keeps_what_it_claims() -> None:
    specs = [draw(seed, "irbp", config={"resiliency": "unsafe"}) for seed in range(10)]
    for spec in (unsafe(2), unsafe(UNSAFE_SEED), *specs):
        result = run(spec)
        assert not result.violations, f"{result.violations[0]}"
