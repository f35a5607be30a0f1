"""Active time: a clock that stands still while this process does.

A process that was not scheduled for a while (a stopped virtual machine, SIGSTOP, a busy CPU, a
blocked event loop) must not conclude that everybody else has failed. Its timers run in active
time: when it wakes later than it asked to, what it missed is taken off.
"""

from __future__ import annotations

import time
from collections.abc import Callable

TICK_US = 50_000
"""The loop is woken at least this often, so that nearly all of a pause is noticed as one."""

PAUSE_US = 25_000
"""Waking later than this counts as a pause."""


class ActiveClock:
    """Microseconds of monotonic time less the pauses of this process."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._monotonic_ns = monotonic_ns
        self._stolen_us = 0
        self._expected_us = 0
        self.pauses = 0
        self.paused_us = 0
        self.longest_us = 0

    def now_us(self) -> int:
        """Active time."""
        return self._monotonic_ns() // 1000 - self._stolen_us

    def expect(self, at_us: int) -> None:
        """The loop was asked to wake us at this active time."""
        self._expected_us = at_us

    def wake(self) -> int:
        """We run again: take off what we slept too long, and return the time."""
        now_us = self._monotonic_ns() // 1000 - self._stolen_us
        late_us = now_us - self._expected_us
        if self._expected_us and late_us > PAUSE_US:
            self._stolen_us += late_us
            self.pauses += 1
            self.paused_us += late_us
            self.longest_us = max(self.longest_us, late_us)
            self._expected_us = 0
            return now_us - late_us
        return now_us
