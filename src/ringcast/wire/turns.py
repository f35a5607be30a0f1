"""FrameTurns: a port takes in, or tells, one long frame at a time: many take the room of one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable

TURN_S = 5.0
"""Longest silence of whoever has the turn, and the longest time to send a frame while others wait
for the turn."""


class FrameTurns:
    """Whose long frame is next. Of each caller one conversation waits, so that no guest keeps
    another waiting for more than one turn of its own.

    A turn lasts until the frame has been dealt with, since its bytes are held as long: given back
    earlier, each guest could have the room of a frame while its rows wait for the ring.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._first: dict[Hashable, asyncio.Lock] = {}
        """By caller: held by the conversation of it that waits or has the turn."""
        self._users: Counter[Hashable] = Counter()

    async def take(self, caller: Hashable) -> None:
        """Wait for the turn."""
        first = self._first.setdefault(caller, asyncio.Lock())
        self._users[caller] += 1
        try:
            await first.acquire()
            self._waiting += 1
            try:
                await self._turn.acquire()
            except BaseException:
                first.release()
                raise
            finally:
                self._waiting -= 1
        except BaseException:
            self._leave(caller)
            raise

    def give(self, caller: Hashable) -> None:
        """It is the next one's."""
        self._turn.release()
        self._first[caller].release()
        self._leave(caller)

    def _leave(self, caller: Hashable) -> None:
        self._users[caller] -= 1
        if not self._users[caller]:
            del self._users[caller], self._first[caller]

    @property
    def contested(self) -> bool:
        """Whether somebody waits."""
        return self._waiting > 0
