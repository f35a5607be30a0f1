"""A story tells what it waits for, and ends when that takes too long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from rich.table import Table

from ringcast.demo.screen import Late, Screen, Stage


class Quiet:
    """A group to which nothing happens."""

    members: dict[int, Any] = {}  # noqa: RUF012

    def until(self, done: Callable[[], bool], seconds: float) -> bool:
        return done()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr("ringcast.demo.screen.time.monotonic", lambda: float(next(ticks)))


def stage(patience_s: float) -> Stage:
    return Stage(Quiet(), Screen(Table, quiet=False), patience_s, 1.0)  # type: ignore[arg-type]


def test_it_tells_what_it_waits_for(clock: None, capsys: pytest.CaptureFixture[str]) -> None:
    looks: Iterator[int] = count()
    stage(100.0).until("Spark", lambda: next(looks) == 20, lambda: "it is starting")
    lines = capsys.readouterr().out.splitlines()
    assert 2 <= len(lines) <= 4
    assert all(line.endswith("s  waiting for Spark: it is starting") for line in lines)


def test_it_does_not_wait_for_ever(clock: None) -> None:
    with pytest.raises(Late, match="members 1 2 together: not within 30 s"):
        stage(30.0).until("members 1 2 together", lambda: False)
