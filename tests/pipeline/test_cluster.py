"""Starting and ending a cluster: what can go wrong on the way. No Spark runs here."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ringcast.cli.app import app
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.spark import cluster
from ringcast.pipeline.spark.cluster import LocalSpark

STAND_IN = Path(__file__).with_name("spark_stand_in.py")


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the pyspark package."""
    home = tmp_path / "spark"
    for part in ("bin", "jars"):
        (home / part).mkdir(parents=True)
    start = f'exec {shlex.quote(sys.executable)} {shlex.quote(str(STAND_IN))} "$0" "$@"\n'
    for name in ("spark-class", "spark-submit"):
        (home / "bin" / name).write_text(f"#!/bin/sh\n{start}")
        (home / "bin" / name).chmod(0o755)
    monkeypatch.setattr(cluster, "spark_home", lambda: home)
    return home


@pytest.fixture
def folder(spark_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The state folder of the commands; whatever was started is ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = cluster.state_folder(os.environ)
    assert folder == tmp_path / "state" / "ringcast" / "cluster"
    yield folder
    cluster.down(folder)


def ringcast(*words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of ``ringcast cluster WORDS``."""
    done = CliRunner().invoke(app, ["cluster", *words])
    return done.exit_code, done.stdout, done.stderr


def test_up_status_down(folder: Path) -> None:
    assert ringcast("status") == (2, "no cluster is up\n", "")
    code, out, _ = ringcast("up", "--workers", "3", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["master"].startswith("spark://127.0.0.1:")
    assert told["remote"].startswith("sc://127.0.0.1:")
    assert [part["name"] for part in told["parts"]] == [
        "master", "worker-1", "worker-2", "worker-3", "connect",
    ]  # fmt: skip
    assert all(part["running"] for part in told["parts"])
    assert json.loads(ringcast("status", "--json")[1]) == told

    code, _, err = ringcast("up")
    assert code == 2
    assert "up already" in err and told["master"] in err and err.count("\n") == 1

    assert ringcast("down")[1] == "ended master, worker-1, worker-2, worker-3, connect\n"
    assert not folder.exists()
    assert all(not cluster.command_line(part["pid"]) for part in told["parts"])
    assert ringcast("down")[:2] == (0, "no cluster is up\n")


def test_a_part_that_is_gone_is_shown_and_the_rest_is_ended(folder: Path) -> None:
    found = cluster.up(folder, workers=2)
    os.killpg(found.parts["worker-2"].pid, signal.SIGKILL)
    assert cluster.wait_until(lambda: not found.alive("worker-2"), 30)
    code, out, _ = ringcast("status")
    assert code == 2
    assert [line.split()[1] for line in out.splitlines()[1:]] == [
        "running", "running", "gone", "running",
    ]  # fmt: skip
    cluster.down(folder)
    assert not any(found.alive(name) for name in found.parts)


def test_a_worker_that_is_left_alone_still_has_cores_for_both_applications(
    folder: Path,
) -> None:
    """Or a job waits for ever beside the Connect server, which holds its cores."""
    found = cluster.up(folder, workers=2)
    lines = Path(found.settings).read_text().splitlines()
    settings = dict(line.split(" ", 1) for line in lines)
    taken = int(settings["spark.cores.max"]) + int(settings["spark.deploy.defaultCores"])
    for name in found.workers():
        words = cluster.command_line(found.parts[name].pid).split()
        assert int(words[words.index("--cores") + 1]) >= taken


@pytest.mark.parametrize(
    ("part", "word"), [("master", "Master"), ("worker-1", "worker-1"), ("connect", "--class")]
)
def test_a_part_that_fails_is_named_and_the_others_are_ended(
    part: str, word: str, folder: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[LocalSpark, str]] = []
    start = cluster.start

    def noticed(at: LocalSpark, name: str, command: list[str]) -> None:
        start(at, name, command)
        started.append((at, name))

    monkeypatch.setattr(cluster, "start", noticed)
    (spark_home / "bin" / "fails").write_text(word)
    with pytest.raises(PipelineError, match=f"{part} ended; its log is .*/{part}.log") as caught:
        cluster.up(folder)
    log = Path(str(caught.value).rpartition(" ")[2])
    assert log.read_text() == "it is broken\n"
    assert started and not any(at.alive(name) for at, name in started)
    assert cluster.load(folder) is None
    (spark_home / "bin" / "fails").unlink()
    assert cluster.up(folder).parts, "what is left of a failure is in the way"


def test_a_part_that_never_answers_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "START_S", 0.0)
    monkeypatch.setattr(cluster, "registered", lambda at: -1)
    with pytest.raises(PipelineError, match="master did not answer within 0 s; its log is"):
        cluster.up(folder)


def test_another_process_with_the_same_number_is_left_alone(folder: Path) -> None:
    """The machine was restarted, say, and the numbers of the record are others' now."""
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        for again in (cluster.down, cluster.up):
            found = cluster.up(folder, workers=1)
            cluster.end(found)
            for part in found.parts.values():
                part.pid = stranger.pid
            found.save()
            assert ringcast("status")[0] == 2
            again(folder)
            assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_one_command_at_a_time(folder: Path) -> None:
    with cluster.lock(folder):
        assert ringcast("up")[2].endswith("another 'ringcast cluster' is at work; let it end\n")
        assert ringcast("down")[0] == 2


def test_a_damaged_record_is_named(folder: Path) -> None:
    folder.mkdir(parents=True)
    cluster.record(folder).write_text("{")
    for word in ("up", "down", "status"):
        code, _, err = ringcast(word)
        assert code == 2 and str(cluster.record(folder)) in err and err.count("\n") == 1
    cluster.record(folder).unlink()


def test_a_state_folder_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    code, _, err = ringcast("up")
    assert code == 2 and "XDG_STATE_HOME" in err


def test_the_users_own_spark_has_no_say(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_REMOTE", "SPARK_MASTER_OPTS", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME"):
        monkeypatch.setenv(name, "theirs")
    assert (
        "theirs" not in cluster.environment(LocalSpark("f", "t", "m", "r", "p", "j", "o")).values()
    )
