"""iRBP as processes: a stop that costs nobody its place."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from trial import Trial, regular

Make = Callable[..., Trial]


def test_a_short_stop_costs_no_member_its_place(trial: Make) -> None:
    """I2, I23: the ring goes round it by the aggressive limit; it catches up, and is back."""
    group = trial(3, protocol="irbp")
    group.start()
    group.together()
    group.work()
    group[3].signal(signal.SIGSTOP)
    group.work(1, 2)
    time.sleep(0.3)
    group[3].signal(signal.SIGCONT)
    group.work()
    events = group.judge()
    for node in (1, 2, 3):
        assert [view.members for view in regular(events, node)] == [(1, 2, 3)]
