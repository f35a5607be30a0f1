"""RBP as processes: one is killed, one is stopped, and both come back; a minority waits."""

from __future__ import annotations

import signal
from collections.abc import Callable

from trial import Trial, regular

from ringcast.members.words import wall_us

Make = Callable[..., Trial]


def test_one_is_killed_and_comes_back_and_another_is_stopped(trial: Make) -> None:
    group = trial(3, protocol="rbp")
    group.start()
    group.together()
    group.work()
    group[1].kill()
    group.together(2, 3)
    group.work(2, 3)
    group.start(1)
    group.together()
    group.work()
    group[3].signal(signal.SIGSTOP)
    group.together(1, 2)
    group.work(1, 2)
    resumed_us = wall_us()
    group[3].signal(signal.SIGCONT)
    group.together()
    group.work()
    events = group.judge()
    after = [view.members for view in regular(events, 3) if view.t_us > resumed_us]
    assert (1, 2, 3) in after


def test_a_minority_waits_and_all_are_killed_and_come_back(trial: Make) -> None:
    group = trial(3, protocol="rbp")
    group.start()
    group.together()
    group.work()
    group.band.part((1,), (2, 3))
    group.together(2, 3)
    group.work(2, 3)
    group.band.part()
    group.together()
    group.work()
    for node in (1, 2, 3):
        group[node].kill()
    group.start()
    group.together()
    group.work()
    group.judge()
