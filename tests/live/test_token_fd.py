"""token-fd as processes: nobody is removed; who was killed stays out; what others missed comes."""

from __future__ import annotations

import signal
from collections.abc import Callable

from trial import Trial, lives, regular

from ringcast.runtime.fault_injection import Faults

Make = Callable[..., Trial]


def test_one_is_stopped_for_a_while_then_one_is_killed_for_good(trial: Make) -> None:
    group = trial(3, protocol="token-fd")
    group.start()
    group.together()
    group.work()
    group[2].signal(signal.SIGSTOP)
    group.work(1, 3)
    group[2].signal(signal.SIGCONT)
    group.work()
    group[3].kill()
    group.work(1, 2)
    group.start(3)
    assert group.ended(3) != 0
    assert "took part in epoch 1" in group[3].errors
    assert group[3].errors.strip().count("\n") == 0
    events = group.judge(1, 2)
    ends = [type(event).__name__ for event in lives(events, 3)]
    assert ends == ["Restarted", "Crashed", "Restarted", "Crashed"]
    assert [len(regular(events, node)) for node in (1, 2, 3)] == [1, 1, 1]


def test_frames_that_are_lost_are_fetched(trial: Make) -> None:
    group = trial(3, protocol="token-fd")
    for member in group.band.members.values():
        member.faults(Faults(loss=0.1))
    group.start()
    group.together()
    group.work()
    for member in group.band.members.values():
        member.faults(Faults())
    group.judge()
