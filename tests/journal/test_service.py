"""Journals over TCP: who is from_records, who is not, and what a stranger costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringcast.core.errors import RingcastError
from ringcast.core.ids import Position
from ringcast.journal.format.layout import JournalError
from ringcast.journal.format.selection import Selection
from ringcast.journal.service import (
    GUEST,
    MOST_SECTION,
    MOST_WHY,
    Answer,
    Ask,
    Commit,
    Done,
    Look,
    Publish,
    Question,
    Records,
    Refused,
    Seek,
    Server,
    answers,
    call,
    from_records,
    token,
)
from ringcast.wire import keys
from ringcast.wire.address import Address
from ringcast.wire.keys import Grant, KeyFile
from ringcast.wire.line import NONCE_BYTES, PATIENCE_S, SHORT, CallerOpens, NodeOpens
from ringcast.wire.seal import TAG_BYTES, VERSION

PLACE = Position(0, 8, 1, 2, 0)


class Stage:
    """A server with keys, and what it was asked."""

    def __init__(self, root: Path, network: str = "") -> None:
        keys.write(root / "group.key", keys.add({}))
        keys.write(root / "other.key", keys.add({}))
        self.keys, self.others = KeyFile(root / "group.key"), KeyFile(root / "other.key")
        self.asked: list[Question] = []
        self.server = Server(1, self.keys, self._serve, network)

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
            async with asyncio.timeout(120):
                self.address = Address("127.0.0.1", self.server.start(Address("127.0.0.1", 0)))
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


def test_a_guest_does_what_its_key_is_for_and_nothing_else(stage: Stage, tmp_path: Path) -> None:
    """Once the holder of any key could publish as any writer, and move any reader's mark."""
    files = {}
    for grant in (Grant("read", "dash"), Grant("write", "sink")):
        path = tmp_path / f"{grant.right}.key"
        keys.write(path, {1: keys.guest_key(stage.keys.keys[1], grant)}, grant)
        files[grant.right] = KeyFile(path)
    questions: dict[str, list[Any]] = {
        "read": [
            Ask(1, PLACE, PLACE),
            Look(1, PLACE),
            Seek(1, PLACE, PLACE, 1),
            Commit(1, "dash", PLACE),
        ],
        "write": [Publish(1, "g", "sink", 0, 0, (b"x",))],
        "": [
            Ask(1, PLACE, PLACE, waiting=True),
            Commit(1, "other", PLACE),
            Publish(1, "g", "other", 0, 0, (b"x",)),
        ],
    }

    async def story() -> None:
        for right, file in files.items():
            line = await call(stage.address, GUEST, file)
            for kind, some in questions.items():
                for question in some:
                    stage.asked.clear()
                    if kind == right:
                        assert [a async for a in answers(line, question)] == [Done(1, PLACE)]
                    else:
                        with pytest.raises(JournalError, match=f"is a guest.s, to {right} as"):
                            [a async for a in answers(line, question)]
                    assert len(stage.asked) == (kind == right)
            line.close()

    stage.play(story)


def test_questions_without_sense_are_refused_and_counted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each raised in the node's loop, and nobody counted it."""

    async def raises(question: Question) -> AsyncIterator[Answer]:
        yield Done([][question.token], PLACE)

    async def story() -> None:
        for rows, places in ((0, {}), (1, {"nope": (0, 1)}), (1, {"seq": (0, 2**64 - 1)})):
            line = await call(stage.address, GUEST, stage.keys)
            with pytest.raises(RingcastError):
                wanted = Selection(views=False, places=places)
                [a async for a in answers(line, Seek(1, PLACE, PLACE, rows, wanted))]
            line.close()
        assert (stage.asked, stage.server.refused) == ([], 3)
        monkeypatch.setattr(stage.server, "_serve", raises)
        line = await call(stage.address, GUEST, stage.keys)
        for _ in range(2):
            with pytest.raises(JournalError, match="this cannot be answered: IndexError"):
                [a async for a in answers(line, Look(1, PLACE))]
        assert stage.server.refused == 5
        line.close()

    stage.play(story)


def test_a_reason_stays_on_its_line(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node wrote lines of its own into the log of whoever asked it, as long as it liked."""

    async def refuses(question: Question) -> AsyncIterator[Answer]:
        yield Refused(question.token, "no\n\x1b[2J\u202eERROR" + "x" * 2**20)

    async def story() -> None:
        monkeypatch.setattr(stage.server, "_serve", refuses)
        with pytest.raises(JournalError) as told:
            await stage.commit(stage.keys)
        assert str(told.value).isprintable() and len(str(told.value)) == MOST_WHY

    stage.play(story)


def test_a_guest_s_key_is_for_its_own_network(tmp_path: Path) -> None:
    """With one key for two networks, a guest of one read the journals of the other."""
    stage = Stage(tmp_path, "north")
    grant, files = Grant("read", "reader"), {}
    for network in ("north", "south", ""):
        derived = keys.guest_key(stage.keys.keys[1], grant, network)
        keys.write(tmp_path / f"g{network}", {1: derived}, grant)
        files[network] = KeyFile(tmp_path / f"g{network}")

    async def story() -> None:
        await stage.commit(files["north"])
        for network in ("south", ""):
            with pytest.raises(RingcastError):
                await stage.commit(files[network])
        assert len(stage.asked) == 1

    stage.play(story)


def test_a_guest_s_key_is_for_its_own_name(stage: Stage, tmp_path: Path) -> None:
    """Who rewrites its file still has the key of the name it was made for."""
    own, other = Grant("read", "dash"), Grant("read", "other")
    keys.write(tmp_path / "g", {1: keys.guest_key(stage.keys.keys[1], own)}, other)

    async def story() -> None:
        with pytest.raises(RingcastError):
            await stage.commit(KeyFile(tmp_path / "g"))
        assert stage.asked == []

    stage.play(story)


OPENING = msgspec.msgpack.encode(CallerOpens(VERSION, 2, 1, bytes(NONCE_BYTES)))


@pytest.mark.parametrize("said_back", [b"", OPENING], ids=["nothing", "an opening"])
def test_the_node_says_nothing_sealed_to_strangers(stage: Stage, said_back: bytes) -> None:
    """Not even to one that knows how a caller opens."""

    async def story() -> None:
        reader, writer = await asyncio.open_connection(*stage.address)
        length = int.from_bytes(await reader.readexactly(4), "big")
        said = msgspec.msgpack.decode(await reader.readexactly(length))
        assert said[:4] == ["ringcast node", VERSION, 1, ""]
        proof = bytes(TAG_BYTES)
        for frame in (said_back, proof):
            writer.write(len(frame).to_bytes(4, "big") + frame)
        assert await reader.read() == b""
        writer.close()

    stage.play(story)


def test_a_stranger_cannot_say_a_caller_s_proof_back(stage: Stage) -> None:
    """The two directions have keys of their own: with one, whoever answers in a node's place would
    need no key, and both would seal with the same nonces."""

    async def mirror(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opening = msgspec.msgpack.encode(NodeOpens(VERSION, 1, "", bytes(NONCE_BYTES)))
        writer.write(len(opening).to_bytes(4, "big") + opening)
        length = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(length)
        writer.write(await reader.readexactly(4 + TAG_BYTES))
        await reader.read()  # the caller hangs up
        writer.close()
        await writer.wait_closed()
        over.set()

    over = asyncio.Event()

    async def story() -> None:
        async with await asyncio.start_server(mirror, "127.0.0.1", 0) as listening:
            at = Address(*listening.sockets[0].getsockname())
            with pytest.raises(RingcastError, match="not sealed with this group's key"):
                await call(at, GUEST, stage.keys)
            await over.wait()

    stage.play(story)


def test_another_version_or_network_is_named(stage: Stage) -> None:
    async def old_node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = msgspec.msgpack.encode(NodeOpens(VERSION + 1, 1, "", bytes(16)))
        writer.write(len(said).to_bytes(4, "big") + said)
        writer.close()

    async def story() -> None:
        with pytest.raises(RingcastError, match="is of network '', not 'blue'"):
            await call(stage.address, 2, stage.keys, "blue")
        other = await asyncio.start_server(old_node, "127.0.0.1", 0)
        with pytest.raises(RingcastError, match=f"speaks version {VERSION + 1}, this one"):
            await call(Address(*other.sockets[0].getsockname()), 2, stage.keys)
        other.close()

    stage.play(story)


def test_a_recorded_conversation_is_not_heard_again(stage: Stage) -> None:
    async def story() -> None:
        recorded, answered = bytearray(), bytearray()
        real = stage.address

        async def listen(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
            far, forth = await asyncio.open_connection(*real)

            async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                while some := await source.read(2**16):
                    (recorded if sink is forth else answered).extend(some)
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

        over = asyncio.Event()

        async def repeat(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
            back.write(answered)
            await near.read()
            back.close()
            await back.wait_closed()
            over.set()

        false = await asyncio.start_server(repeat, "127.0.0.1", 0)
        with pytest.raises(RingcastError, match="not sealed with this group's key"):
            await call(Address(*false.sockets[0].getsockname()), GUEST, stage.keys)
        await over.wait()
        false.close()

    stage.play(story)


def test_a_stranger_gets_no_room_for_a_long_frame(stage: Stage) -> None:
    async def story() -> None:
        reader, writer = await asyncio.open_connection(*stage.address)
        writer.write((SHORT + 1).to_bytes(4, "big"))
        async with asyncio.timeout(PATIENCE_S / 2):  # it is not waited for
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


@pytest.mark.parametrize(
    ("entries", "rows"), [(2**63, 1), (1, 2**63), (2**62, 2**62), (-1, 1), (1, -1), (0, 0)]
)
def test_numbers_of_a_peer_that_make_no_sense_are_no_records(entries: int, rows: int) -> None:
    """An OverflowError ended a node that was catching up."""
    with pytest.raises(JournalError, match="not records of a journal"):
        from_records(Records(1, entries, rows, bytes(200), b""))


def test_records_with_very_many_names_are_not_decoded() -> None:
    """10 million of them, 50 MB behind one record, stopped a node that was catching up for 2 s."""
    names = msgspec.msgpack.encode((["g"], [], [("a", 0, 0)] * (MOST_SECTION // 5)))
    with pytest.raises(JournalError, match="bytes besides their messages"):
        from_records(Records(1, 1, 1, names, b""))


@pytest.mark.parametrize("first", [2**62, 2**62 - 1, 2**63])
def test_rows_that_no_journal_could_hold_are_refused_where_they_enter(
    stage: Stage, first: int
) -> None:
    """Row 2^62 and then an overlap destroyed every journal of the group."""

    async def story() -> None:
        line = await call(stage.address, GUEST, stage.keys)
        question = msgspec.msgpack.encode([5, 1, "g", "sink", 0, first, [b"x", b"y"]])
        await line._send(question)
        assert await line.receive() is None
        line.close()
        assert (stage.asked, stage.server.refused) == ([], 1)

    stage.play(story)
