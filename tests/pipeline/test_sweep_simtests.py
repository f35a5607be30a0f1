"""Seeds of a user's test on Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ringcast.cli.app import app
from ringcast.cli.sweep import print_kinds
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.sweep.simtests import SeedsFound, load, run_seeds, target

TESTS = """
import asyncio
import pytest
from ringcast.testing import simtest

async def program(host):
    await asyncio.sleep(0.1)

@simtest(seeds=3)
async def test_some_fail(world):
    world.host("one", program)
    await world.sleep(0.5)
    world.sometimes("seed 7", lambda: world.seed == 7)
    world.sometimes("a miracle", lambda: False)
    assert world.seed % 10 != 3, "three"
    world.always(lambda: world.seed % 25 != 0, "no quarter")

@simtest(seeds=3)
async def test_of_the_runner(world):
    if world.seed == 2:
        pytest.fail("too slow")
    if world.seed == 3:
        pytest.skip("not today")

@simtest(seeds=3)
async def test_with_a_fixture(world, tmp_path):
    pass

def test_plain():
    pass
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "test_swept_simtests.py"
    path.write_text(TESTS)
    return path


def test_what_a_task_does(file: Path) -> None:
    rows = list(run_seeds(target(f"{file}::test_some_fail"), range(1, 24)))
    assert [row["seed"] for row in rows if row["kind"]] == [3, 13, 23]
    assert rows[-1]["runs"] == 23
    assert (rows[-1]["met"], rows[-1]["unmet"]) == (["seed 7"], ["a miracle"])


def test_what_the_test_runner_raises_is_the_seeds(file: Path) -> None:
    """One of a million seeds does not stop the others."""
    *failed, done = run_seeds(target(f"{file}::test_of_the_runner"), range(5))
    assert [(row["seed"], row["text"]) for row in failed] == [
        (2, "Failed: too slow"),
        (3, "Skipped: not today"),
    ]
    assert done["runs"] == 5


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be"),
        ("import pytest; pytest.skip('not here', allow_module_level=True)", "Skipped: not here"),
    ],
)
def test_a_file_that_cannot_be_imported(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "test_without_its_imports.py"
    path.write_text(line)
    for _ in range(2):  # nothing of it is left over
        done = CliRunner().invoke(app, ["sweep", "--simtest", f"{path}::test_it"])
        assert done.exit_code == 2, done.stderr
        assert f"{path.name} cannot be imported: {told}" in done.stderr.replace("\n", "")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("test_plain", "is no test made with @simtest"),
        ("test_nothing", "is no test made with @simtest"),
        ("test_with_a_fixture", "needs tmp_path: a sweep gives a test its world and no more"),
    ],
)
def test_what_is_no_simtest_is_told(file: Path, name: str, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        load(target(f"{file}::{name}"))


@pytest.mark.parametrize("text", ["x", "::", "x.py::not a name"])
def test_a_test_is_named_as_for_pytest(text: str) -> None:
    with pytest.raises(PipelineError, match="FILE::NAME"):
        target(text)


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(PipelineError, match=r"there is no file nowhere\.py$"):
        target("nowhere.py::test")


def test_the_line_that_repeats_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    line = "pytest " + "long/" * 30 + "test_it.py::test_it --simtest-seed 3"
    rows = [{"seed": 3, "kind": "a", "text": ""}]
    kinds = [{"kind": "a", "failures": 1, "repeat": line}]
    print_kinds(SeedsFound(100, rows, []), range(100), kinds)
    assert f"repeat: {line}\n" in capsys.readouterr().out


def test_failures_are_counted_by_kind_and_by_seed() -> None:
    rows = [{"seed": seed, "kind": "ab"[seed % 3 == 0], "text": ""} for seed in (1, 3, 15, 99)]
    found = SeedsFound(100, rows, [])
    assert found.kinds == [("b", 3, 3), ("a", 1, 1)]
    assert [failed for _, _, failed in found.density(range(100))] == [2, 1, 0, 0, 0, 0, 0, 0, 0, 1]


def test_a_study_or_a_simtest(file: Path) -> None:
    for arguments in ([], ["x.toml", "--simtest", f"{file}::test_some_fail"]):
        done = CliRunner().invoke(app, ["sweep", *arguments])
        assert done.exit_code == 2
        assert "name a study, or a test with --simtest" in done.stderr


def test_seeds_on_spark(file: Path, tmp_path: Path, first_session: None) -> None:
    out = tmp_path / "out"
    arguments = ["sweep", "--simtest", f"{file}::test_some_fail", "--seeds", "1..101"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(out), "--json"])
    assert done.exit_code == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["runs"] == 100
    assert [(row["failures"], row["first"]) for row in told["kinds"]] == [(10, 3), (4, 25)]
    assert told["kinds"][1]["kind"] == "Violated: no quarter"
    assert told["kinds"][0]["repeat"].startswith("PYTHONHASHSEED=")
    assert told["kinds"][0]["repeat"].endswith("::test_some_fail --simtest-seed 3")
    assert [row["failures"] for row in told["density"]] == [1, 1, 2, 1, 2, 1, 1, 2, 1, 2]
    assert told["never_met"] == ["a miracle"]
    kept = pq.read_table(out / "failures.parquet")
    assert kept["seed"].to_pylist()[:4] == [3, 13, 23, 25]
