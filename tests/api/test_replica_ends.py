"""However a replica and its node end, nothing is left: no warning, no complaint, no folder held."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from loopback import configs, run

from ringcast.api import log_writer
from ringcast.api.available import Merge
from ringcast.api.events import Message, View
from ringcast.api.group import NotJoined
from ringcast.api.node import Node
from ringcast.api.quorum import QuorumCopy
from ringcast.api.replica import Replica, StateMachine
from ringcast.core.errors import RingcastError


class Last(StateMachine[bytes]):
    """The last command."""

    def __init__(self) -> None:
        self.value = b""

    def apply(self, command: Message) -> bytes:
        self.value = command.body
        return self.value

    def snapshot(self) -> bytes:
        return self.value

    def restore(self, state: bytes) -> None:
        self.value = state


def a_copy(node: Node, folder: Path, kind: str) -> Replica[bytes]:
    """A replica that confirms alone, waits for others, or goes on without them."""
    group = node.join("g")
    if kind == "available":
        merge: Merge = max
        return Replica(group, Last(), consistency="available", merge=merge)
    return Replica(group, Last(), members=1 if kind == "alone" else 3, dir=folder)


Ending = Callable[[Node, Replica[bytes]], Awaitable[None]]


async def leave(replica: Replica[bytes]) -> None:
    await replica.__aexit__(None, None, None)


async def replica_first(node: Node, replica: Replica[bytes]) -> None:
    await leave(replica)
    await node.close()


async def node_first(node: Node, replica: Replica[bytes]) -> None:
    await node.close()
    await leave(replica)


async def node_first_and_later_the_replica(node: Node, replica: Replica[bytes]) -> None:
    await node.close()
    await asyncio.sleep(0.02)
    await leave(replica)


async def the_node_alone(node: Node, replica: Replica[bytes]) -> None:
    await node.close()


async def both_at_once(node: Node, replica: Replica[bytes]) -> None:
    await asyncio.gather(leave(replica), node.close())


async def the_replica_twice(node: Node, replica: Replica[bytes]) -> None:
    await asyncio.gather(leave(replica), leave(replica))
    await leave(replica)
    await node.close()


async def a_node_that_fails(node: Node, replica: Replica[bytes]) -> None:
    assert node._host is not None
    node._host.fail("gap: on purpose")
    await leave(replica)
    await node.close()


async def with_a_command_under_way(node: Node, replica: Replica[bytes]) -> None:
    waiting = asyncio.ensure_future(replica.submit(b"x"))
    await asyncio.sleep(0)
    await leave(replica)
    await node.close()
    await asyncio.gather(waiting, return_exceptions=True)


ENDINGS: list[Ending] = [
    replica_first,
    node_first,
    node_first_and_later_the_replica,
    the_node_alone,
    both_at_once,
    the_replica_twice,
    a_node_that_fails,
    with_a_command_under_way,
]


@pytest.mark.parametrize("kind", ["alone", "of three", "available"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_left_of_a_replica(
    tmp_path: Path,
    ending: Ending,
    kind: str,
    recwarn: pytest.WarningsRecorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Left at once, before its tasks have run: coroutines that nobody awaited were reported."""
    complaints: list[Any] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, c: complaints.append(c))
        node = Node.open(configs(tmp_path, 1)[0])
        await node.start()
        replica = a_copy(node, tmp_path / "r", kind)
        await replica.__aenter__()
        await ending(node, replica)
        await asyncio.sleep(0)

    run(story)
    gc.collect()
    assert complaints == []
    assert [str(each.message) for each in recwarn] == []
    ours = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert [text for text in ours if "on purpose" not in text] == []


@pytest.mark.parametrize("turns", range(0, 12, 2))
def test_an_opening_that_is_cancelled_lets_go_of_the_folder(tmp_path: Path, turns: int) -> None:
    """The thread that reads the folder goes on; nobody closed what it had opened."""

    async def story() -> None:
        async with Node.open(configs(tmp_path, 1)[0]) as node:
            opening = asyncio.ensure_future(a_copy(node, tmp_path / "r", "alone").__aenter__())
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            assert opening.cancelled()
            async with a_copy(node, tmp_path / "r", "alone") as replica:
                assert await replica.submit(b"x") == b"x"

    run(story)


@pytest.mark.parametrize("turns", range(4))
def test_a_close_that_is_cancelled_lets_go_of_the_folder(tmp_path: Path, turns: int) -> None:
    """When the disk has done what it was at: the folder stayed locked. Those who had submitted are
    told what may have become of it."""

    async def story() -> None:
        async with Node.open(configs(tmp_path, 1)[0]) as node:
            replica = a_copy(node, tmp_path / "r", "alone")
            await replica.__aenter__()
            await replica.ready(20)
            copy = replica._copy
            assert isinstance(copy, QuorumCopy)
            copy._disk._thread.submit(time.sleep, 0.3)  # the next job has to wait
            waiting = asyncio.ensure_future(replica.submit(b"x"))
            await asyncio.sleep(0.1)
            closing = asyncio.ensure_future(leave(replica))
            for _ in range(1 + turns):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            assert closing.cancelled()
            with pytest.raises(NotJoined, match="what was submitted may yet be applied"):
                await waiting
            await asyncio.sleep(0.6)
            async with a_copy(node, tmp_path / "r", "alone") as again:
                assert await again.submit(b"y", timeout=20) == b"y"

    run(story)


def test_a_loop_that_ends_while_the_disk_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread had nobody to tell, and the error was logged."""
    writers: list[log_writer.LogWriter] = []
    begin = log_writer.LogWriter.__init__

    def noted(self: log_writer.LogWriter, *arguments: Any) -> None:
        begin(self, *arguments)
        writers.append(self)

    monkeypatch.setattr(log_writer.LogWriter, "__init__", noted)

    async def story() -> None:
        node = Node.open(configs(tmp_path, 1)[0])
        await node.start()
        await a_copy(node, tmp_path / "r", "alone").__aenter__()
        (writer,) = writers
        writer._thread.submit(asyncio.run, asyncio.sleep(0.1))  # the next job has to wait
        writer.sync(1)
        writer.turn()
        await node.close()

    run(story)
    writers[0]._thread.shutdown()
    assert [r.getMessage() for r in caplog.records] == []


class Faulty(Last):
    """A machine with a bug outside of `apply`."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def on_view(self, view: View) -> None:
        if self.where == "on_view":
            raise KeyError(view.members)

    def snapshot(self) -> bytes:
        if self.where == "snapshot":
            raise KeyError("snapshot")
        return super().snapshot()


@pytest.mark.parametrize(
    ("kind", "where", "told"),
    [
        ("alone", "on_view", "on_view of Faulty raised KeyError"),
        ("alone", "snapshot", "KeyError"),
        ("available", "on_view", "KeyError"),
    ],
)
def test_a_bug_of_the_machine_is_no_outcome_of_a_command(
    tmp_path: Path, kind: str, where: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`submit` raised the KeyError, as if `apply` had refused the command."""
    monkeypatch.setattr(log_writer.LogWriter, "too_long", property(lambda _: True))

    async def story() -> None:
        async with Node.open(configs(tmp_path, 1)[0]) as node:
            group, machine = node.join("g"), Faulty(where)
            replica: Replica[bytes] = (
                Replica(group, machine, consistency="available", merge=max)
                if kind == "available"
                else Replica(group, machine, members=1, dir=tmp_path / "r")
            )
            with pytest.raises(RingcastError, match=f"the replica has stopped: {told}"):
                async with replica:
                    while True:
                        await replica.submit(b"x")
                        await asyncio.sleep(0.1)

    run(story)
