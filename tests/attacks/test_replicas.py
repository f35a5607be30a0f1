"""Members that lie to replicas, against live nodes: one that is on the ring and in no group, one
that is in the group and has no vote, and a voter."""

from __future__ import annotations

import asyncio
import json
from asyncio import FIRST_COMPLETED
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from adversary import keyed, opened
from loopback import eventually, run
from msgspec.structs import replace

from ringcast.api import available, quorum
from ringcast.api.events import Message
from ringcast.api.node import Node
from ringcast.api.outgoing import Item
from ringcast.api.quorum import QuorumCopy
from ringcast.api.replica import Replica, StateMachine
from ringcast.core.errors import RingcastError
from ringcast.core.ids import LIMIT, Level
from ringcast.replica import words
from ringcast.replica.effects import Effect, Phase, Say
from ringcast.replica.engine import Engine
from ringcast.replica.progress import REACH
from ringcast.replica.words import (
    Again,
    Barrier,
    Epoch,
    Lift,
    Run,
    Snapshot,
    Status,
    Ticket,
    Word,
    after,
)


class Commands(StateMachine[int]):
    """All commands; how many there are."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def apply(self, command: Message) -> int:
        self.all.append(command.body.decode())
        return len(self.all)

    def snapshot(self) -> bytes:
        return json.dumps(self.all).encode()

    def restore(self, state: bytes) -> None:
        self.all = json.loads(state)


def a_copy(node: Node, root: Path) -> Replica[int]:
    folder = root / f"replica{node.config.id}"
    return Replica(node.join("shop"), Commands(), members={1, 2, 3}, dir=folder)


async def copies(stack: AsyncExitStack, nodes: list[Node], root: Path) -> list[Replica[int]]:
    """Replicas that go on."""
    found = await asyncio.gather(*(stack.enter_async_context(a_copy(n, root)) for n in nodes))
    for replica in found:
        await replica.ready(20)
    return found


def engine(replica: Replica[int]) -> Engine:
    assert isinstance(replica._copy, QuorumCopy)
    return replica._copy._engine


def say(node: Node, *bodies: bytes) -> None:
    """Into a group, in it or not."""
    node.outgoing.put(Item("shop", Level.AGREED, bodies))


def lift(victim: Engine) -> list[Word]:
    """To the last epoch there is, and as far as one member may."""
    return [Lift(Epoch(2**62 - 1, 0)), Lift(Epoch(victim.epoch.seq + REACH, 0, LIMIT))]


def other_voters(victim: Engine) -> list[Word]:
    new = after(victim.epoch)
    return [Again(victim.epoch), Status(new, 7, (4,), 1, Epoch(1, 1), 0, 0, 0, (), 5)]


def another_s_barrier(victim: Engine) -> list[Word]:
    return [Barrier(Ticket(victim.me, victim.boot, 2**40))]


@pytest.mark.parametrize("lie", [lift, other_voters, another_s_barrier])
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_a_member_without_a_vote_ends_no_replicas(
    tmp_path: Path, lie: Callable[[Engine], list[Word]], inside: bool
) -> None:
    """By one word each they had halted, ended with a KeyError, or promised the last epoch on disk,
    after which there was no primary component any more."""

    async def story() -> None:
        settings = keyed(tmp_path, 4)
        async with AsyncExitStack() as stack:
            *nodes, liar = await opened(stack, settings)
            replicas = await copies(stack, nodes, tmp_path)
            assert await replicas[0].submit(b"one", timeout=10) == 1
            if inside:
                await stack.enter_async_context(liar.join("shop"))
                await eventually(lambda: 4 in replicas[0].group.members)
                for replica in replicas:
                    await replica.ready(20)
            said = lie(engine(replicas[0]))
            say(liar, *map(words.encode, said))
            await eventually(lambda: all(4 in replica.refused for replica in replicas) or inside)
            assert await replicas[1].submit(b"two", timeout=20) == 2
            if not inside:
                assert [r.refused for r in replicas] == 3 * [{4: len(said)}]
        for each in settings:
            each["peers"] = each["peers"][:3]
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings[:3])
            replicas = await copies(stack, nodes, tmp_path)
            assert await replicas[2].submit(b"three", timeout=20) == 3

    run(story)


def silent(replica: Replica[int]) -> None:
    """A replica that says no status of its own any more: its member says another one."""
    inner, do = engine(replica), engine(replica)._do

    def others(effect: Effect) -> None:
        if not (isinstance(effect, Say) and isinstance(effect.word, Status)):
            do(effect)

    inner._do = others  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "lie",
    [
        {"green": LIMIT},
        {"length": 2**40, "runs": (Run(Epoch(1, 1), 1, 2**40),)},
    ],
    ids=["green", "length"],
)
def test_a_voter_that_says_what_no_disk_holds(tmp_path: Path, lie: dict[str, Any]) -> None:
    """The others wrote it, ended with an IndexError, and could not be opened again."""

    async def story() -> None:
        settings = keyed(tmp_path, 3)
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            replicas = await copies(stack, nodes, tmp_path)
            assert await replicas[0].submit(b"one", timeout=10) == 1
            liar = engine(replicas[2])
            new = after(liar.epoch)
            word = replace(liar.status(), epoch=new, **lie)
            silent(replicas[2])
            say(nodes[2], words.encode(Again(liar.epoch)), words.encode(word))
            await eventually(lambda: all(3 in replica.refused for replica in replicas[:2]))
            assert await replicas[1].submit(b"two", timeout=20) == 2
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings[:2])
            replicas = await copies(stack, nodes, tmp_path)
            assert await replicas[0].submit(b"three", timeout=20) == 3

    run(story)


def test_a_state_that_no_machine_can_read_is_on_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A voter is believed about the state: whoever takes it over stops, and may start again."""
    monkeypatch.setattr(quorum, "TICK_S", 10.0)  # the liar has time, however busy the machine is

    async def story() -> None:
        settings = keyed(tmp_path, 3)
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            replicas = await copies(stack, nodes, tmp_path)
            assert await replicas[0].submit(b"one", timeout=10) == 1
            liar = engine(replicas[2])
            new, at = after(liar.epoch), liar.log.length + 1
            word = replace(
                liar.status(), epoch=new, log_epoch=liar.epoch, length=at, green=at, trimmed=at,
                runs=(),
            )  # fmt: skip
            silent(replicas[2])
            state = Snapshot(new, at, 0, b"no state", True)
            say(nodes[2], *map(words.encode, (Again(liar.epoch), word)))
            await eventually(lambda: all(engine(r).phase is Phase.TRANSFER for r in replicas[:2]))
            say(nodes[2], words.encode(state))
            # The other may be slower, and begins anew without the one that stops.
            waits = {asyncio.ensure_future(replica.wait()) for replica in replicas[:2]}
            ended, left = await asyncio.wait(waits, timeout=20, return_when=FIRST_COMPLETED)
            assert ended
            for each in ended:
                with pytest.raises(RingcastError, match="cannot take over the state after entry"):
                    each.result()
            for each in left:
                each.cancel()
        monkeypatch.undo()
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings[:2])
            replicas = await copies(stack, nodes, tmp_path)
            assert await replicas[0].submit(b"two", timeout=20) == 2

    run(story)


@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_a_history_without_end_ends_no_available_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    """Somebody on the ring replaced the state of a group that it was not in, and with the largest
    number the next round ended all copies with an OverflowError."""
    most = 2**64 - 1 if not inside else available.LAST_COMMAND

    def lie(liar: Node) -> None:
        """From now on the first copy that begins a round or awaits a state is given this one."""
        begin, awaits = available.AvailableCopy._begin, available.AvailableCopy._await

        def begun(self: Any, round: Any) -> None:
            begin(self, round)
            if self.group.me == 1:
                version = available.Version(most, round, 1)
                say(liar, available._encode(available.Have(round, version, None, False)))

        def awaited(self: Any, state: Any, senders: Any = ()) -> None:
            senders = list(senders)
            awaits(self, state, senders)
            if self.group.me == 1 and 3 in senders:
                version = available.Version(most, state, 1)
                piece = available.StatePiece(state, version, b'["forged"]', True)
                say(liar, available._encode(piece))

        monkeypatch.setattr(available.AvailableCopy, "_begin", begun)
        monkeypatch.setattr(available.AvailableCopy, "_await", awaited)

    async def story() -> None:
        async with AsyncExitStack() as stack:
            *nodes, liar = await opened(stack, keyed(tmp_path, 3))
            replicas = await asyncio.gather(
                *(
                    stack.enter_async_context(
                        Replica(n.join("shop"), Commands(), consistency="available", merge=max)
                    )
                    for n in nodes
                )
            )
            assert await replicas[0].submit(b"one") == 1
            lie(liar)
            if inside:
                await stack.enter_async_context(liar.join("shop"))
                await eventually(lambda: 3 in replicas[0].group.members)
            for number in (2, 3):
                say(liar, available._encode(available.AskAgain(0)))
                await asyncio.sleep(0.3)
                assert await asyncio.wait_for(replicas[1].submit(b"more"), 10) == number
            for replica in replicas:
                machine = replica.machine
                assert isinstance(machine, Commands)
                assert machine.all == ["one", "more", "more"]
                assert inside or replica.refused == {3: 2}

    run(story)
