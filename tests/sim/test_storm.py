"""A group that acts without end while time stands still is stopped, and only such a group."""

from __future__ import annotations

from typing import Any

import pytest
from toy import SHEET, Clock, Phase, Toy

from ringcast.core.env import Env
from ringcast.core.inputs import Input
from ringcast.sim.faults import NodePause, Resume
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.run import run
from ringcast.sim.spec import RunSpec
from ringcast.sim.storm import EVENTS

assert SHEET.name == "toy"


def spec(delay_us: int, **fields: Any) -> RunSpec:
    """Processors 1 and 2 echo each other's Nudges; processor 3 lets them rest."""
    usual: dict[str, Any] = {
        "protocol": "toy",
        "nodes": 3,
        "duration_us": 50_000,
        "network": NetworkModel(link=LinkModel(delay=Constant(delay_us))),
        "config": {"beat_us": 10_000, "echo": [1, 2]},
        "settle": False,
    }
    return RunSpec(**usual | fields)


def test_a_storm_ends_the_run_and_names_who_takes_part() -> None:
    result = run(spec(delay_us=0))
    (breach,) = result.violations
    assert breach.property == "progress"
    assert breach.explanation.startswith("event storm at 10000 us")
    assert breach.nodes == (1, 2)
    assert (breach.t_us, result.simulated_us) == (10_000, 10_000)
    assert EVENTS <= result.handled <= 2 * 3 * EVENTS


def test_the_same_group_is_fine_as_long_as_time_passes() -> None:
    assert run(spec(delay_us=1)).violations == ()


@pytest.mark.parametrize("faults", [(), (NodePause(5_000, 1), Resume(15_000, 1))])
def test_a_timer_that_runs_out_at_once_for_ever(
    faults: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pause too, when the processor itself looks for timers that ran out."""

    def restless(machine: Toy, env: Env, event: Input) -> None:
        if machine.node == 1:
            env.set_timer(Clock.BEAT, 0)

    monkeypatch.setitem(Toy.table.rows[Phase.UP], Clock.BEAT, restless)
    (breach,) = run(spec(delay_us=100, faults=faults)).violations
    assert breach.explanation.startswith("event storm")
    assert breach.nodes == (1,)
    assert breach.t_us == (15_000 if faults else 10_000)


def test_a_storm_of_the_second_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    def restless(machine: Toy, env: Env, event: Input) -> None:
        env.set_timer(Clock.BEAT, 0 if env.now_us > 50_000 else 60_000)

    monkeypatch.setitem(Toy.table.rows[Phase.UP], Clock.BEAT, restless)
    # The toy never forms a smaller group, so the second stage lasts.
    (breach,) = run(spec(delay_us=100, settle=True, core=(1, 2))).violations
    assert breach.explanation.startswith("event storm")
    assert breach.t_us > 60_000
    assert len(breach.nodes) == 3
