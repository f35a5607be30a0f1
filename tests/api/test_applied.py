"""What a replica has applied: a function of the log, whatever a machine does."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from loopback import run

from ringcast.api.applied import Applied
from ringcast.api.events import Message, View
from ringcast.api.objects import _Counter, _Dict, _Queue
from ringcast.api.shared import encoded
from ringcast.api.state_machine import StateMachine
from ringcast.core.errors import RingcastError
from ringcast.replica.contents import DEEPEST, Command, Content, Present, Started, encode
from ringcast.replica.sessions import CommandFailed
from ringcast.replica.words import Epoch, LogEntry, Ticket

NOW, LATER = Epoch(4, 1), Epoch(8, 1)


class Does(StateMachine[Any]):
    """Does what it is told to."""

    def apply(self, command: Message) -> Any:
        return eval(command.body, {"again": self.again})

    def again(self, *depth: int) -> int:
        return self.again(*depth) + 1

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        pass


def given(applied: Applied[Any], number: int, body: bytes, client: str = "") -> asyncio.Future[Any]:
    """The result of a command."""
    waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    entry = LogEntry(NOW, Ticket(1, 7, number), encode(Command(body, client, number)))
    applied.apply(number, entry, waiting)
    return waiting


def test_a_client_s_name_has_a_longest() -> None:
    """A member that names clients at length had all others keep 10,000 such names."""

    async def story() -> None:
        applied: Applied[Any] = Applied(Does())
        with pytest.raises(RingcastError, match="cannot be read"):
            await given(applied, 1, b"1", "ü" * 65)
        assert applied.sessions.clients == {}
        assert await given(applied, 2, b"2", "ü" * 64) == 2

    run(story)


def test_no_command_makes_a_state_that_cannot_be_written() -> None:
    async def story() -> None:
        applied: Applied[Any] = Applied(Does())
        with pytest.raises(CommandFailed, match="cannot be kept"):
            await given(applied, 1, b"'\\ud800'", "c")
        with pytest.raises(SyntaxError):
            await given(applied, 2, b"'\\ud800' no", "c")
        assert await given(applied, 3, b"3", "c") == 3
        other: Applied[Any] = Applied(Does())
        other.restore(await applied.state())
        assert await other.state() == await applied.state()

    run(story)


@pytest.mark.parametrize("body", [b"again()", b"' ' * 2**62"], ids=["stack", "memory"])
@pytest.mark.parametrize("client", ["", "c"])
def test_what_depends_on_the_process_ends_the_replica(body: bytes, client: str) -> None:
    """Another member may have had the room: this is no outcome of the command."""

    async def story() -> None:
        applied: Applied[Any] = Applied(Does())
        with pytest.raises(RingcastError, match="its state may differ"):
            given(applied, 1, body, client)
        assert not applied.sessions.clients

    run(story)


@pytest.mark.parametrize("deep", [101, 500, 900, 100_000])
def test_a_command_that_is_nested_too_deeply_is_refused_by_all(deep: int) -> None:
    """Made by hand, and by a member: it ended every copy of a shared object, again at each start.
    The deepest that is allowed can be read and kept."""

    async def story() -> None:
        applied: Applied[Any] = Applied(machine := _Dict({}))
        for number, depth in enumerate((deep, 100), 1):
            body = b"\x93\xa3set\xa1k" + b"\x91" * depth + b"\xc0"
            if depth == deep:
                with pytest.raises(ValueError, match="nested more than 100 deep"):
                    await given(applied, number, body)
                assert machine.state == {}
            else:
                await given(applied, number, body)
        applied.restore(await applied.state())
        assert "k" in machine.state

    run(story)


def test_a_counter_stays_within_what_a_snapshot_holds() -> None:
    counter = _Counter(0)
    command: Any = None
    assert counter.do_add(command, 2**63 - 1) == 2**63 - 1
    for amount in (1, 2**63):
        with pytest.raises(OverflowError, match="nothing was added"):
            counter.do_add(command, amount)
    assert counter.do_add(command, 1 - 2**63) == 0
    assert counter.do_add(command, -(2**63)) == -(2**63)
    with pytest.raises(OverflowError):
        counter.do_add(command, -1)
    with pytest.raises(TypeError, match="whole numbers"):
        counter.do_add(command, 0.5)  # type: ignore[arg-type]
    counter.restore(counter.snapshot())
    assert counter.state == -(2**63)


def test_the_deepest_item_of_a_queue_can_be_taken() -> None:
    """In a list it was deeper than a result may be: it was gone, and its taker got an error."""

    async def story() -> None:
        applied: Applied[Any] = Applied(_Queue([]))
        item: Any = None
        for _ in range(DEEPEST):
            item = [item]
        await given(applied, 1, encoded(("put", item)))
        (taken,) = await given(applied, 2, encoded(("get",)), client="c")
        assert msgspec.msgpack.decode(taken) == item
        assert await given(applied, 3, encoded(("get",)), client="c") == []

    run(story)


class Watches(Does):
    """Who is said to be there."""

    def __init__(self) -> None:
        self.views: list[tuple[int, ...]] = []

    def on_view(self, view: View) -> None:
        self.views.append(view.members)


def test_a_machine_is_told_of_a_member_that_was_started_anew() -> None:
    """Also by a state that was taken over, and once."""

    async def story() -> None:
        index = 0

        def say(member: int, boot: int, content: Content, number: int = 1) -> list[tuple[int, ...]]:
            nonlocal index
            index += 1
            machine.views.clear()
            entry = LogEntry(LATER, Ticket(member, boot, number), encode(content))
            applied.apply(index, entry, None)
            return list(machine.views)

        machine = Watches()
        applied: Applied[Any] = Applied(machine)
        assert say(1, 11, Started()) == []
        assert say(3, 31, Started()) == []
        assert say(1, 11, Present(NOW, (1, 2, 3)), 2) == [(1, 2, 3)]
        assert say(2, 21, Started()) == [], "it was not there before"
        state = await applied.state()
        machine = Watches()
        applied = Applied(machine)
        applied.restore(state)
        assert say(1, 11, Started()) == [], "said before"
        assert say(3, 32, Started()) == [(1, 2), (1, 2, 3)]
        assert say(3, 32, Started()) == []
        assert say(1, 11, Present(Epoch(9, 1), (1,)), 3) == [], "from an epoch that never was"
        assert say(1, 11, Present(LATER, (1, 2)), 4) == [(1, 2)]
        assert say(3, 33, Started()) == [(1, 2)], "it may have got something since"

    run(story)


def test_a_snapshot_that_is_no_bytes_is_named() -> None:
    class Text(Does):
        def snapshot(self) -> bytes:
            return "text"  # type: ignore[return-value]

    with pytest.raises(TypeError, match="a snapshot of Text is bytes, not str"):
        asyncio.run(Applied(Text()).state())
