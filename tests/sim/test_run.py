"""Runs: the same specification gives the same trace; both stages find what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from toy import SHEET, Config

from ringcast.core.registry import MembershipKind, register
from ringcast.core.trace import Ended, Faulted, Restarted, TraceEvent
from ringcast.protocols.totem_single.machine import TotemSingle
from ringcast.protocols.totem_single.state import Phase, Timer
from ringcast.sim import runfile
from ringcast.sim.faults import Loss, NodeCrash, NodePause, Restart
from ringcast.sim.model import LinkModel, LinkOverride, NetworkModel, Uniform
from ringcast.sim.run import run
from ringcast.sim.settle import draw_core
from ringcast.sim.shrink import shrink
from ringcast.sim.spec import RunSpec, prepare
from ringcast.sim.swarm import draw
from ringcast.sim.workload import Poisson

assert SHEET.name == "toy"


def toy(**fields: Any) -> RunSpec:
    usual: dict[str, Any] = {
        "protocol": "toy",
        "nodes": 3,
        "duration_us": 50_000,
        "workload": (Poisson(rate=500),),
        "settle": False,
    }
    return RunSpec(**usual | fields)


def test_a_run_counts_what_happened() -> None:
    result = run(toy(network="ideal", faults=(NodeCrash(40_000, 2),)))
    assert result.violations == ()
    assert result.simulated_us == 50_000
    assert result.submitted > 20
    assert result.deliveries > 2 * result.submitted
    assert result.views == 3
    assert result.faults == {"crash": 1}
    assert result.visits["up/Flood"] == result.handled


def test_the_same_specification_gives_the_same_trace() -> None:
    first, second, other = run(toy(seed=1)), run(toy(seed=1)), run(toy(seed=2))
    assert first.digest == second.digest
    assert first.digest != other.digest
    assert (first.events, first.visits) == (second.events, second.visits)


def test_observers_do_not_change_the_trace() -> None:
    seen: list[TraceEvent] = []
    watched = run(toy(), [seen.append])
    assert watched.digest == run(toy()).digest
    assert len(seen) == watched.events
    assert isinstance(seen[-1], Ended)


DIGESTS = """
from ringcast.sim.run import run
from ringcast.sim.swarm import draw
print([run(draw(seed)).digest for seed in (3, 8, 21)])
"""


def test_the_trace_does_not_depend_on_hashing() -> None:
    found = set()
    for hash_seed in ("0", "1", "random"):
        command = [sys.executable, "-c", DIGESTS]
        env = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path("src").resolve())}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert found == {f"{[run(draw(seed)).digest for seed in (3, 8, 21)]}\n"}


def test_a_defect_stops_the_run_and_names_the_command() -> None:
    result = run(toy(config={"raise_at": 3}, swarm=True, seed=9))
    (breach,) = result.violations
    assert breach.property == "no-crash"
    assert breach.repeat == "ringcast sim --protocol toy --nodes 3 --seeds 9..10 --faults swarm"
    assert result.simulated_us < 50_000
    (breach,) = run(toy(config={"raise_at": 3}), repeat="ringcast sim x.toml").violations
    assert breach.repeat == "ringcast sim x.toml"


def test_a_core_that_comes_together_is_settled() -> None:
    seen: list[TraceEvent] = []
    spec = toy(settle=True, network="lossy", faults=(NodePause(40_000, 1), NodeCrash(45_000, 2)))
    spec = next(s for s in variants(spec) if draw_core(s) == (1, 2, 3))
    result = run(spec, [seen.append])
    assert result.violations == ()
    assert seen[-1] == Ended(result.simulated_us, (1, 2, 3))
    assert "calm" in [event.kind for event in seen if isinstance(event, Faulted)]
    frames = {"duplicate", "reorder"}  # what the lossy network does to single frames
    assert result.faults.keys() - frames == {"crash", "pause"}  # the healing is no fault


def test_a_core_that_does_not_come_together_is_a_violation() -> None:
    # The toy always believes in the whole group, so it never forms a smaller one.
    troubled = toy(settle=True, faults=(NodePause(40_000, 1),))
    spec = next(s for s in variants(troubled) if len(draw_core(s)) == 2)
    (breach,) = run(spec).violations
    assert breach.property == "progress"
    assert breach.nodes == draw_core(spec)
    assert "no common configuration" in breach.explanation


def test_who_is_healed_can_be_said() -> None:
    troubled = toy(faults=(NodePause(40_000, 1),))
    assert len({draw_core(spec) for spec in variants(troubled)}) == 7  # any of three, and all
    assert {draw_core(spec) for spec in variants(replace(troubled, core="all"))} == {(1, 2, 3)}
    assert {draw_core(spec) for spec in variants(replace(troubled, core=(3, 1)))} == {(1, 3)}
    assert {draw_core(spec) for spec in variants(toy())} == {(1, 2, 3)}  # nothing to heal


class FixedConfig(Config, frozen=True, kw_only=True):
    """Of a toy with fixed members, one of which may fail."""

    def __post_init__(self) -> None:
        if len(self.members) == 2:
            raise ValueError("two are too few")


def fixed_toy(**fields: Any) -> RunSpec:
    fixed = {"name": "fixed toy", "config": FixedConfig, "profiles": {"plain": FixedConfig()}}
    register(replace(SHEET, membership=MembershipKind.FIXED, **fixed))
    return toy(protocol="fixed toy", network="ideal", settle=True, **fields)


def test_of_fixed_members_only_those_who_never_crashed_go_on() -> None:
    spec = fixed_toy(core="all")
    assert prepare(spec).config.members == (1, 2, 3)
    seen: list[TraceEvent] = []
    assert not run(spec, [seen.append]).violations
    assert seen[-1] == Ended(seen[-1].t_us, (1, 2, 3))
    crash, back = NodeCrash(10_000, 2), Restart(20_000, 2)
    assert not run(replace(spec, faults=(crash, back)), [seen.append]).violations
    assert seen[-1] == Ended(seen[-1].t_us, (1, 3))
    assert not run(replace(spec, faults=(crash, NodeCrash(30_000, 1))), [seen.append]).violations
    assert seen[-1] == Ended(50_000), "more have failed than the group bears"
    cores = set()
    for seed in range(20):
        drawn = replace(spec, seed=seed, core="drawn", faults=(NodePause(10_000, 2),))
        assert not run(drawn, [seen.append]).violations
        cores.add(len(seen[-1].settled))
    assert cores == {2, 3}
    with pytest.raises(ValueError, match="config: two are too few"):
        prepare(replace(spec, nodes=2))


def test_shrinking_keeps_the_core_of_the_run() -> None:
    """Of fixed members, too, whose core is drawn from those who have not crashed."""
    hopeless = fixed_toy(progress_us=1, faults=(NodePause(10_000, 2), NodeCrash(20_000, 3)))
    hopeless = replace(hopeless, nodes=4)
    strange = 0
    for spec in variants(hopeless)[:8]:
        (breach,) = run(spec).violations
        shrunk = shrink(spec)
        assert shrunk.spec.core == shrunk.breach.nodes == breach.nodes
        assert (breach.property, shrunk.spec.faults) == ("progress", ())
        strange += breach.nodes != draw_core(spec)
    assert strange


def test_who_fell_behind_is_started_again_once() -> None:
    """It finds out when it is healed. A member that stops again and again makes no progress."""
    seen: list[TraceEvent] = []
    spec = toy(network="ideal", settle=True, workload=(), config={"behind": (2,)})
    assert not run(spec, [seen.append]).violations
    assert seen[-1] == Ended(seen[-1].t_us, (1, 2, 3))
    assert [e.incarnation for e in seen if isinstance(e, Restarted) and e.node == 2] == [1, 2]
    again = replace(spec, config={"behind": (2,), "lives": 2})
    assert [breach.property for breach in run(again).violations] == ["progress"]


def test_of_fixed_members_the_others_go_on_without_who_fell_behind() -> None:
    for behind, settled in (((2,), (1, 3)), ((2, 3), ())):
        seen: list[TraceEvent] = []
        spec = fixed_toy(workload=(), config={"behind": behind})
        assert not run(spec, [seen.append]).violations
        assert seen[-1] == Ended(seen[-1].t_us, settled)


def test_progress_is_held_to_the_bound_of_the_specification() -> None:
    spec = RunSpec(nodes=3, network="ideal", faults=(NodeCrash(500_000, 3),), core=(1, 2))
    assert not run(spec).violations
    (breach,) = run(replace(spec, duration_us=500_000, progress_us=100_000)).violations
    assert breach.property == "progress"  # it takes a token loss to miss processor 3


def test_a_ring_that_has_ceased_must_be_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """M5 with its bound, in a run without a second stage."""
    spec = RunSpec(
        nodes=3,
        network="ideal",
        faults=(NodeCrash(500_000, 3),),
        duration_us=10_000_000,
        settle=False,
    )
    assert not run(spec).violations
    rows = TotemSingle.table.rows
    monkeypatch.setitem(rows[Phase.OPERATIONAL], Timer.TOKEN_LOSS, lambda *_: None)
    (breach,) = run(spec).violations
    assert breach.property == "M5"
    assert "nothing was disturbed since 500000 us" in breach.explanation


def variants(spec: RunSpec) -> list[RunSpec]:
    return [replace(spec, seed=seed) for seed in range(50)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"protocol": "nothing"}, "no protocol called 'nothing'; known: .*toy"),
        ({"network": "nowhere"}, "no network called 'nowhere'; known: ideal"),
        ({"profile": "odd"}, "toy has no profile 'odd'; known: plain"),
        ({"config": {"speed": 3}}, "config: toy has no setting speed"),
        ({"config": {"group": "many"}}, "config: Expected `int`"),
        ({"gateways": {"speed": 3}}, "gateways: toy has no setting speed"),
        ({"gateways": {"beat_us": 7}}, "gateways: nobody is in several rings"),
        ({"faults": (NodeCrash(1, 4),)}, "faults\\[0\\]: no such processors: \\[4\\]"),
        ({"faults": (Loss(1, 0, 0), NodeCrash(60_000, 1))}, "faults\\[1\\]: .* after the end"),
        ({"workload": (Poisson(rate=1, some=0.5),)}, "workload\\[0\\]: some: toy sends every"),
        ({"core": (1, 4)}, "core: \\[1, 4\\] are not processors of 1 .. 3"),
        ({"core": ()}, "core: \\[\\] are not processors"),
        ({"workload": (Poisson(rate=1, senders=(7,)),)}, "workload\\[0\\]: no such processors"),
    ],
)
def test_a_bad_specification_says_what_is_wrong(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare(toy(**fields))


def test_a_choice_that_there_is_not_comes_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"config: .*'most'.*; known: total, majority, number, un"):
        prepare(RunSpec(protocol="rbp", config={"resiliency": "most"}))


JOINED = RunSpec(
    protocol="totem-multi", nodes=3, rings=((1, 2), (2, 3)), gateways={"each_time": 40}
)


def test_gateways_may_have_settings_of_their_own() -> None:
    setup = prepare(JOINED)
    assert [setup.each[node].each_time for node in JOINED.ids] == [10, 40, 10]
    plain = prepare(replace(JOINED, gateways={}))
    assert plain.each is plain.config


def test_run_files_there_and_back(tmp_path: Path) -> None:
    odd = LinkOverride(1, 2, LinkModel(delay=Uniform(1, 2), loss=0.5))
    for spec in (
        RunSpec(),
        toy(core=(1, 3), progress_us=70),
        toy(config={"beat_us": 7}, network=NetworkModel(links=(odd,), shared=True)),
        JOINED,
        *(draw(seed) for seed in range(40)),
    ):
        path = tmp_path / "run.toml"
        path.write_text(runfile.dump(spec))
        assert runfile.load(path) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes = 0", "run.toml: Expected `int` >= 1"),
        ("nodes = 5\nnodes = 6", "run.toml: .*"),
        ("speed = 9", "run.toml: Object contains unknown field `speed`"),
        ('protocol = "nothing"', "run.toml: no protocol called"),
        ("[network]\nlink = {loss = 7.0}", r"loss"),
        ("a = " + "[" * 3000 + "]" * 3000, "run.toml: .*recursion"),
        ("nodes = " + "9" * 5000, "run.toml: .*limit"),
    ],
)
def test_a_bad_run_file_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        runfile.load(path)


def test_a_missing_run_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        runfile.load(tmp_path / "none.toml")
