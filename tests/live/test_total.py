"""TOTAL as processes: the sequencer is killed, one is stopped, the network parts and is whole."""

from __future__ import annotations

import signal
from collections.abc import Callable

from trial import Trial, regular

from ringcast.members.words import wall_us
from ringcast.runtime.fault_injection import Faults

Make = Callable[..., Trial]


def test_the_sequencer_is_killed_and_comes_back_and_another_is_stopped(trial: Make) -> None:
    group = trial(3, protocol="total")
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


def test_in_uniform_mode_with_loss_the_network_parts_and_is_whole_again(trial: Make) -> None:
    group = trial(4, 'profile = "uniform"\n', protocol="total")
    for member in group.band.members.values():
        member.faults(Faults(loss=0.05))
    group.start()
    group.together()
    group.work()
    group.band.part((1, 2), (3, 4))
    group.together(1, 2)
    group.together(3, 4)
    group.work()
    group.band.part()
    group.together()
    group.work()
    group.judge()
