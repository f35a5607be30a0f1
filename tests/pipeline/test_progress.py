"""How far a job is: what is shown, and that both kinds of Spark tell it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ringcast.pipeline.spark import progress
from ringcast.pipeline.spark.progress import LINE_EVERY_S, WAIT_S, ProgressBar, watch


class Clock:
    """Time that passes when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with ProgressBar("windows", 40, clock=clock) as bar:
        bar.show(1)
        bar.show(2)
        clock.now += LINE_EVERY_S
        bar.show(10)
        bar.show(10)
        clock.now += LINE_EVERY_S * 9
        bar.show(30)
    assert capsys.readouterr().err.splitlines() == [
        "1 of 40 windows",
        "10 of 40 windows, 30 s left",
        "30 of 40 windows, 33 s left",
    ]


def test_it_goes_neither_back_nor_too_far() -> None:
    with ProgressBar("windows", 5, quiet=True) as bar:
        bar.show(3)
        bar.show(2)
        assert bar.done == 3
        bar.show(9)
        assert bar.done == 5


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("windows", 5, quiet=True) as bar:
        bar.show(5)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with ProgressBar("windows", 5) as bar:
        bar.show(3)
    shown = capsys.readouterr().err
    assert "windows" in shown and "3/5" in shown


def test_a_job_that_gets_no_cores_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with ProgressBar("windows", 5, clock=clock) as bar:
        for running, seconds in ((0, WAIT_S / 2), (1, WAIT_S), (0, WAIT_S - 1)):
            clock.now += seconds
            bar.running(running)
        assert capsys.readouterr().err == ""
        for _ in range(3):
            clock.now += WAIT_S
            bar.running(0)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("no task has begun for 10 s: other applications hold the cluster's")
        bar.running(1)
        clock.now += WAIT_S
        bar.running(0)
        assert "no task has begun" in capsys.readouterr().err, "it ran, and waits again"
    with ProgressBar("windows", 5, quiet=True, clock=clock) as bar:
        clock.now += 2 * WAIT_S
        bar.running(0)
    assert capsys.readouterr().err == ""


class Tracker:
    """Of a driver with one stage of three tasks, of which so many run and are done."""

    running = done = 0
    stages: tuple[int, ...] = (7,)

    def getActiveStageIds(self) -> tuple[int, ...]:
        return self.stages

    def getStageInfo(self, stage: int) -> Any:
        from pyspark.core.status import SparkStageInfo

        return SparkStageInfo(stage, 0, "stage", 3, self.running, self.done, 0)


@pytest.mark.parametrize(
    ("running", "stages", "waits"), [(0, (7,), True), (1, (7,), False), (0, (), False)]
)
def test_a_driver_is_asked_whether_its_tasks_run(
    running: int,
    stages: tuple[int, ...],
    waits: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before the first stage, and between two, a job does not wait for cores."""
    tracker, asked = Tracker(), []
    tracker.running, tracker.stages = running, stages

    class Driver:
        """As much of a session as is asked."""

        class sparkContext:
            """Its context."""

            @staticmethod
            def statusTracker() -> Tracker:
                asked.append(tracker)
                return tracker

    monkeypatch.setattr(progress, "LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(progress, "WAIT_S", 0.0)
    said = ""
    with watch(Driver(), 3, "windows"):  # type: ignore[arg-type]
        deadline = time.monotonic() + (60 if waits else 0.2)
        while "no task has begun" not in said and time.monotonic() < deadline:
            time.sleep(0.005)
            said += capsys.readouterr().err
    assert ("no task has begun" in said) is waits and asked


@pytest.mark.parametrize(("inflight", "done", "waits"), [(0, False, True), (2, False, False),
                                                         (0, True, False)])  # fmt: skip
def test_a_connect_server_tells_whether_tasks_run(
    inflight: int,
    done: bool,
    waits: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    handlers: list[Any] = []

    class Server:
        """As much of a session as is asked."""

        registerProgressHandler = staticmethod(handlers.append)
        removeProgressHandler = staticmethod(handlers.remove)

    monkeypatch.setattr("pyspark.sql.is_remote", lambda: True)
    monkeypatch.setattr(progress, "WAIT_S", 0.0)
    with watch(Server(), 3, "windows"):  # type: ignore[arg-type]
        (handler,) = handlers
        handler(stages=[], inflight_tasks=inflight, operation_id=None, done=done)
    assert ("no task has begun" in capsys.readouterr().err) is waits and not handlers
