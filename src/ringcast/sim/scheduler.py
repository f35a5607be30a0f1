"""Virtual time: a heap of what is going to happen.

An entry is the plain tuple ``(t_us, rank, count, action, argument)``. Within one microsecond the
rank decides, then the order of scheduling, so a run never depends on how a heap breaks ties.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeAlias

WORLD = 0
"""Faults, submissions and other doings of the world come first."""
BROADCAST = 1
"""Broadcast frames arrive before ..."""
UNICAST = 2
"""... unicast ones of the same microsecond."""
TIMER = 3
"""A frame that arrives in time is handled before the timer that waits for it."""

Entry: TypeAlias = tuple[int, int, int, Callable[[Any], None], Any]


class Scheduler:
    """The clock of a simulation, in integer microseconds, and its agenda."""

    __slots__ = ("_every", "_left", "_look", "halted", "heap", "now_us", "ticket")

    def __init__(self) -> None:
        self.now_us = 0
        self.heap: list[Entry] = []
        self.ticket = count()
        """Numbers the entries; the network draws from it directly, its path being the hot one."""
        self.halted = False
        """Set to leave ``run_until`` after the entry being carried out."""
        self._every = self._left = -1
        self._look: Callable[[], None]

    def at(
        self, t_us: int, action: Callable[[Any], None], argument: Any = None, rank: int = WORLD
    ) -> None:
        """Carry out ``action(argument)`` at ``t_us``, which is not in the past."""
        heappush(self.heap, (t_us, rank, next(self.ticket), action, argument))

    def every(self, entries: int, look: Callable[[], None]) -> None:
        """Let ``run_until`` call ``look`` each time it has carried out that many entries."""
        self._every = self._left = entries
        self._look = look

    def step(self) -> bool:
        """Carry out the next entry; False if there is none."""
        if not self.heap:
            return False
        self.now_us, _, _, action, argument = heappop(self.heap)
        action(argument)
        return True

    def run_until(self, t_us: int) -> None:
        """Carry out everything up to and including ``t_us``, unless halted on the way."""
        heap, left = self.heap, self._left
        while heap and heap[0][0] <= t_us and not self.halted:
            self.now_us, _, _, action, argument = heappop(heap)
            action(argument)
            left -= 1
            if not left:
                left = self._every
                self._look()
        self._left = left
        if not self.halted:
            self.now_us = max(self.now_us, t_us)
