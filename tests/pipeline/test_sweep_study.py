"""Studies: what they unfold to, and what is wrong with a bad one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ringcast.pipeline.sweep import study
from ringcast.sim.faults import NetworkPartition, NodeCrash
from ringcast.sim.model import NetworkModel
from ringcast.sim.presets import preset
from ringcast.sim.run import run
from ringcast.sim.workload import Poisson

BASE = """
name = "loss and load"
seeds = "3..5"

[run]
duration_us = 400_000
network = "lan"
core = "all"

[[run.workload]]
kind = "poisson"
rate = 100
"""


def parsed(text: str, folder: Path = Path(), **changes: Any) -> study.Study:
    return study.parse(text, folder, changes)


def settings(found: study.Study, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(c.parameters[name] for name in names) for c in found.combinations]


def test_a_study_without_grid_is_one_run_for_every_seed() -> None:
    found = parsed(BASE)
    assert [found.job(point).make().seed for point in found.points()] == [3, 4]
    assert [c.parameters for c in found.combinations] == [{"protocol": "totem"}]


def test_every_combination_of_the_grid_is_run_with_every_seed() -> None:
    found = parsed(f"{BASE}\n[grid]\nnodes = [3, 4]\nconfig.window_size = [20, 50]\n")
    specs = [found.job(point).make() for point in found.points()]
    assert [(s.nodes, s.config["window_size"], s.seed) for s in specs] == [
        (n, size, seed) for n in (3, 4) for size in (20, 50) for seed in (3, 4)
    ]
    assert settings(found, "config.window_size") == [(20,), (50,), (20,), (50,)]


def test_a_range_has_both_its_ends() -> None:
    range_ = "{from = 0.1, to = 0.3, step = 0.1}"
    found = parsed(f"{BASE}\n[grid]\nworkload.0.safe = {range_}\n")
    assert [safe for (safe,) in settings(found, "workload.0.safe")] == pytest.approx(
        [0.1, 0.2, 0.3]
    )
    loads = [c.job.spec.workload[0] for c in found.combinations if c.job.spec]
    assert [load.rate for load in loads if isinstance(load, Poisson)] == [100.0] * 3


def test_a_setting_of_a_named_network_leaves_the_rest_of_it_as_it_is() -> None:
    found = parsed(f"{BASE}\n[grid]\nnetwork.link.loss = [0.25]\n")
    spec = found.combinations[0].job.spec
    assert spec is not None and isinstance(spec.network, NetworkModel)
    assert spec.network.link.loss == 0.25
    assert spec.network.link.delay == preset("lan").link.delay


CASES = """
[[cases]]
name = "few"
nodes = 3
workload.0.rate = 200

[[cases]]
name = "many"
nodes = 6
workload = [{kind = "saturate"}]
"""


def test_cases_change_several_settings_together_and_are_crossed_with_the_grid() -> None:
    found = parsed(f"{BASE}{CASES}\n[grid]\nconfig.window_size = [20, 50]\n")
    assert settings(found, "case", "config.window_size") == [
        ("few", 20), ("few", 50), ("many", 20), ("many", 50),
    ]  # fmt: skip
    specs = [c.job.make() for c in found.combinations]
    assert [s.nodes for s in specs] == [3, 3, 6, 6]
    assert [type(s.workload[0]).__name__ for s in specs] == ["Poisson"] * 2 + ["Saturate"] * 2
    assert settings(found, "workload")[3] == ([{"kind": "saturate"}],)


def test_a_swarm_draws_all_but_protocol_and_nodes() -> None:
    found = parsed('name = "s"\nseeds = 7\n[run]\nfaults = "swarm"\n[grid]\nnodes = [4, 5]\n')
    specs = [found.job(point).make() for point in found.points()]
    assert [(s.swarm, s.nodes, s.seed) for s in specs] == [(True, 4, 7), (True, 5, 7)]


def test_fault_plans_are_found_beside_the_study(tmp_path: Path) -> None:
    (tmp_path / "crash.toml").write_text('[[faults]]\nkind = "crash"\nat_us = 5\nnode = 2\n')
    (tmp_path / "apart").write_text("partition: 100000 63 (1 2 3) (4)\n")
    (tmp_path / "study.toml").write_text(
        f'{BASE}\n[grid]\nfaults = ["none", "crash.toml", "apart"]\n'
    )
    found = study.load(tmp_path / "study.toml")
    plans = [c.job.make().faults for c in found.combinations]
    assert plans == [(), (NodeCrash(5, 2),), (NetworkPartition(100_000, ((1, 2, 3), (4,))),)]
    assert settings(found, "faults") == [("none",), ("crash.toml",), ("apart",)]
    assert found.warnings == ("line 1: not listed, so isolated: [5]",)


def test_changes_are_laid_over_the_file() -> None:
    found = parsed(f"{BASE}\n[grid]\nnodes = [3, 4]\n", seeds=1, run={"duration_us": 9})
    specs = [found.job(point).make() for point in found.points()]
    assert [(s.seed, s.duration_us, s.nodes) for s in specs] == [(1, 9, 3), (1, 9, 4)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name = = 3", "Invalid"),
        ("", "missing required field `name`"),
        ('name = ""', "length >= 1 - at `$.name`"),
        ('name = "x"\ncolour = 3', "unknown field `colour`"),
        ('name = "x"\nseeds = "some"', "seeds: 'some' is not a seed"),
        ('name = "x"\nseeds = -3', "seeds: '-3' is not a seed"),
        ('name = "x"\nseeds = "0..2000000"', "2,000,000 runs are more than"),
        ('name = "x"\nmeasures = ["speed"]', "measures: no 'speed'; known: messages_per_s"),
        ('name = "x"\nmeasures = ["safe_ms"]', "measures: safe_ms needs a run with measure_from"),
        ('name = "x"\nmeasures = ["safe_ms"]\nrun.faults = "swarm"', "a swarm has no safe_ms"),
        ('name = "x"\nrun.speed = 3', "unknown field `speed`"),
        ('name = "x"\nrun.nodes = 0', ">= 1 - at `$.nodes`"),
        ('name = "x"\nrun.protocol = "tokem"', "no protocol called 'tokem'"),
        ('name = "x"\nrun.config.speed = 3', "config: totem has no setting speed"),
        ('name = "x"\nrun.seed = 3', "seed is no setting of a study, which has seeds"),
        ('name = "x"\nrun.swarm = true', "swarm is no setting of a study"),
        ('name = "x"\nrun.faults = "gone.toml"', "cannot read 'gone.toml' (No such file"),
        ('name = "x"\nrun = {faults = "swarm", network = "lan"}', "network is drawn by a swarm"),
        ('name = "x"\nrun = {faults = "swarm", nodes = 1}', "a swarm needs 2 processors or more"),
        ('name = "x"\ngrid.nodes = 3', "grid: nodes is no list of values"),
        ('name = "x"\ngrid.nodes = []', "grid: nodes is no list of values"),
        ('name = "x"\ngrid.nodes = [3, 4, 3]', "grid: nodes has a value twice"),
        ('name = "x"\ngrid.nodes = [3, 400]', "nodes = 400: Expected `int` <= 255"),
        ('name = "x"\ngrid.nodes = {from = 5, to = 3}', "grid: nodes: a range goes from the"),
        ('name = "x"\ngrid.nodes = {from = 1, to = 9, by = 2}', "grid: nodes: Object contains unk"),
        ('name = "x"\ngrid.nodes = {from = 1, to = inf}', "a range of more than"),
        ('name = "x"\ngrid.network.link.loss = [0]\nrun.network = "mars"', "no network called"),
        (f"{BASE}[grid]\nworkload.3.rate = [5]", "workload.3: workload is a list with entries 0"),
        ('name = "x"\n[[cases]]\nnodes = 3', "cases[0]: every case has a name"),
        (f'{BASE}{CASES}[[cases]]\nname = "few"', "cases[2]: every case has a name, and no two"),
        (f"{BASE}{CASES}[grid]\nworkload.0.rate = [5]", "workload.0.rate is in the grid and in a"),
        (f'{BASE}{CASES}\n[grid]\nconfig.window_size = ["x"]', "case = 'few', nodes = 3, workload"),
    ],
)
def test_what_is_wrong_with_a_study_is_said_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(ValueError) as caught:
        parsed(text)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_study_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read '.*none.toml' \(No such file"):
        study.load(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"bytes\.toml: "):
        study.load(tmp_path / "bytes.toml")


STUDIES = sorted((Path(__file__).parents[2] / "examples" / "studies").glob("*.toml"))


@pytest.mark.parametrize(
    "file", [file for file in STUDIES if file.stem != "crash"], ids=lambda file: file.stem
)
def test_the_examples_are_studies_whose_runs_hold(file: Path) -> None:
    """Each combination, for its first moments."""
    found = study.load(file)
    assert len(found.combinations) == 6
    for combination in found.combinations:
        spec = combination.job.spec
        assert spec is not None
        short = replace(spec, faults=(), duration_us=50_000, measure_from_us=20_000)
        result = run(short)
        assert not result.violations and result.deliveries
