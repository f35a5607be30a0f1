"""Rows, tables and estimates of a sweep, and how it bundles its work; Spark is played by a loop."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.sweep import job as sweeping
from ringcast.pipeline.sweep import results, simulations, study
from ringcast.pipeline.sweep.results import Folder, RunStatus, estimate, load
from ringcast.pipeline.sweep.study import Point
from ringcast.sim import run as sim_run
from ringcast.sim import runfile
from ringcast.sim.spec import RunSpec
from ringcast.traces import runs

TINY = """
name = "tiny"
seeds = "0..3"

[run]
nodes = 2
duration_us = 60_000
measure_from_us = 30_000
network = "ideal"

[[run.workload]]
kind = "poisson"
rate = 300

[grid]
config.packing = [true, false]
"""

HOPELESS = """
name = "no network"
seeds = "0..2"
[run]
nodes = 2
duration_us = 10_000
progress_us = 1000
[grid]
network.link.loss = [0, 1.0]
network.link.unicast_loss = [0, 1.0]
"""
"""A bound on progress that a group cannot keep which has to form first."""

FAILING = TINY.replace(
    "packing = [true, false]", "packing = [true]\nworkload.0.rate = [300, 1e-320]"
)
"""So rare that the time to the next message is infinite, which the generator cannot say."""


def tiny(**changes: Any) -> study.Study:
    return study.parse(TINY, Path(), changes)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Point]:
    """Sweeps run in this process; collects what they simulate."""
    done: list[Point] = []

    @contextmanager
    def no_session(where: object, app: str) -> Iterator[None]:
        yield None

    def loop(
        spark: None, work: Sequence[list[Point]], function: Callable[..., Any], schema: pa.Schema
    ) -> pa.Table:
        rows: list[Any] = []
        for bundle in work:
            done.extend(bundle)
            rows.extend(pickle.loads(pickle.dumps(function))(bundle))
        return pa.Table.from_pylist(rows, schema)

    monkeypatch.setattr(sweeping, "open_session", no_session)
    monkeypatch.setattr(sweeping, "tasks", loop)
    return done


def test_the_table_has_a_row_for_every_point_in_their_order(tmp_path: Path, ran: Any) -> None:
    found = sweeping.sweep(tiny(), tmp_path / "out")
    table = load(tmp_path / "out")
    assert table.equals(found.results)
    assert results.parameters(table) == ["protocol", "config.packing", "nodes"]
    rows = table.to_pylist()
    assert [(r["config.packing"], r["seed"]) for r in rows] == [
        (packing, seed) for packing in (True, False) for seed in range(3)
    ]
    for point, row in zip(tiny().points(), rows, strict=True):
        expected = sim_run.run(tiny().job(point).make())
        assert row["digest"] == expected.digest
        assert row["messages_per_s"] == expected.measures.messages_per_s
        assert row["agreed_ms"] == expected.measures.agreed.mean_ms
        assert row["safe_ms"] is None
        assert (row["status"], row["nodes"], row["deliveries"]) == ("ok", 2, expected.deliveries)
    assert load(tmp_path / "out", "timing")["key"].to_pylist() == [r["key"] for r in rows]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "lock", "manifest.json", "results.parquet", "rows", "timing.parquet",
    ]  # fmt: skip


def test_only_what_is_missing_is_simulated(tmp_path: Path, ran: list[Point]) -> None:
    assert sweeping.sweep(tiny(), tmp_path).simulated == 6
    whole = (tmp_path / "results.parquet").read_bytes()
    keys = load(tmp_path)["key"].to_pylist()
    ran.clear()
    assert sweeping.sweep(tiny(), tmp_path).simulated == 0
    assert ran == []

    Folder(tmp_path).row(keys[1]).unlink()
    Folder(tmp_path).row(keys[5]).write_bytes(b"PAR1, but not for long")
    (tmp_path / "manifest.json").unlink()
    assert sweeping.sweep(tiny(), tmp_path).simulated == 2
    assert sorted(ran, key=lambda point: point.combination) == [Point(0, 1), Point(1, 2)]
    assert (tmp_path / "results.parquet").read_bytes() == whole

    ran.clear()
    longer = tiny(seeds="2..5", grid={"nodes": [3, 2]})
    assert sweeping.sweep(longer, tmp_path).simulated == 12 - 2
    assert Point(1, 2) not in ran and Point(0, 2) in ran, "rows of another study are used as well"


def test_points_that_are_the_same_run_are_simulated_once(tmp_path: Path, ran: list[Point]) -> None:
    same = 'name = "s"\nseeds = 1\nrun = {duration_us = 20000}\n' + "".join(
        f'[[cases]]\nname = "{name}"\nnodes = {nodes}\n'
        for name, nodes in zip("abc", (2, 3, 2), strict=True)
    )
    found = sweeping.sweep(study.parse(same, Path()), tmp_path)
    assert found.simulated == len(ran) == 2
    assert found.results["case"].to_pylist() == ["a", "b", "c"]
    first, _, third = found.results.drop_columns(["case"]).to_pylist()
    assert first == third


def test_other_code_is_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(simulations.code_digest()) == 64
    job = simulations.packed(tiny().combinations[0].job)
    assert simulations.key_of(job, 0, "one") != simulations.key_of(job, 0, "other")
    orders = simulations.Orders(str(tmp_path), "other", (job,), False)
    with pytest.raises(PipelineError, match="executors have another ringcast"):
        list(simulations.simulate_all(orders, [Point(0, 0)]))


def test_a_violation_is_a_row_with_a_run_file_that_repeats_it(tmp_path: Path, ran: Any) -> None:
    found = sweeping.sweep(study.parse(HOPELESS, Path()), tmp_path)
    assert found.statuses == {"ok": 2, "violated": 6}
    row = found.failures[3]
    assert (row["network.link.loss"], row["network.link.unicast_loss"], row["seed"]) == (1.0, 0, 1)
    assert row["property"] == "progress"
    assert row["violations"] == 1
    command, name, file = row["repeat"].split()
    assert (command, name) == ("ringcast", "sim")
    again = sim_run.run(runfile.load(tmp_path / file))
    assert (again.digest, again.violations[0].explanation) == (row["digest"], row["explanation"])
    assert sweeping.command_for(row, tmp_path) == f"ringcast sim {tmp_path / file}"


def test_a_swarm_says_its_own_repeat_command(
    tmp_path: Path, ran: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(spec: RunSpec) -> sim_run.RunResult:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(simulations, "run", broken)
    swarm = study.parse('name = "s"\nseeds = "8..10"\nrun.faults = "swarm"\n', Path())
    found = sweeping.sweep(swarm, tmp_path)
    assert found.statuses == {"error": 2}
    row = found.failures[1]
    assert row["explanation"].startswith("RuntimeError: two lines (")
    assert row["repeat"] == (
        f"ringcast sim --protocol totem --nodes {row['nodes']} --seeds 9..10 --faults swarm"
    )
    assert sweeping.command_for(row, tmp_path) == row["repeat"]
    assert row["digest"] is None and row["deliveries"] is None


def test_a_simulation_that_fails_is_a_row_among_the_others(
    tmp_path: Path, ran: list[Point]
) -> None:
    failing = study.parse(FAILING, Path())
    found = sweeping.sweep(failing, tmp_path, traces=True)
    assert found.statuses == {"error": 3, "ok": 3}
    assert found.failures[0]["explanation"].startswith("ZeroDivisionError: ")
    assert "(workload.py, line " in found.failures[0]["explanation"]
    assert runfile.load(tmp_path / found.failures[0]["repeat"].split()[2])
    ran.clear()
    assert sweeping.sweep(failing, tmp_path, traces=True).simulated == 0
    assert ran == []


def test_traces_are_kept_on_demand(tmp_path: Path, ran: Any) -> None:
    few = tiny(seeds=1)
    sweeping.sweep(few, tmp_path)
    assert not (tmp_path / "traces").exists()
    found = sweeping.sweep(few, tmp_path, traces=True)
    assert found.simulated == 2
    assert runs(tmp_path / "traces") == sorted(found.results["run"].to_pylist())
    assert sweeping.sweep(tiny(seeds=1, traces=True), tmp_path).simulated == 0
    tables = {path.name for path in (tmp_path / "traces").iterdir()}
    assert {"submit", "deliver", "fault"} <= tables
    assert not list(tmp_path.rglob("*.part")) and not (tmp_path / "staging").exists()


def test_a_disk_that_is_full_is_no_result(
    tmp_path: Path, ran: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, contents: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(PipelineError, match=r"cannot write to .* \(No space left on device\)"):
        sweeping.sweep(tiny(), tmp_path)
    with pytest.raises(PipelineError, match="holds no finished sweep"):
        load(tmp_path)
    monkeypatch.undo()

    def full_for_traces(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full_for_traces)
    orders = simulations.Orders(
        str(tmp_path),
        simulations.code_digest(),
        (simulations.packed(tiny().job(Point(0, 0))),),
        True,
    )
    with pytest.raises(PipelineError, match=r"cannot write to .* \(No space left on device\)"):
        list(simulations.simulate_all(orders, [Point(0, 0)]))
    assert not list((tmp_path / "staging").iterdir()), "half a trace is left behind"


def test_what_goes_wrong_with_spark_is_not_blamed_on_the_folder(
    tmp_path: Path, ran: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(sweeping, "tasks", refused)
    with pytest.raises(ConnectionRefusedError):
        sweeping.sweep(tiny(), tmp_path)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, ran: list[Point]) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(PipelineError, match="holds something else than a sweep"):
        sweeping.sweep(tiny(), tmp_path)
    with pytest.raises(PipelineError, match=r"cannot write to .*thesis.tex"):
        sweeping.sweep(tiny(), tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    assert ran == []


def _hold(path: Path, held: Any, done: Any) -> None:
    with sweeping.claimed(path):
        held.set()
        done.wait()


def test_one_sweep_at_a_time(tmp_path: Path, ran: list[Point]) -> None:
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path, held, done))
    other.start()
    try:
        assert held.wait(60)
        with pytest.raises(PipelineError, match="another sweep is at work"):
            sweeping.sweep(tiny(), tmp_path)
    finally:
        done.set()
        other.join()
    assert other.exitcode == 0 and ran == []


def test_rows_that_never_arrive_are_noticed(
    tmp_path: Path, ran: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the executors have a folder of the same name on another machine."""
    monkeypatch.setattr(
        sweeping, "tasks", lambda spark, work, function, schema: schema.empty_table()
    )
    with pytest.raises(PipelineError, match=r"6 finished runs are not in .*out; it must be the"):
        sweeping.sweep(tiny(), tmp_path / "out")


def test_tables_that_are_not_those_of_the_manifest_are_refused(tmp_path: Path, ran: Any) -> None:
    sweeping.sweep(tiny(seeds=0), tmp_path)
    table = load(tmp_path)
    pq.write_table(table.slice(1), tmp_path / "results.parquet")
    with pytest.raises(PipelineError, match="holds no finished sweep; ringcast sweep --out"):
        load(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(PipelineError, match="holds no finished sweep"):
        load(tmp_path)


def test_bundles_are_of_equal_cost_and_the_longest_come_first() -> None:
    points = [Point(at % 3, at) for at in range(90)]
    bundles = sweeping.bundled(points, [0.1, 0.5, 1.4])
    total = 30 * (0.1 + 0.5 + 1.4)
    assert sorted(p.seed for bundle in bundles for p in bundle) == list(range(90))
    costs = [sum((0.1, 0.5, 1.4)[p.combination] for p in bundle) for bundle in bundles]
    assert len(bundles) == -(-total // sweeping.TASK_S)
    assert costs == sorted(costs, reverse=True)
    assert max(costs) <= 5.0 and min(costs) >= 2.0
    assert [p.combination for p in bundles[0]] == sorted(
        (p.combination for p in bundles[0]), reverse=True
    )


def test_a_small_sweep_still_has_work_for_several_cores() -> None:
    assert sorted(map(len, sweeping.bundled([Point(0, s) for s in range(20)], [0.001]))) == [
        2, 2, 2, 2, 3, 3, 3, 3,
    ]  # fmt: skip
    assert len(sweeping.bundled([Point(0, s) for s in range(3)], [0.001])) == 3
    assert sweeping.bundled([], []) == []


def test_trials_are_spread_over_the_points() -> None:
    points = [Point(at // 100, at % 100) for at in range(1000)]
    trials = sweeping.trial_points(points, 0)
    assert 20 <= len(trials) <= 25
    assert {point.combination for point in trials} == set(range(10))
    assert len(sweeping.trial_points(points[:5], 0)) == 5
    assert len(sweeping.trial_points(points[:300], 4)) == 4
    assert not sweeping.trial_points(points, 25)


def test_a_combination_that_was_not_tried_is_guessed_by_its_size() -> None:
    sized = study.parse('name = "n"\nrun.duration_us = 1000\ngrid.nodes = [2, 4, 40]\n', Path())
    jobs = [combination.job for combination in sized.combinations]
    assert sweeping.estimated(jobs, [(0, 0.1), (0, 0.3), (1, 0.4)]) == pytest.approx([0.2, 0.4, 4])


def test_means_have_confidence_intervals() -> None:
    table = pa.table(
        {
            "nodes": [3, 3, 3, 5, 5, 7],
            "seed": [0, 1, 2, 0, 1, 0],
            "agreed_ms": [1.0, 2.0, 3.0, 4.0, None, None],
        }
    )
    found = estimate(table, ["agreed_ms"], by=["nodes"])
    assert found["nodes"].to_pylist() == [3, 5, 7]
    assert found["runs"].to_pylist() == [3, 2, 1]
    assert found["agreed_ms"].to_pylist() == [2.0, 4.0, None]
    half, none, nothing = found["agreed_ms_half"].to_pylist()
    assert half == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert none is None and nothing is None


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (29, 2.0452), (999, 1.9623)],
)
def test_quantiles_of_students_distribution(freedom: int, quantile: float) -> None:
    assert results.student_t(freedom, 0.95) == pytest.approx(quantile, rel=0.002)


def test_parameters_that_are_tables_become_json() -> None:
    assert results.plain([1, 2.5, None]).to_pylist() == [1.0, 2.5, None]
    assert results.plain([True, False]).type == pa.bool_()
    assert results.plain(["lan", {"shared": True}]).to_pylist() == ['"lan"', '{"shared":true}']
    ok: str = RunStatus.OK
    assert ok == "ok"
