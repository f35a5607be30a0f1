"""Words of a copy on their way into its group: at once while there is room, else one by one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

from ringcast.api.group import Group, NotJoined, WouldBlock
from ringcast.core.errors import DeliveryUncertain
from ringcast.replica import words
from ringcast.replica.words import Word

AT_ONCE = 64
"""Words given to the group in one step."""


class WordQueue:
    """``group`` gives the group, which is another one after events were lost."""

    def __init__(self, group: Callable[[], Group]) -> None:
        self._group = group
        self._words: deque[bytes] = deque()
        self._full = asyncio.Event()
        self._one_waits = False
        """Whether ``run`` sends a word; those behind it stay here, or they would overtake it."""

    def put(self, word: Word) -> None:
        """The next word; it is sent by ``flush``."""
        self._words.append(words.encode(word))

    def clear(self) -> None:
        """Nobody would take what was not sent yet."""
        self._words.clear()

    def flush(self) -> None:
        """Send as much as there is room for."""
        if self._one_waits:
            return
        try:
            while self._words:
                some = tuple(islice(self._words, AT_ONCE))
                self._group().send_many_nowait(some)
                for _ in some:
                    self._words.popleft()
        except (WouldBlock, NotJoined):
            self._full.set()

    async def run(self) -> None:
        """Send words for which there was no room."""
        while True:
            await self._full.wait()
            self._full.clear()
            while self._words:
                self._one_waits = True
                with suppress(NotJoined, DeliveryUncertain):  # another view asks anew
                    await self._group().send(self._words.popleft())
                self._one_waits = False
                self.flush()
