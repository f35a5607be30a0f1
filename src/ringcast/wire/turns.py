"""FrameTurns: a port takes in one long frame at a time, so many at once take the room of one."""

from __future__ import annotations

import asyncio
from collections import Counter

from ringcast.wire.keys import Grant

TURN_S = 5.0
"""Longest silence of whoever has the turn, and the longest time to send a frame while others wait
for the turn."""


class FrameTurns:
    """Who may send a long frame now. Of each guest one conversation waits, so that no guest keeps
    another waiting for more than one turn of its own.

    A turn lasts until the frame has been dealt with, since its bytes are held as long: given back
    earlier, each guest could have the room of a frame while its rows wait for the ring.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._first: dict[Grant | None, asyncio.Lock] = {}
        """By guest: held by the conversation of it that waits or has the turn."""
        self._users: Counter[Grant | None] = Counter()

    async def take(self, grant: Grant | None) -> None:
        """Wait for the turn."""
        first = self._first.setdefault(grant, asyncio.Lock())
        self._users[grant] += 1
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
            self._leave(grant)
            raise

    def give(self, grant: Grant | None) -> None:
        """It is the next one's."""
        self._turn.release()
        self._first[grant].release()
        self._leave(grant)

    def _leave(self, grant: Grant | None) -> None:
        self._users[grant] -= 1
        if not self._users[grant]:
            del self._users[grant], self._first[grant]

    @property
    def contested(self) -> bool:
        """Whether somebody waits."""
        return self._waiting > 0
