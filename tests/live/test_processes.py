"""Processes that are killed, stopped, started again: nothing lost, nothing doubled, one order."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from trial import Trial, lives, regular

from ringcast.members.words import wall_us
from ringcast.runtime.host import BOOT_STEPS

Make = Callable[..., Trial]


def boots(trial: Trial, node: int) -> list[int]:
    """The boot numbers a member has used, oldest file first."""
    paths = sorted(trial.traces.glob(f"{node}-*.trace"), key=lambda path: path.stat().st_ctime_ns)
    return [int(path.stem.partition("-")[2]) for path in paths]


def test_one_that_was_stopped_ejects_nobody(trial: Make) -> None:
    group = trial(3)
    group.start()
    group.together()
    group.work()
    group[3].signal(signal.SIGSTOP)
    group.together(1, 2)
    group.work(1, 2)
    resumed_us = wall_us()
    group[3].signal(signal.SIGCONT)
    group.together()
    group.work()
    pauses = group.fresh(3).metrics
    assert pauses["pauses"]
    assert pauses["frames_outdated"]
    events = group.judge()
    after = [view.members for view in regular(events, 3) if view.t_us > resumed_us]
    assert (3,) not in after, "it took itself for the only one left"


BACKWARDS = """
import time
now_ns = time.time_ns
time.time_ns = lambda: now_ns() - 3_600_000_000_000
from ringcast.cli.app import app
app()
"""


def test_boot_numbers_rise_when_the_clock_is_set_back(trial: Make) -> None:
    """By an hour, between two lives; its trace is put where the messages say it belongs."""
    group = trial(3)
    group.start()
    group.together()
    group.work()
    group[3].kill()
    group.together(1, 2)
    group[3].program = [sys.executable, "-c", BACKWARDS]
    group.start(3)
    group.together()
    group.work()
    assert group.fresh(3).t_us < wall_us() - 1_800_000_000
    events = group.judge()
    first, second = boots(group, 3)
    assert first < second <= first + BOOT_STEPS
    assert len(lives(events, 3)) == 3
    times = [event.t_us for event in regular(events, 3)]
    assert times == sorted(times)
