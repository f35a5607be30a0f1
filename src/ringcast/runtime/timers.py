"""Timers: the deadlines a machine has set, and one alarm of the event loop for the earliest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from ringcast.core.effects import CancelTimer, SetTimer
from ringcast.core.env import Env
from ringcast.core.inputs import Timer
from ringcast.runtime.clock import TICK_US, ActiveClock

EARLY_US = 1_000
"""Timers are due so much earlier: loops count milliseconds, and uvloop's may wake us before the
time, only to be asked for a fraction of one more. An idle ring takes a third less this way."""


class Timers:
    """Deadlines in active time. The alarm rings at the earliest of them, or at the next tick."""

    def __init__(self, clock: ActiveClock, env: Env) -> None:
        self._clock, self._env = clock, env
        self._deadlines: dict[Timer, int] = {}
        self._armed_us = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop
        self._ring: Callable[[], None]

    def __len__(self) -> int:
        """How many are set."""
        return len(self._deadlines)

    def start(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        """Call ``ring`` when something may be due; the first time is asked for by ``arm_next``."""
        self._loop, self._ring = loop, ring

    def set(self, effect: SetTimer) -> None:
        """Carry out the effect; setting a timer again replaces its deadline."""
        at_us = self._env.now_us + effect.delay_us
        self._deadlines[effect.timer] = at_us
        if at_us < self._armed_us:
            self._arm(at_us, self._clock.now_us())

    def cancel(self, effect: CancelTimer) -> None:
        """Carry out the effect; a timer that is not set is fine."""
        self._deadlines.pop(effect.timer, None)

    def due(self) -> Iterator[Timer]:
        """The timers whose time has come, in order; one that an earlier one cancelled or set again
        is left out."""
        now_us = self._env.now_us + EARLY_US
        if not self._deadlines or min(self._deadlines.values()) > now_us:
            return
        due = [(at, str(timer), timer) for timer, at in self._deadlines.items() if at <= now_us]
        for at, _, timer in sorted(due):
            if self._deadlines.get(timer) == at:
                del self._deadlines[timer]
                yield timer

    def arm_next(self, now_us: int) -> None:
        """Set the alarm to the earliest deadline, or the next tick."""
        self._arm(min((now_us + TICK_US, *self._deadlines.values())), now_us)

    def _arm(self, at_us: int, now_us: int) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._armed_us = at_us
        self._clock.expect(at_us)
        delay_s = max(0, at_us - now_us) / 1e6
        self._alarm = self._loop.call_later(delay_s, self._ring)

    def close(self) -> None:
        """Ring no more."""
        if self._alarm is not None:
            self._alarm.cancel()
