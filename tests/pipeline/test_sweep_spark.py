"""Sweeps on Spark: on this machine, on a cluster, and when the driver or a worker is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringcast.cli.app import app
from ringcast.pipeline.spark.cluster import wait_until
from ringcast.pipeline.sweep import study
from ringcast.pipeline.sweep.results import Folder, load, table_of
from ringcast.pipeline.sweep.simulations import Orders, code_digest, key_of, packed, simulate_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 600.0
"""A JVM on a machine with much else to do takes its time; only what waits for ever is wrong."""

STUDY = """
name = "load"
seeds = "0..{seeds}"

[run]
nodes = 4
duration_us = 600_000
measure_from_us = 200_000
network = "lan"

[[run.workload]]
kind = "poisson"
rate = 200
safe = 0.5

[grid]
workload.0.rate = [100, 200]
"""

MIXED = """
name = "mixed"
seeds = 4

[run]
nodes = 2
duration_us = 100_000
progress_us = 5000
workload = [{kind = "poisson", rate = 100}]

[[cases]]
name = "fine"

[[cases]]
name = "cut off"
network.link = {loss = 1.0, unicast_loss = 1.0}

[[cases]]
name = "too rare for a float"
workload.0.rate = 1e-320
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "study.toml"
    file.write_text(text)
    return file


def expected(file: Path, folder: Path) -> Any:
    """The results as they come of the same simulations in this process, one after another."""
    wanted = study.load(file)
    code, jobs = code_digest(), tuple(packed(c.job) for c in wanted.combinations)
    points = list(wanted.points())
    Folder(folder).staging.mkdir(parents=True)
    list(simulate_all(Orders(str(folder), code, jobs, False), points))
    keys = [key_of(jobs[point.combination], point.seed, code) for point in points]
    rows = {key: Folder(folder).read_row(key) for key in keys}
    return table_of(wanted, keys, rows, {})  # type: ignore[arg-type]


def begin(file: Path, out: Path, where: Sequence[str] = (), token: str = "") -> Any:
    """``ringcast sweep`` in a process of its own; what descends from it carries ``token``."""
    command = [sys.executable, "-m", "ringcast.cli", "sweep", str(file), "--out", str(out)]
    return subprocess.Popen(
        [*command, *where, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"RINGCAST_TEST": token},
    )


def stamps(out: Path) -> dict[str, int]:
    """The rows that are there, and when they were written."""
    found = {}
    for path in (out / "rows").glob("*.parquet"):
        found[path.name] = path.stat().st_mtime_ns
    return found


def wait_for_rows(driver: Any, out: Path, count: int) -> None:
    """Until so many runs are finished, while the driver is at work."""
    assert wait_until(lambda: len(stamps(out)) >= count or driver.poll() is not None, PATIENCE_S)
    assert driver.poll() is None, driver.communicate()


def bearers(token: str) -> list[int]:
    """The processes that live and were started with ``token``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"RINGCAST_TEST={token}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue  # it has just ended
    return found


@pytest.mark.slow
def test_a_sweep_killed_three_times_ends_with_the_same_table(
    first_session: None, tmp_path: Path
) -> None:
    """Each life is killed in the middle, with all that belongs to it, as when the machine goes
    down, but for the last: Spark must see by itself that its driver is gone. No life touches the
    rows that are there."""
    file, out = write(tmp_path, STUDY.format(seeds=20)), tmp_path / "out"
    total, token = 40, tmp_path.name
    kept: dict[str, int] = {}
    for alone in (False, False, True):
        with begin(file, out, ["--master", "local[2,4]"], token) as driver:
            wait_for_rows(driver, out, len(kept) + 4)
            for pid in [driver.pid] if alone else bearers(token):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            driver.communicate()
        assert wait_until(lambda: not bearers(token), PATIENCE_S), "something outlives the driver"
        now = stamps(out)
        assert kept.items() <= now.items(), "a finished row was simulated again"
        assert alone or len(now) < total, "the sweep was over before it could be killed"
        assert not (out / "manifest.json").exists()
        kept = now
    with begin(file, out, ["--master", "local[2,4]"], token) as driver:
        report, err = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 0, err
    assert json.loads(report)["simulated"] == total - len(kept)
    assert kept.items() <= stamps(out).items()
    assert load(out).equals(expected(file, tmp_path / "plain"))
    assert not (out / "staging").exists()


@pytest.mark.parametrize("kind", ["master", "remote"])
def test_a_cluster_that_loses_a_worker_gives_the_same_table(
    kind: str, cluster: Any, tmp_path: Path
) -> None:
    file, out = write(tmp_path, STUDY.format(seeds=20)), tmp_path / "out"
    with begin(file, out, cluster.options[kind]) as driver:
        wait_for_rows(driver, out, 2)
        cluster.kill_busy_worker(kind)
        left = 40 - len(stamps(out))
        report, err = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 0, err
    assert left > 0, "the sweep was over before the worker was killed"
    assert json.loads(report)["statuses"] == {"ok": 40}
    assert load(out).equals(expected(file, tmp_path / "plain"))


def ringcast(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        app([*words])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_failures_are_rows_and_exit_codes(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, MIXED)
    assert ringcast("sweep", "study.toml", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["runs"], report["simulated"]) == (3, 3)
    assert report["statuses"] == {"error": 1, "ok": 1, "violated": 1}
    cut, rare = report["failures"]
    assert (cut["case"], cut["property"], cut["seed"]) == ("cut off", "progress", 4)
    assert (rare["case"], rare["property"]) == ("too rare for a float", None)
    assert cut["explanation"] and rare["explanation"].startswith("ZeroDivisionError")

    assert ringcast(*cut["repeat"].split()[1:], "--json") == 1
    again = json.loads(capsys.readouterr().out)["violations"][0]
    assert (again["property"], again["explanation"]) == (cut["property"], cut["explanation"])

    assert ringcast("sweep", "study.toml") == 1
    printed = capsys.readouterr().out
    assert "violated progress: " in printed and "error: ZeroDivisionError" in printed
    assert f"  repeat: {cut['repeat']}" in printed
    assert "3 runs (1 error, 1 ok, 1 violated), 0 of them now" in printed.replace("\n", " ")

    fine, _, rest = MIXED.partition('[[cases]]\nname = "cut off"')
    write(tmp_path, fine)
    assert ringcast("sweep", "study.toml", "--out", "fine", "--traces") == 0
    assert capsys.readouterr().err.endswith("1 of 1 trial runs\n")
    write(tmp_path, fine + rest[rest.index("[[cases]]") :])
    assert ringcast("sweep", "study.toml", "--out", "fine") == 2, "neither right nor violated"
    capsys.readouterr()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("sweep", "name a study, or a test with --simtest FILE::TEST"),
        ("sweep none.toml", "cannot read 'none.toml' (No such file or directory); a study is"),
        ("sweep bad.toml", "bad.toml: nodes = 0: Expected `int` >= 1 - at `$.nodes`"),
        ("sweep study.toml --out study.toml", "cannot write to study.toml (Not a directory)"),
        ("sweep study.toml --out full", "full holds something else than a sweep"),
        ("sweep study.toml --master here", "master 'here' is not local[2]"),
        ("sweep study.toml --master local --remote sc://a", "--master and --remote cannot be"),
        (
            "sweep study.toml --master spark://127.0.0.1:9",
            "no Spark answers at spark://127.0.0.1:9",
        ),
    ],
)
def test_a_mistake_is_told_in_one_line(
    line: str,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ringcast.pipeline.spark.session.active_session", lambda: None)
    write(tmp_path, MIXED)
    (tmp_path / "bad.toml").write_text('name = "x"\ngrid.nodes = [3, 0]\n')
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert ringcast(*line.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and complaint in printed.err
    assert printed.err.startswith("ringcast: ") and printed.err.count("\n") == 1
