"""Strangers, guests and people on the path against the journal's TCP port of live keyed nodes."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest
from adversary import keyed, opened
from journals import bodies, caught_up, folder
from loopback import eventually, joined, messages, run

from ringcast.api.node import Node
from ringcast.api.replica import Replica
from ringcast.api.state_machine import StateMachine
from ringcast.core.errors import RingcastError
from ringcast.core.ids import START, Level, ViewId
from ringcast.core.registry import protocol as find
from ringcast.journal import node_journal, service
from ringcast.journal.check import examine
from ringcast.journal.format import layout
from ringcast.journal.format.frame import Frame, NameTable
from ringcast.journal.format.frame_writer import frame_content
from ringcast.journal.format.selection import MOST_GROUPS
from ringcast.journal.service import (
    GUEST,
    MESSAGES,
    PART_BYTES,
    READ_AHEAD,
    SHORT_QUESTION,
    Answer,
    Ask,
    Done,
    Extent,
    Look,
    Publish,
    Question,
    Records,
    Seek,
    Server,
    answers,
    call,
    to_records,
    token,
)
from ringcast.members.program import loop_factory
from ringcast.replica import words
from ringcast.replica.contents import Command, encode
from ringcast.wire import keys, tcp_listener
from ringcast.wire.address import Address, parse
from ringcast.wire.envelope import MOST_BODIES
from ringcast.wire.keys import Grant, KeyFile
from ringcast.wire.line import LONG, LONGEST, Line
from ringcast.wire.turns import FrameTurns

MANY = Server.MOST // Server.PER_GUEST
"""Guests that take all places."""


def with_journals(root: Path, count: int, **more: Any) -> list[dict[str, Any]]:
    return [each | {"journal": str(folder(root, each["id"]))} | more for each in keyed(root, count)]


def guest(root: Path, right: str, name: str) -> KeyFile:
    """The key file of a guest of the group."""
    grant, path = Grant(right, name), root / f"{right}-{name}.key"
    group = KeyFile(root / "group.key").keys
    keys.write(path, {id: keys.guest_key(key, grant) for id, key in group.items()}, grant)
    return KeyFile(path)


def place(settings: dict[str, Any]) -> Address:
    return parse(settings["bind"], "bind")


async def ask(line: Line, question: Question) -> list[Any]:
    return [each async for each in answers(line, question)]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_bursts_of_strangers_take_bounded_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """600 calls held 594 conversations, each with a file: a node runs out of files, and ends."""
    monkeypatch.setattr("ringcast.wire.line.PATIENCE_S", 1000.0)  # silence does not end them

    async def story() -> None:
        settings = with_journals(tmp_path, 1)
        async with AsyncExitStack() as stack:
            await opened(stack, settings)
            before, at, calls = open_files(), place(settings[0]), []
            for _ in range(3):
                burst = [
                    asyncio.open_connection(*at) for _ in range(tcp_listener.HOST_AT_ONCE // 3)
                ]
                calls += await asyncio.gather(*burst)
            few = Server.MOST + 8  # and those of the journal itself
            await eventually(lambda: open_files() - before - len(calls) <= few)
            line = await call(at, 2, KeyFile(tmp_path / "group.key"))
            assert len(await ask(line, Look(token(), START))) == 1
            line.close()
            for _, writer in calls:
                writer.close()

    run(story)


def test_a_port_knows_where_the_members_are(tmp_path: Path) -> None:
    """Theirs are the calls that it answers, if those of many hosts are too many."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            settings = with_journals(tmp_path, 2)
            settings[0]["peers"] = [
                each.replace("127.0.0.1", "localhost") for each in settings[0]["peers"]
            ]
            (node, _) = await opened(stack, settings)
            assert node._journal
            (server,) = node._journal._servers
            assert set(server.listener._members()) <= {"127.0.0.1", "::1"}
            assert server.listener._members()

    run(story)


def test_strangers_make_room_at_the_cost_of_their_own_host(tmp_path: Path) -> None:
    """Whoever called just before them, and had not greeted yet, was put out by the next 32."""

    async def story() -> None:
        settings = with_journals(tmp_path, 1)
        async with AsyncExitStack() as stack:
            await opened(stack, settings)
            host, port = place(settings[0])
            reader, writer = await asyncio.open_connection(host, port, local_addr=("127.0.0.2", 0))
            line = Line(reader, writer, MESSAGES)
            flood = [await asyncio.open_connection(host, port) for _ in range(3 * Server.MOST)]
            for each, _ in flood[: 2 * Server.MOST]:
                await each.read()  # they were put out
            await line.answer(2, KeyFile(tmp_path / "group.key"), None)
            assert len(await ask(line, Look(token(), START))) == 1
            line.close()
            for _, theirs in flood:
                theirs.close()

    run(story)


def test_a_flood_of_calls_is_hung_up_on_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,400 calls a second, each 220 us of the ring's time, slowed it down 17 times."""
    monkeypatch.setattr(tcp_listener, "SLICE_S", 3600.0)

    async def story() -> None:
        settings = with_journals(tmp_path, 1)
        async with AsyncExitStack() as stack:
            (node,) = await opened(stack, settings)
            (host, port), calls = place(settings[0]), []
            for _ in range(tcp_listener.HOST_AT_ONCE + 20):
                calls.append(await asyncio.open_connection(host, port))
            reader, writer = await asyncio.open_connection(host, port, local_addr=("127.0.0.2", 0))
            line = Line(reader, writer, MESSAGES)
            await line.answer(2, KeyFile(tmp_path / "group.key"), None)
            assert len(await ask(line, Look(token(), START))) == 1
            assert node.metrics()["journal"]["calls_refused"] == 20  # type: ignore[index]
            line.close()
            for _, theirs in calls:
                theirs.close()

    run(story)


def test_a_member_with_all_places_makes_room_for_those_of_other_hosts(tmp_path: Path) -> None:
    """It kept 32 conversations with each node, and nobody else could catch up any more."""

    async def called(host: str) -> Line:
        address = place(settings[0])
        line = Line(*await asyncio.open_connection(*address, local_addr=(host, 0)), MESSAGES)
        await line.answer(2, KeyFile(tmp_path / "group.key"), None)
        return line

    async def story() -> None:
        async with AsyncExitStack() as stack:
            await opened(stack, settings)
            held = [await called("127.0.0.1") for _ in range(Server.MOST)]
            for line in held:
                assert len(await ask(line, Look(token(), START))) == 1
            others = [await called("127.0.0.2") for _ in range(Server.MOST // 2)]
            for line in others:
                assert len(await ask(line, Look(token(), START))) == 1
            one_more = await called("127.0.0.2")  # each has half of them
            with pytest.raises(RingcastError):
                await ask(one_more, Look(token(), START))
            for line in held[Server.MOST // 2 :]:
                assert len(await ask(line, Look(token(), START))) == 1
            for line in (*held, *others, one_more):
                line.close()

    settings = with_journals(tmp_path, 1)
    run(story)


async def while_one_is_away(stack: AsyncExitStack, settings: list[dict[str, Any]]) -> list[Node]:
    """Two of three nodes, which deliver 20 messages after the third has gone."""
    third = Node.open(settings[2])
    await third.start()
    nodes = await opened(stack, settings[:2])
    for node in (*nodes, third):
        await node.wait_for_ring(3)
    await eventually(lambda: caught_up([*nodes, third]))
    await third.close()
    group = (await joined(nodes))[0]
    for number in range(20):
        await group.send(b"%d" % number, level=Level.SAFE)
    return nodes


def test_a_guest_cannot_keep_a_member_from_catching_up(tmp_path: Path) -> None:
    """64 calls of a reader took all places: whoever came back had a hole in its journal."""

    async def story() -> None:
        settings = with_journals(tmp_path, 3, journal_patience_s=2.0)
        async with AsyncExitStack() as stack:
            await while_one_is_away(stack, settings)
            files = [guest(tmp_path, "read", f"dash{n}") for n in range(MANY)]
            calls = []
            for each in settings[:2]:
                for file in files:
                    for _ in range(Server.PER_GUEST):
                        calls.append(await call(place(each), GUEST, file))
                    with pytest.raises(RingcastError):  # no place for more of its own
                        line = await call(place(each), GUEST, file)
                        calls.append(line)
                        await ask(line, Look(token(), START))
                other = await call(place(each), GUEST, guest(tmp_path, "read", "other"))
                calls.append(other)
                assert len(await ask(other, Look(token(), START))) == 1
            third = await stack.enter_async_context(Node.open(settings[2]))
            await third.wait_for_ring(3)
            await eventually(lambda: caught_up([third]))
            for line in calls:
                line.close()
        *_, report = examine(folder(tmp_path, 3))
        assert (report.gaps, report.findings) == ([], [])
        assert bodies(tmp_path, 3) == bodies(tmp_path, 1) != []

    run(story)


def test_a_member_that_drips_records_keeps_nobody_from_catching_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listened to for as long as it told something."""

    async def drips(ask: Ask) -> AsyncIterator[Answer]:
        after = ask.after
        for seq in count(after.seq + 1000):
            place, ring = after._replace(seq=seq, index=0, branch=0), ViewId(*after[1:3])
            sent = (2, Level.AGREED, "g", (), (b"made up",), seq, None)
            ready = frame_content([layout.entry(place, ring, layout.MESSAGE, *sent)])
            yield Records(ask.token, 1, ready.rows, ready.section, b"".join(ready.pieces))
            await asyncio.sleep(0.01)

    async def story() -> None:
        settings = with_journals(tmp_path, 3, journal_patience_s=0.2)
        async with AsyncExitStack() as stack:
            nodes = await while_one_is_away(stack, settings)
            assert nodes[0]._journal is not None
            monkeypatch.setattr(nodes[0]._journal, "_tell", drips)
            monkeypatch.setattr(node_journal, "SLOW_S", 0.5)
            patient = settings[2] | {"journal_patience_s": 5.0}  # a ring may take long to form
            third = await stack.enter_async_context(Node.open(patient))
            await eventually(lambda: caught_up([third]))
        assert set(bodies(tmp_path, 1)) <= set(bodies(tmp_path, 3))

    run(story)


def test_a_long_frame_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte before each silence ended was enough to be listened to for years."""
    monkeypatch.setattr("ringcast.wire.line.PATIENCE_S", 0.2)
    monkeypatch.setattr("ringcast.wire.line.LEAST_RATE", 2**40)

    over = asyncio.Event()

    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((2 * LONG).to_bytes(4, "big") + bytes(LONG))
        while not reader.at_eof():
            writer.write(b"x")
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(), 0.05)
        writer.close()
        over.set()

    async def story() -> None:
        server = await asyncio.start_server(drips, "127.0.0.1", 0)
        at = server.sockets[0].getsockname()
        line = Line(*await asyncio.open_connection(*at), MESSAGES)
        with pytest.raises(RingcastError, match="a long frame came at less than"):
            async with asyncio.timeout(5):
                await line.receive()
        line.close()
        await over.wait()
        server.close()

    run(story)


async def says_done(ask: Ask) -> AsyncIterator[Answer]:
    yield Done(ask.token, START)


async def nests_names(ask: Ask) -> AsyncIterator[Answer]:
    sent = (2, Level.AGREED, "g", (), (b"made up",), 1, None)
    ready = frame_content([layout.entry(START, ViewId(8, 1), layout.MESSAGE, *sent)])
    names = msgspec.msgpack.encode(NameTable(["g"], [], []))
    more = b"\x94" + names[1:] + b"\x91" * 200_000 + b"\xc0"  # a fourth element
    section = ready.section.removesuffix(names) + more
    yield Records(ask.token, 1, ready.rows, section, b"".join(ready.pieces))


@pytest.mark.parametrize("lies", [says_done, nests_names])
def test_what_answers_no_question_ends_nobody(
    tmp_path: Path, lies: Callable[[Ask], AsyncIterator[Answer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An AssertionError or RecursionError ended a node that was catching up."""

    async def story() -> None:
        settings = with_journals(tmp_path, 2)
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            await eventually(lambda: caught_up(nodes))
            asking, telling = (node._journal for node in nodes)
            assert asking is not None and telling is not None
            assert await asking._fetch(2, START) is not False
            monkeypatch.setattr(telling, "_tell", lies)
            assert await asking._fetch(2, START) is False

    run(story)


async def tells_much_at_once(ask: Ask) -> AsyncIterator[Answer]:
    sent = (2, Level.AGREED, "g", (), (bytes(LONG + 2**21),), 1, None)
    place = ask.after._replace(seq=ask.after.seq + 1, index=0, branch=0)
    ready = frame_content([layout.entry(place, ViewId(8, 1), layout.MESSAGE, *sent)])
    yield Records(ask.token, 1, ready.rows, ready.section, b"".join(ready.pieces))
    yield Extent(ask.token, place, START)


def test_records_longer_than_messages_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of 240 MiB stopped a node that was catching up for 0.5 s each, and it was ejected
    again and again."""

    async def story() -> None:
        settings = with_journals(tmp_path, 2, settings={"max_message": 2**20})
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            await eventually(lambda: caught_up(nodes))
            asking, telling = (node._journal for node in nodes)
            assert asking is not None and telling is not None
            monkeypatch.setattr(telling, "_tell", tells_much_at_once)
            assert isinstance(await asking._fetch(2, START), Extent)
            asking._longest_answer = 2**20 + LONG
            assert await asking._fetch(2, START) is False
        for least, longest in ((2**20, 2**20 + LONG), (2**40, LONGEST)):
            monkeypatch.setattr(node_journal, "LEAST_MESSAGE", least)
            made = Node.open(settings[0])
            await made.start()
            assert made._journal is not None and made._journal._longest_answer == longest
            await made.close()

    run(story)


@pytest.mark.parametrize("long", ["looked for", "packed"])
def test_what_a_guest_asks_for_keeps_no_member_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: str
) -> None:
    """Guests and members have a thread each."""
    begun, over = threading.Event(), threading.Event()
    seek, packed = node_journal.NodeJournal._seek, Line._packed

    def for_long() -> None:
        begun.set()
        assert over.wait(60)

    def seeking(journal: node_journal.NodeJournal, *args: Any) -> Any:
        if long == "looked for":
            for_long()
        return seek(journal, *args)

    def packing(line: Line, message: msgspec.Struct) -> tuple[bytes, bytes]:
        if long == "packed" and line.grant and type(message) is Done and not begun.is_set():
            for_long()
        return packed(line, message)

    monkeypatch.setattr(node_journal.NodeJournal, "_seek", seeking)
    monkeypatch.setattr(Line, "_packed", packing)

    async def story() -> None:
        settings = with_journals(tmp_path, 1, journal_patience_s=0.2)
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            (group,) = await joined(nodes)
            await eventually(lambda: caught_up(nodes))
            at = place(settings[0])
            end = await group.send(b"x", durable=True)
            line = await call(at, GUEST, guest(tmp_path, "read", "dash"))
            asked = asyncio.create_task(ask(line, Seek(token(), START, end, 1)))
            await eventually(begun.is_set)
            member = await call(at, 2, KeyFile(tmp_path / "group.key"))
            try:
                async with asyncio.timeout(20):
                    told = await ask(member, Ask(token(), START, end, waiting=True))
                assert told and not asked.done()
            finally:
                over.set()
            await asked
            for each in (line, member):
                each.close()

    run(story)


def test_long_answers_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that asked for a message of 30 MiB in eight conversations, and read none of them,
    took 1.1 GiB of the node. Another guest waits for one turn."""
    monkeypatch.setattr("ringcast.wire.line.TURN_S", 2.0)
    made: list[int] = []

    def making(number: int, part: Frame) -> Records:
        if part.size > LONG:
            made.append(part.size)
        return to_records(number, part)

    monkeypatch.setattr(service, "to_records", making)

    async def story() -> None:
        settings = with_journals(tmp_path, 1, journal_patience_s=0.2)
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            (group,) = await joined(nodes)
            await eventually(lambda: caught_up(nodes))
            await group.send(bytes(24 * 2**20), durable=True)
            at = place(settings[0])
            slow, quick = guest(tmp_path, "read", "slow"), guest(tmp_path, "read", "quick")
            lines = [await call(at, GUEST, slow) for _ in range(Server.PER_GUEST)]
            (extent,) = await ask(lines[0], Look(token(), START))
            for each in lines:
                each._writer.transport.pause_reading()  # type: ignore[attr-defined]
                await each.send(Ask(token(), START, extent.last))
            await eventually(lambda: made)
            await asyncio.sleep(0.5)
            assert len(made) == 1, "one at a time, however many ask"
            other = await call(at, GUEST, quick)
            told = await ask(other, Ask(token(), START, extent.last))
            assert sum(len(part.data) for part in told[:-1]) > 24 * 2**20
            assert len(made) <= 3, "one of those who read nothing has lost its turn, or two"
            for each in (other, *lines):
                each.close()

    run(story)


def test_no_reader_keeps_the_interpreter_from_the_ring(tmp_path: Path) -> None:
    """A thread that reads for others holds it for as long as Python lets it, each time the token
    comes: by 5 ms, as is usual, one reader made a ring forty times as slow."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            await opened(stack, with_journals(tmp_path, 1))
            assert sys.getswitchinterval() < 0.001

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        run(story)
    finally:
        sys.setswitchinterval(before)


def test_a_guest_that_hangs_up_leaves_no_traceback(tmp_path: Path) -> None:
    """With uvloop an answer to a connection that was closed meanwhile wrote 25 lines into the
    node's log, as often as a guest asked and hung up."""
    said: list[dict[str, Any]] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        settings = with_journals(tmp_path, 1, journal_patience_s=0.2)
        async with AsyncExitStack() as stack:
            (node,) = await opened(stack, settings)
            file = guest(tmp_path, "read", "dash")
            assert node._journal
            (server,) = node._journal._servers
            for _ in range(10):
                line = await call(place(settings[0]), GUEST, file)
                await line.send(Look(token(), START))
                line._writer.transport.abort()
                await eventually(lambda: not server._tasks)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(story())
    gc.collect()
    assert not said


def test_what_guests_ask_for_is_made_outside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """31 conversations of one reader kept the loop busy for 1.2 s: the others ejected the node."""
    made: dict[str, set[str]] = {"read": set(), "packed": set()}
    read, packed = to_records, Line._packed

    def reading(*args: Any) -> Records:
        made["read"].add(threading.current_thread().name)
        return read(*args)

    def packing(line: Line, message: msgspec.Struct) -> tuple[bytes, bytes]:
        if type(message) is Records:
            made["packed"].add(threading.current_thread().name)
        return packed(line, message)

    monkeypatch.setattr(service, "to_records", reading)
    monkeypatch.setattr(Line, "_packed", packing)

    async def story() -> None:
        settings = with_journals(tmp_path, 1, journal_patience_s=0.2)
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            (group,) = await joined(nodes)
            await eventually(lambda: caught_up(nodes))
            for _ in range(20):
                await group.send_many([bytes(1000)] * 100, level=Level.SAFE)
            await messages(group, 2000)
            file = guest(tmp_path, "read", "dash")
            lines = [await call(place(settings[0]), GUEST, file) for _ in range(Server.PER_GUEST)]
            (extent,) = await ask(lines[0], Look(token(), START))
            while extent.behind < 2000:
                (extent,) = await ask(lines[0], Look(token(), START))
            end = extent.last
            told = await asyncio.gather(*(ask(line, Ask(token(), START, end)) for line in lines))
            assert all(len(parts) > 4 for parts in told)
            assert sum(len(part.data) for part in told[0][:-1]) > 2_000_000
            assert max(len(part.data) for part in told[0][:-1]) <= PART_BYTES
            for line in lines:
                line.close()
        (thread,) = made["read"] | made["packed"]
        assert made["read"] == made["packed"] and thread.startswith("ringcast-telling")

    run(story)


def test_a_retired_key_ends_the_conversations_it_began(tmp_path: Path) -> None:
    """A guest that was revoked read on, for as long as it kept its connection."""

    async def story() -> None:
        settings = with_journals(tmp_path, 1)
        async with AsyncExitStack() as stack:
            (node,) = await opened(stack, settings)
            file = tmp_path / "group.key"
            holders = (guest(tmp_path, "read", "dash"), KeyFile(file))
            lines = [await call(place(settings[0]), GUEST, each) for each in holders]
            for line in lines:
                assert len(await ask(line, Look(token(), START))) == 1
            keys.write(file, keys.retire(keys.promote(keys.add(KeyFile(file).keys))))
            await eventually(lambda: node.metrics()["keys"] == [2])
            for line in lines:
                with pytest.raises(RingcastError):
                    await ask(line, Look(token(), START))
                line.close()

    run(story)


def test_a_call_that_is_led_to_another_node_is_none(tmp_path: Path) -> None:
    """On the path, node 2's answer passed for node 3's: what only node 3 had was never asked for,
    and nobody noticed."""

    async def story() -> None:
        settings = with_journals(tmp_path, 2)
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            await eventually(lambda: caught_up(nodes))
            assert nodes[0]._journal is not None and nodes[0]._host is not None
            port = nodes[0]._host.ports[0]
            port.addresses = lambda: {3: place(settings[1])}  # type: ignore[method-assign]
            assert await nodes[0]._journal._fetch(3, START) is False
            with pytest.raises(RingcastError, match="node 2 answers at the address of node 3"):
                await call(place(settings[1]), 1, port.keys, port.network, 3)

    run(story)


class Account(StateMachine[int]):
    """Commands that were carried out."""

    def __init__(self) -> None:
        self.done: list[bytes] = []

    def apply(self, command: Any) -> int:
        self.done.append(command.body)
        return len(self.done)

    def snapshot(self) -> bytes:
        return msgspec.json.encode([each.decode() for each in self.done])

    def restore(self, state: bytes) -> None:
        self.done = [each.encode() for each in msgspec.json.decode(state)]


def union(states: Any) -> bytes:
    return max(states, key=len)  # type: ignore[no-any-return]


@pytest.mark.parametrize("consistency", ["quorum", "available"])
def test_a_guest_that_writes_is_no_replica(tmp_path: Path, consistency: str) -> None:
    """Rows published into a replica's group were words of the node that published them: a guest
    had any command carried out, in any member's name."""

    async def story() -> None:
        settings = with_journals(tmp_path, 3)
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            accounts = [Account() for _ in nodes]
            replicas = []
            for node, account in zip(nodes, accounts, strict=True):
                more: dict[str, Any] = {"consistency": "available", "merge": union}
                if consistency == "quorum":
                    more = {"members": {1, 2, 3}, "dir": tmp_path / f"r{node.config.id}"}
                replicas.append(Replica(node.join("bank"), account, **more))
            await asyncio.gather(*map(stack.enter_async_context, replicas))
            await replicas[0].submit(b"deposit")
            forged = [msgspec.msgpack.encode([1, 77, b"steal"])]  # of available copies
            if consistency == "quorum":  # in the name of the node that is called, and of another
                steal = encode(Command(b"steal"))
                tickets = (words.Ticket(node, 12345, 1) for node in (1, 2))
                forged = [words.encode(words.Action(each, steal)) for each in tickets]
            line = await call(place(settings[0]), GUEST, guest(tmp_path, "write", "sink"))
            await ask(line, Publish(token(), "bank", "sink", 0, 0, tuple(forged)))
            line.close()
            await replicas[1].submit(b"last")
            for account in accounts:
                await eventually(lambda account=account: account.done == [b"deposit", b"last"])  # type: ignore[misc]

    run(story)


def test_readers_of_a_group_see_who_published(tmp_path: Path) -> None:
    """What a guest published looked like a message of the node that it called."""

    async def story() -> None:
        settings = with_journals(tmp_path, 2)
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            groups = await joined(nodes)
            line = await call(place(settings[0]), GUEST, guest(tmp_path, "write", "sink"))
            await ask(line, Publish(token(), "g", "sink", 0, 0, (b"x",)))
            line.close()
            await groups[0].send(b"y")
            for group in groups:
                found = [(m.sender, m.writer, m.body) for m in await messages(group, 2)]
                assert found == [(1, "sink", b"x"), (1, "", b"y")]

    run(story)


def test_questions_of_guests_take_bounded_room(tmp_path: Path) -> None:
    """A reader was given room for 256 MiB a question, and so was a writer, though no message is as
    long: to open and decode that stopped a node for 0.4 s, and it was ejected. 10 million rows of
    two bytes, 38 MiB from a guest that writes, stopped it for 8 s."""

    async def story() -> None:
        settings = with_journals(tmp_path, 1)
        async with AsyncExitStack() as stack:
            (node,) = await opened(stack, settings)
            longest = find("totem").default.max_message + LONG
            for right, size in (("read", SHORT_QUESTION + 17), ("write", longest + 1)):
                line = await call(place(settings[0]), GUEST, guest(tmp_path, right, "x"))
                line._writer.write(size.to_bytes(4, "big"))
                assert await line.receive() is None
                line.close()
            line = await call(place(settings[0]), GUEST, guest(tmp_path, "write", "x"))
            await line.send(Publish(1, "g", "x", 0, 0, (b"ab",) * (MOST_BODIES + 1)))
            assert await line.receive() is None
            line.close()
            assert node.metrics()["journal"]["conversations_refused"] == 3  # type: ignore[index]

    run(story)


def test_little_is_read_ahead_of_guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a question of it waited for its answer, a guest had room for 8 MiB in each of its 8
    conversations."""
    readers: list[asyncio.StreamReader] = []
    greet = Line.greet

    async def greeting(line: Line, *args: Any) -> None:
        readers.append(line._reader)
        await greet(line, *args)

    monkeypatch.setattr(Line, "greet", greeting)

    async def story() -> None:
        settings = with_journals(tmp_path, 1)
        async with AsyncExitStack() as stack:
            await opened(stack, settings)
            line = await call(place(settings[0]), GUEST, guest(tmp_path, "read", "x"))
            far = START._replace(ring_seq=2**40, ring_rep=1)
            await line.send(Ask(token(), START, far))
            stuck = asyncio.ensure_future(flood(line, 40 * 2**20))
            await asyncio.wait([stuck], timeout=1)
            (reader,) = readers
            assert not stuck.done()
            assert 0 < len(reader._buffer) <= 2 * READ_AHEAD + 2**18  # type: ignore[attr-defined]
            line.close()
            await asyncio.gather(stuck, return_exceptions=True)

    run(story)


def seek(*wanted: object) -> list[object]:
    return [9, 1, START, START, 1, wanted]


PART = msgspec.msgpack.encode("seq") + msgspec.msgpack.encode((0, 9))
TOO_MANY = {
    "kinds": msgspec.msgpack.encode(seek("", True, ("message",) * 5)),
    "groups": msgspec.msgpack.encode(seek("", True, None, ("g",) * (MOST_GROUPS + 1))),
    "places": msgspec.msgpack.encode(seek("", True, None, None, {})).removesuffix(b"\x80")
    + b"\x87"
    + PART * 7,
    "fields of a selection": msgspec.msgpack.encode(seek("", True, None, None, {}, None)),
    "fields of a question": msgspec.msgpack.encode([5, 1, "g", "x", 0, 0, (b"x",), None]),
    "fields of an answer": msgspec.msgpack.encode([6, 1, START, None]),
}


@pytest.mark.parametrize("parts", TOO_MANY)
def test_many_parts_of_a_question_are_not_decoded(tmp_path: Path, parts: str) -> None:
    """2 million places, 14 MB from a guest that may not even ask for them, stopped a node for
    1.1 s."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(TOO_MANY[parts], type=MESSAGES)

    async def story() -> None:
        settings = with_journals(tmp_path, 1)
        async with AsyncExitStack() as stack:
            await opened(stack, settings)
            line = await call(place(settings[0]), GUEST, guest(tmp_path, "write", "x"))
            await line._send(TOO_MANY[parts])
            assert await line.receive() is None
            line.close()

    run(story)


def test_long_questions_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each conversation had room for 256 MiB of its own."""
    monkeypatch.setattr("ringcast.wire.line.TURN_S", 100.0)

    async def story() -> None:
        settings = with_journals(tmp_path, 1)
        async with AsyncExitStack() as stack:
            await opened(stack, settings)
            file = guest(tmp_path, "write", "x")
            lines = [await call(place(settings[0]), GUEST, file) for _ in range(4)]
            for line in lines:
                line._writer.write((60 * 2**20).to_bytes(4, "big"))
            begun = monotonic()
            await flood(lines[0], 40 * 2**20)
            took_s = monotonic() - begun
            stuck = [asyncio.ensure_future(flood(line, 40 * 2**20)) for line in lines[1:]]
            await asyncio.wait(stuck, timeout=0.5 + 6 * took_s)
            assert not any(task.done() for task in stuck)  # nobody reads it
            for line in lines:
                line.close()
            await asyncio.gather(*stuck, return_exceptions=True)

    run(story)


@pytest.mark.parametrize("drips", [False, True], ids=["silent", "drips"])
def test_a_guest_does_not_keep_other_writers_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drips: bool
) -> None:
    """Three conversations took turns in 20 s of silence each, after a head of 4 bytes and one
    more."""
    monkeypatch.setattr("ringcast.wire.line.TURN_S", 2.0)

    async def drip(line: Line) -> None:
        with suppress(ConnectionError):
            while drips:
                line._writer.write(b"x")
                await line._writer.drain()
                await asyncio.sleep(0.05)

    async def story() -> None:
        settings = with_journals(tmp_path, 1)
        async with AsyncExitStack() as stack:
            await opened(stack, settings)
            bad, good = (guest(tmp_path, "write", name) for name in ("bad", "good"))
            long = 6 * 2**20
            for batch, begin in enumerate((1, LONG + 1)):
                held = [await call(place(settings[0]), GUEST, bad) for _ in range(3)]
                for line in held:
                    line._writer.write(long.to_bytes(4, "big") + bytes(begin))
                    await line._writer.drain()
                dripping = [asyncio.create_task(drip(line)) for line in held]
                line = await call(place(settings[0]), GUEST, good)
                bodies = (bytes(2**20),) * 6
                (done,) = await ask(line, Publish(token(), "g", "good", batch, 0, bodies))
                assert isinstance(done, Done)
                for task in dripping:
                    task.cancel()
                for each in (*held, line):
                    each.close()

    run(story)


def test_of_each_guest_one_conversation_waits_for_the_turn() -> None:
    """Whoever has many conversations has no more turns than whoever has one."""

    async def story() -> None:
        turns, order = FrameTurns(), list[str]()

        async def long_frame(name: str) -> None:
            await turns.take(Grant("write", name))
            order.append(name)
            await asyncio.sleep(0)
            turns.give(Grant("write", name))

        names = ("bad", "bad", "bad", "good")
        tasks = [asyncio.create_task(long_frame(name)) for name in names]
        await asyncio.sleep(0)
        assert turns.contested
        await asyncio.gather(*tasks)
        assert order == ["bad", "good", "bad", "bad"] and not turns._first
        held = asyncio.create_task(turns.take(None))
        waits = asyncio.create_task(turns.take(Grant("write", "good")))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.gather(held, waits, return_exceptions=True)
        turns.give(None)
        assert not turns._first and not turns.contested

    run(story)


async def flood(line: Line, size: int) -> None:
    for _ in range(size // 2**20):
        line._writer.write(bytes(2**20))
        await line._writer.drain()
