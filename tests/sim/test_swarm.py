"""Smoke of the swarm: seeds without a violation, repeatable, that hit every kind of fault."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ringcast.core.trace import Submit, TraceEvent
from ringcast.sim.batch import Summary
from ringcast.sim.run import RunResult, run
from ringcast.sim.runfile import load
from ringcast.sim.spec import prepare
from ringcast.sim.swarm import draw
from ringcast.sim.swarm_faults import KINDS

SEEDS = range(150)
CHUNKS = tuple(SEEDS[i : i + 25] for i in range(0, len(SEEDS), 25))

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.toml"))

FAULTS = {
    "black hole", "burst tail", "copy", "crash", "cut", "delay", "drift", "drop", "duplicate",
    "heal", "leave", "link", "loss", "mend", "partition", "pause", "reorder", "restart",
    "restart without storage", "resume", "storage failure", "storage fails", "tear", "torn crash",
}  # fmt: skip
"""What a swarm does to a group, as the cluster counts it."""

DIGESTS = "import sys; from ringcast.sim.run import run; from ringcast.sim.swarm import draw\n"
DIGESTS += "print(*[run(draw(int(seed))).digest for seed in sys.argv[1:]])"


def broken(result: RunResult) -> str:
    """The violations of a run, for a failing test."""
    return "\n".join(f"{v.property}: {v.explanation}\n  {v.repeat}" for v in result.violations)


@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_seeds_break_nothing(seeds: tuple[int, ...]) -> None:
    summary = Summary()
    for seed in seeds:
        result = run(draw(seed))
        assert not result.violations, broken(result)
        summary.add(result)
    assert summary.deliveries > 0
    assert summary.views > 0


def test_every_kind_of_fault_is_drawn() -> None:
    faults = [fault for seed in SEEDS for fault in draw(seed).faults]
    kinds = Counter(type(fault).__name__ for fault in faults)
    assert len(KINDS) == 12
    assert kinds.keys() == {
        "Burst", "ClockDrift", "Drop", "Heal", "Leave", "Link", "LinkCut", "Loss", "Mend",
        "NetworkPartition", "NodeCrash", "NodePause", "Restart", "Resume", "StorageFail", "Torn",
    }  # fmt: skip


def test_wires_that_take_time_and_large_messages_are_drawn() -> None:
    specs = [draw(seed) for seed in SEEDS]
    models = [prepare(spec).model for spec in specs]
    assert 10 < sum(model.shared for model in models) < 40
    assert 10 < sum(bool(model.link.bandwidth_bps) and not model.shared for model in models) < 40
    assert 30 < sum(bool(spec.config["merge_backoff_us"]) for spec in specs) < 90
    large = [spec for spec in specs if any(w.sizes[-1].high > 100_000 for w in spec.workload)]
    assert len(large) >= 3
    seen: list[TraceEvent] = []
    for spec in large:
        run(spec, [seen.append])
    sizes = [size for event in seen if isinstance(event, Submit) for size in event.sizes]
    assert max(sizes) > 500_000


def test_every_kind_of_fault_takes_effect() -> None:
    hit: Counter[str] = Counter()
    for seed in SEEDS:
        hit.update(run(draw(seed)).faults)
        if hit.keys() >= FAULTS:
            return
    raise AssertionError(f"never hit: {sorted(FAULTS - hit.keys())}")


@pytest.mark.parametrize("seed", [3, 17, 51])
def test_a_seed_gives_the_same_trace_twice(seed: int) -> None:
    assert run(draw(seed)).digest == run(draw(seed)).digest


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_a_seed_gives_the_same_trace_in_another_process(hash_seed: str) -> None:
    seeds = (3, 17, 51)
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS, *map(str, seeds)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [run(draw(seed)).digest for seed in seeds]


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_bugs_do_not_come_back(path: Path) -> None:
    result = run(load(path), repeat=f"ringcast sim {path.relative_to(Path(__file__).parents[2])}")
    assert not result.violations, f"{path.name}\n{broken(result)}"
