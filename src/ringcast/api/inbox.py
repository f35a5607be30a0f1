"""A group's events on their way to the reader, in bounded memory.

A reader that falls behind slows the ring down first (``crowded``: the node reads its socket
less often, and the token, which only moves when it is read, slows everybody). If that does not
help, what waits is dropped and one EventsLost takes its place.
"""

from __future__ import annotations

import asyncio

from ringcast.api.events import Batch, EventsLost, View
from ringcast.core.errors import RingcastError

SOFT_BYTES, HARD_BYTES = 64 * 2**20, 256 * 2**20
"""What the bodies that wait may take before the ring slows down, and before events are lost."""


class TwoReaders(RingcastError, RuntimeError):
    """A group is read in two places at the same time: each event goes to one of them only."""


class Inbox:
    """Events of one group, oldest first."""

    def __init__(self, soft: int, hard: int) -> None:
        self._soft, self._hard = soft, hard
        self._events: list[Batch | View | EventsLost] = []
        self._messages = self._bytes = 0
        self._reader: asyncio.Future[None] | None = None
        self._closed: BaseException | None = None
        self._over = False

    @property
    def crowded(self) -> bool:
        """Whether the ring should slow down for this reader."""
        return self._messages > self._soft or self._bytes > SOFT_BYTES

    def push(self, event: Batch | View) -> None:
        """Take one event and let the reader run."""
        if self._over:
            return
        self._events.append(event)
        if type(event) is Batch:
            self._messages += len(event.bodies)
            self._bytes += sum(map(len, event.bodies))
        else:
            self._messages += 1
        # A reader that waits is not behind: what came at once, it takes in its next turn.
        if self._reader is None and (self._messages > self._hard or self._bytes > HARD_BYTES):
            self._drop()
        self._wake()

    def lost(self, count: int) -> None:
        """Events passed by that could not be pushed."""
        if not self._over:
            if self._events and type(last := self._events[-1]) is EventsLost:
                self._events[-1] = EventsLost(last.count + count)
            else:
                self._events.append(EventsLost(count))
            self._wake()

    def _drop(self) -> None:
        """Everything goes but the newest view: the reader must know who is there."""
        lost, view = 0, None
        for event in self._events:
            if type(event) is EventsLost:
                lost += event.count
            elif type(event) is Batch:
                lost += len(event.bodies)
            else:
                lost += view is not None
                view = event
        self._events = [EventsLost(lost)] if view is None else [EventsLost(lost), view]
        self._messages, self._bytes = int(view is not None), 0

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def close(self, error: BaseException | None = None) -> None:
        """No more events: the reader gets what is left, then the end, or ``error``."""
        if not self._over:
            self._over, self._closed = True, error
            self._wake()

    async def take(self) -> list[Batch | View | EventsLost]:
        """Everything that waits, at least one event; StopAsyncIteration when there will be no
        more."""
        if self._reader is not None:
            raise TwoReaders("a group has one reader; use one 'async for' at a time")
        while not self._events:
            if self._over:
                if self._closed is not None:
                    raise self._closed
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        events, self._events = self._events, []
        self._messages = self._bytes = 0
        return events
