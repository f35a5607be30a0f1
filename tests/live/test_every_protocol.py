"""Whatever orders: one process is killed and comes back, one is stopped, all are killed at once."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from published import PUBLISHED
from trial import Trial, lives, regular

from ringcast.core.registry import MembershipKind
from ringcast.members.words import wall_us

Make = Callable[..., Trial]

CHANGING = [sheet.name for sheet in PUBLISHED if sheet.membership is not MembershipKind.FIXED]


@pytest.mark.parametrize("protocol", CHANGING)
def test_one_is_killed_and_comes_back_and_another_is_stopped(trial: Make, protocol: str) -> None:
    group = trial(3, protocol=protocol)
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
    told = [type(event).__name__ for event in lives(events, 1)]
    assert told == ["Restarted", "Crashed", "Restarted"]


@pytest.mark.parametrize("protocol", CHANGING)
def test_the_network_parts_and_all_are_killed_and_come_back(trial: Make, protocol: str) -> None:
    group = trial(3, protocol=protocol)
    group.start()
    group.together()
    group.work()
    group.band.part((1,), (2, 3))
    group.together(2, 3)
    group.work(2, 3)
    group.band.part()
    group.together()
    group.work()
    for node in group.all:
        group[node].kill()
    group.start()
    group.together()
    group.work()
    events = group.judge()
    for node in group.all:
        seqs = [view.view.seq for view in regular(events, node)]
        assert seqs == sorted(set(seqs)), "the number of a configuration was used again"
