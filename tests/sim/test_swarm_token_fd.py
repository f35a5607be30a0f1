"""Swarms of token-fd: nothing breaks, every fault takes effect, every cell is reached."""

from __future__ import annotations

from collections import Counter

import pytest

from ringcast.core.ids import NodeId
from ringcast.core.machine import Impossible, name
from ringcast.core.trace import Crashed, Ended, TraceEvent
from ringcast.protocols.token_fd.config import LAN
from ringcast.protocols.token_fd.machine import TokenFd
from ringcast.sim.faults import Leave, NodeCrash, Torn
from ringcast.sim.run import RunResult, run
from ringcast.sim.settle import fell_behind
from ringcast.sim.spec import RunSpec, prepare
from ringcast.sim.swarm import draw

SEEDS = range(30)
CHUNKS = tuple(SEEDS[i : i + 10] for i in range(0, len(SEEDS), 10))

OTHERS = range(30, 300)
"""Where to look on when a change of the protocol has made those take another course."""

CELLS = {f"{phase}/{name(key)}": cell for (phase, key), cell in TokenFd.table.cells.items()}
REASONS = {at: cell.reason for at, cell in CELLS.items() if isinstance(cell, Impossible)}
IMPOSSIBLE = REASONS.keys()

FAULTS = {
    "black hole", "burst tail", "copy", "crash", "cut", "delay", "drift", "drop", "duplicate",
    "expire", "heal", "leave", "link", "loss", "mend", "partition", "pause", "reorder", "restart",
    "resume", "tear", "torn crash",
}  # fmt: skip


def once(seed: int, seen: dict[int, RunResult] = {}) -> RunResult:  # noqa: B006
    """The run of a seed; a second call does not run it again."""
    if seed not in seen:
        seen[seed] = run(draw(seed, "token-fd"))
    return seen[seed]


@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_seeds_break_nothing(seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        result = once(seed)
        assert not result.violations, f"{result.violations[0]}"
        assert result.verdicts["token-path"] == "valid"
        assert result.verdicts["total-order"] != "invalid"


def test_groups_are_of_the_sizes_that_are_asked_for_and_no_more_than_f_go() -> None:
    sizes: Counter[tuple[int, int]] = Counter()
    for seed in range(200):
        spec = draw(seed, "token-fd")
        config = prepare(spec).config
        sizes[spec.nodes, config.faults] += 1
        gone = {f.node for f in spec.faults if isinstance(f, NodeCrash | Torn | Leave)}
        assert len(gone) <= config.faults
    assert sizes.keys() == {(3, 1), (4, 1), (7, 2)}
    assert draw(5, "token-fd", nodes=13).nodes == 13


def test_every_kind_of_fault_takes_effect() -> None:
    hit: Counter[str] = Counter()
    for seed in SEEDS:
        hit.update(once(seed).faults)
    assert not FAULTS - hit.keys()


def test_every_cell_is_reached_or_impossible() -> None:
    visits: Counter[str] = Counter()
    for seed in (*SEEDS, *OTHERS):
        visits.update(once(seed).visits)
        if visits.keys() >= CELLS.keys() - IMPOSSIBLE:
            break
    assert visits.keys() == CELLS.keys() - IMPOSSIBLE
    assert all(len(reason) > 20 for reason in REASONS.values())


FELL = (259, 1478, 2848)
"""Somebody falls behind what the others keep: in the first stage, when it is healed, and in a run
in which another one leaves."""


def stopped(spec: RunSpec) -> list[NodeId]:
    """Who fell behind; nothing may be broken."""
    seen: list[TraceEvent] = []
    result = run(spec, [seen.append])
    assert not result.violations, f"{result.violations[0]}"
    gone = [e.node for e in seen if isinstance(e, Crashed) and fell_behind(e.reason)]
    end = seen[-1]
    assert isinstance(end, Ended) and not set(gone) & set(end.settled)
    return gone


@pytest.mark.parametrize("seed", FELL)
def test_who_falls_behind_stops_and_the_others_go_on(seed: int) -> None:
    assert stopped(draw(seed, "token-fd"))
    assert not stopped(draw(seed, "token-fd", config={"history_bytes": LAN.history_bytes}))


def test_a_seed_gives_the_same_trace_twice() -> None:
    assert run(draw(7, "token-fd")).digest == once(7).digest


def test_who_is_settled_never_crashed_and_is_enough() -> None:
    for seed in SEEDS[:5]:
        spec = draw(seed, "token-fd")
        seen: list[TraceEvent] = []
        result = run(spec, [seen.append])
        end = seen[-1]
        assert isinstance(end, Ended)
        assert len(end.settled) >= spec.nodes - prepare(spec).config.faults
        assert result.deliveries >= len(end.settled), "there was progress"


@pytest.mark.parametrize("seed", [3007869, 3007950, 3007992])
def test_one_that_waits_for_members_outside_the_core_goes_on_when_they_are_back(seed: int) -> None:
    assert not run(draw(seed, "token-fd")).violations
