"""How far a job is: what is shown, and that both kinds of Spark tell it."""

from __future__ import annotations

import pytest

from ringcast.pipeline.spark.progress import LINE_EVERY_S, Bar


class Clock:
    """Time that passes when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Bar("windows", 40, clock=clock) as bar:
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
    with Bar("windows", 5, quiet=True) as bar:
        bar.show(3)
        bar.show(2)
        assert bar.done == 3
        bar.show(9)
        assert bar.done == 5


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar("windows", 5, quiet=True) as bar:
        bar.show(5)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with Bar("windows", 5) as bar:
        bar.show(3)
    shown = capsys.readouterr().err
    assert "windows" in shown and "3/5" in shown
