"""A group's events on their way to the reader, in bounded memory.

A reader that falls behind slows the ring down first (``crowded``: the node reads its socket
less often, and the token, which only moves when it is read, slows everybody). If that does not
help, what waits is dropped and one EventsLost takes its place.
"""

from __future__ import annotations

import asyncio
from collections import deque

from ringcast.api.events import Batch, EventsLost, View


class Inbox:
    """Events of one group, oldest first."""

    def __init__(self, soft: int, hard: int) -> None:
        self._soft, self._hard = soft, hard
        self._events: deque[Batch | View | EventsLost] = deque()
        self._messages = 0
        self._reader: asyncio.Future[None] | None = None
        self._closed: BaseException | None = None
        self._over = False

    @property
    def crowded(self) -> bool:
        """Whether the ring should slow down for this reader."""
        return self._messages > self._soft

    def push(self, event: Batch | View) -> None:
        """Take one event; the reader is woken by ``wake``."""
        if type(event) is Batch:
            self._messages += len(event.bodies)
        self._events.append(event)
        if self._messages > self._hard or len(self._events) > self._hard:
            self._drop()

    def _drop(self) -> None:
        lost = 0
        for event in self._events:
            lost += len(event.bodies) if type(event) is Batch else 1
            lost += event.count - 1 if type(event) is EventsLost else 0
        self._events.clear()
        self._messages = 0
        self._events.append(EventsLost(lost))

    def wake(self) -> None:
        """Let the reader run if there is something to read."""
        reader = self._reader
        if reader is not None and not reader.done() and (self._events or self._over):
            reader.set_result(None)

    def close(self, error: BaseException | None = None) -> None:
        """No more events: the reader gets what is left, then the end, or ``error``."""
        self._over, self._closed = True, error
        self.wake()

    async def take(self) -> list[Batch | View | EventsLost]:
        """Everything that waits, at least one event; empty when there will be no more."""
        while not self._events:
            if self._over:
                if self._closed is not None:
                    raise self._closed
                return []
            if self._reader is not None:
                raise RuntimeError("a group has one reader; use one 'async for' at a time")
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        events = list(self._events)
        self._events.clear()
        self._messages = 0
        return events
