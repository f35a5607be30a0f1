"""Words of a copy for which its group has no room at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from ringcast.api.group import WouldBlock
from ringcast.api.word_queue import WordQueue
from ringcast.replica import words
from ringcast.replica.words import Ack, Epoch, Word


class Crowded:
    """As much of a group as the queue uses: what was sent, and whether there is room."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.sent: list[Word] = []

    def send_many_nowait(self, bodies: Iterable[bytes]) -> None:
        if not self.room.is_set():
            raise WouldBlock
        self.sent += map(words.decode, bodies)

    async def send(self, body: bytes) -> None:
        await self.room.wait()
        self.sent.append(words.decode(body))


def test_no_word_overtakes_one_that_waits_for_room() -> None:
    """Pieces of a state that come in another order are none (RS-8): all attempts began anew."""

    async def test() -> None:
        group: Any = Crowded()
        queue = WordQueue(lambda: group)
        running = asyncio.ensure_future(queue.run())
        some = [Ack(Epoch(4, 1), length) for length in range(200)]
        for word in some[:100]:
            queue.put(word)
        queue.flush()
        await asyncio.sleep(0)  # one of them waits
        group.room.set()
        for word in some[100:]:
            queue.put(word)
        queue.flush()  # before that one goes on
        for _ in range(5):
            await asyncio.sleep(0)
        assert group.sent == some
        running.cancel()

    asyncio.run(test())
