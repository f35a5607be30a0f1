"""Journals over TCP: who is from_records, who is not, and what a stranger costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from ringcast.core.errors import RingcastError
from ringcast.core.ids import Position
from ringcast.journal.service import (
    GUEST,
    SHORT,
    Answer,
    Commit,
    Done,
    Question,
    Server,
    answers,
    call,
    token,
)
from ringcast.wire import keys
from ringcast.wire.address import Address
from ringcast.wire.keys import KeyFile

PLACE = Position(0, 8, 1, 2, 0)


class Stage:
    """A server with keys, and what it was asked."""

    def __init__(self, root: Path) -> None:
        keys.write(root / "group.key", keys.add({}))
        keys.write(root / "other.key", keys.add({}))
        self.keys, self.others = KeyFile(root / "group.key"), KeyFile(root / "other.key")
        self.asked: list[Question] = []
        self.server = Server(1, self.keys, self._serve)

    async def _serve(self, question: Question) -> AsyncIterator[Answer]:
        self.asked.append(question)
        yield Done(question.token, PLACE)

    async def commit(self, file: KeyFile | None) -> None:
        line = await call(self.address, GUEST, file)
        try:
            async for _ in answers(line, Commit(token(), "reader", PLACE)):
                pass
        finally:
            line.close()

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(30):
                self.address = Address(
                    "127.0.0.1", await self.server.start(Address("127.0.0.1", 0))
                )
                try:
                    await story()
                finally:
                    await self.server.close()

        asyncio.run(main())


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_only_holders_of_the_key_are_heard(stage: Stage) -> None:
    async def story() -> None:
        await stage.commit(stage.keys)
        for stranger in (stage.others, None):
            with pytest.raises(RingcastError):
                await stage.commit(stranger)
        assert len(stage.asked) == 1

    stage.play(story)


def test_a_recorded_conversation_is_not_heard_again(stage: Stage) -> None:
    async def story() -> None:
        recorded = bytearray()
        real = stage.address

        async def listen(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
            far, forth = await asyncio.open_connection(*real)

            async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                while some := await source.read(2**16):
                    if sink is forth:
                        recorded.extend(some)
                    sink.write(some)
                sink.close()

            await asyncio.gather(carry(near, forth), carry(far, back))

        wire = await asyncio.start_server(listen, "127.0.0.1", 0)
        stage.address = Address(*wire.sockets[0].getsockname())
        await stage.commit(stage.keys)
        stage.address = real
        assert len(stage.asked) == 1
        reader, writer = await asyncio.open_connection(*real)
        writer.write(recorded)
        await reader.read()  # the greeting, and the end
        writer.close()
        assert len(stage.asked) == 1
        assert stage.server.refused == 1
        wire.close()

    stage.play(story)


def test_a_stranger_gets_no_room_for_a_long_frame(stage: Stage) -> None:
    async def story() -> None:
        reader, writer = await asyncio.open_connection(*stage.address)
        writer.write((SHORT + 1).to_bytes(4, "big"))
        await reader.read()
        writer.close()
        assert stage.server.refused == 1

    stage.play(story)


def test_strangers_make_room(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "MOST", 3)

    async def story() -> None:
        silent = [await asyncio.open_connection(*stage.address) for _ in range(5)]
        await stage.commit(stage.keys)
        for _, writer in silent:
            writer.close()

    stage.play(story)
