"""Process: one life of a host, and the clock of the machine it lives on.

Whatever a program does happens on behalf of a process. Which one is kept in a context variable,
so tasks, timers and callbacks belong to the process that made them without being told.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringcast.testing.handles import SimHandle
    from ringcast.testing.host import Host
    from ringcast.testing.threads import Pool

EPOCH_US = 1_700_000_000_000_000
"""What the wall clock of every machine shows when a world begins."""

MILLION = 1_000_000


class Clock:
    """A machine's clocks: one that only rises, and one that somebody may set."""

    __slots__ = ("_offset_us", "_since_us", "ahead_us", "ppm")

    def __init__(self) -> None:
        self.ppm = 0
        self._since_us = 0
        self.ahead_us = 0
        """Of the world's time, without what it gained since it drifts as it does now."""
        self._offset_us = EPOCH_US

    def local_us(self, now_us: int) -> int:
        """The monotonic clock at a moment of the world's time."""
        gained_us = (now_us - self._since_us) * self.ppm // MILLION if self.ppm else 0
        return now_us + self.ahead_us + gained_us

    def wall_us(self, now_us: int) -> int:
        """The wall clock at a moment of the world's time."""
        return self.local_us(now_us) + self._offset_us

    def real_us(self, delay_us: int) -> int:
        """How long the world waits until this clock has counted ``delay_us``."""
        return -(-delay_us * MILLION // (MILLION + self.ppm)) if self.ppm else delay_us

    def drift(self, now_us: int, ppm: int) -> None:
        """Gain ``ppm`` microseconds a second from now on (lose them, below 0)."""
        self.ahead_us, self._since_us = self.local_us(now_us) - now_us, now_us
        self.ppm = ppm

    def jump(self, by_us: int) -> None:
        """Somebody sets the wall clock."""
        self._offset_us += by_us


class Process:
    """From a start to an end. What belongs to a process that is not alive never runs again."""

    __slots__ = (
        "alive", "clock", "halted", "held", "host", "in_job", "job_us", "number", "paused", "pool",
    )  # fmt: skip

    def __init__(self, host: Host, number: int) -> None:
        self.host = host
        self.number = number
        """Its process id."""
        self.clock = host.clock
        self.alive = True
        self.paused = False
        self.halted = False
        """Whether it is not alive, or paused: nothing of it runs now."""
        self.held: list[SimHandle] = []
        """What became due while the process stood still."""
        self.pool: Pool | None = None
        """Its threads, if it has any."""
        self.in_job = False
        """Whether the code that runs is a thread's."""
        self.job_us = 0
        """How far that has slept ahead of the world."""

    def pause(self) -> None:
        """Stand still."""
        self.paused = self.halted = True

    def go_on(self) -> list[SimHandle]:
        """Stand still no longer; what became due meanwhile."""
        self.paused, self.halted = False, not self.alive
        held, self.held = self.held, []
        return held

    def end(self) -> None:
        """Nothing of it runs any more."""
        self.alive, self.halted = False, True
        self.held.clear()


PROCESS: ContextVar[Process | None] = ContextVar("ringcast.testing.process", default=None)
"""On whose behalf the code that runs now runs; None: the test itself."""
