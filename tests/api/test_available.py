"""Replicas over an order that partitions, merges, crashes and drops: in the end all agree."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from loopback import configs, eventually, ring, run

from ringcast.api.available import AROUND, AvailableCopy
from ringcast.api.events import Event, EventsLost, Message, View
from ringcast.api.group import Group, MessageTooLarge, NotJoined
from ringcast.api.node import Node
from ringcast.api.replica import Replica, ResultLost, StateMachine
from ringcast.core.errors import NodeStopped
from ringcast.core.ids import Level, Position, ViewId


class Log(StateMachine[int]):
    """Every command in order, and the members it was told of; the result is the length."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.members: tuple[int, ...] = ()

    def apply(self, command: Message) -> int:
        word = command.body.decode()
        if word == "bad":
            raise ValueError("no such command")
        self.words.append(word)
        return len(self.words)

    def on_view(self, view: View) -> None:
        self.members = view.members

    def snapshot(self) -> bytes:
        return json.dumps([self.words, self.members]).encode()

    def restore(self, state: bytes) -> None:
        self.words, members = json.loads(state)
        self.members = tuple(members)


def union(states: Sequence[bytes]) -> bytes:
    """What was done on any side, once."""
    words: dict[str, None] = {}
    for state in states:
        some, members = json.loads(state)
        words.update(dict.fromkeys(some))
    return json.dumps([list(words), members]).encode()


def available(node: Node) -> Replica[int]:
    return Replica(node.join("g"), Log(), consistency="available", merge=union)


# --- a group without a network -------------------------------------------------------------


class Component:
    """Members that hear each other, and what they have sent but not ordered yet."""

    def __init__(self, ring: ViewId, members: list[FakeGroup]) -> None:
        self.ring, self.members, self.seq = ring, members, 0
        self.unordered: deque[tuple[FakeGroup, bytes, asyncio.Future[Position]]] = deque()
        view = View(tuple(sorted(m.me for m in members)), False, ring, Position.at(ring, 0))
        for member in members:
            if member.component is not None:
                with_me = {m.me for m in member.component.members} & set(view.members)
                place = Position.at(member.component.ring, member.component.seq).end(1)
                member.events.append(View(tuple(sorted(with_me)), True, ring, place))
            member.component = self
            member.events.append(view)

    def order_one(self) -> None:
        sender, body, sent = self.unordered.popleft()
        self.seq += 1
        place = Position.at(self.ring, self.seq)
        for member in self.members:
            member.events.append(Message(sender.me, body, place, Level.AGREED))
        if not sent.done():
            sent.set_result(place)


class FakeGroup:
    """As much of Group as a replica uses; ``events`` wait until the test lets them be read."""

    max_message = AROUND + 40
    """So that states travel in pieces."""

    def __init__(self, me: int) -> None:
        self.me = me
        self.component: Component | None = None
        self.events: deque[Event] = deque()
        self.credit = 0
        self.released = asyncio.Event()
        self.gone = False

    async def join(self) -> None:
        pass

    async def leave(self) -> None:
        self.gone = True

    async def send(self, body: bytes, level: Level = Level.AGREED) -> Position:
        assert self.component is not None
        sent: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self.component.unordered.append((self, body, sent))
        return await sent

    async def send_many(self, bodies: Iterable[bytes]) -> Position:
        return (await asyncio.gather(*map(self.send, bodies)))[-1]

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            await self.released.wait()
            while self.credit and self.events:
                self.credit -= 1
                yield self.events.popleft()
            self.released.clear()

    def read(self, count: int) -> None:
        self.credit = count
        self.released.set()

    def lose(self) -> None:
        """As an inbox over its bound: one word and the newest view are left."""
        unread = list(self.events)
        views = [e for e in unread if isinstance(e, View)]
        if unread:
            self.events = deque([EventsLost(len(unread) - bool(views)), *views[-1:]])


class World:
    """Replicas 1.. and the components they are in."""

    def __init__(self, seed: str) -> None:
        self.rng = Random(seed)
        self.number = 4
        self.live: dict[int, tuple[FakeGroup, AvailableCopy[int], Log]] = {}
        self.submitted: list[asyncio.Task[int]] = []
        self.sent = 0

    async def settle(self) -> None:
        for _ in range(12):
            await asyncio.sleep(0)

    def components(self) -> list[Component]:
        found: list[Component] = []
        for group, _, _ in self.live.values():
            if group.component is not None and group.component not in found:
                found.append(group.component)
        return found

    def regroup(self, *parts: list[int]) -> None:
        """A ring change: messages nobody ordered yet go with their senders."""
        for part in parts:
            groups = [self.live[n][0] for n in part]
            self.number += 4
            old = [m.component for m in groups]
            fresh = Component(ViewId(self.number, min(part)), groups)
            for group, before in zip(groups, old, strict=True):
                if before is not None:
                    fresh.unordered.extend(u for u in before.unordered if u[0] is group)

    async def start(self, node: int) -> None:
        group, log = FakeGroup(node), Log()
        replica = AvailableCopy(cast("Group", group), log, union)
        self.live[node] = group, replica, log
        self.regroup([node])
        replica._reader = asyncio.ensure_future(replica._read())

    async def crash(self, node: int) -> None:
        group, replica, _ = self.live.pop(node)
        await replica.close()
        assert group.component is not None
        for sender, _, sent in group.component.unordered:
            if sender is group and not sent.done():
                sent.set_exception(NotJoined("crashed"))
        rest = [m.me for m in group.component.members if m is not group]
        if rest:
            self.regroup(rest)

    def partition(self) -> None:
        nodes = sorted(self.live)
        self.rng.shuffle(nodes)
        cut = self.rng.randrange(len(nodes) + 1)
        self.regroup(*(part for part in (nodes[:cut], nodes[cut:]) if part))

    def submit(self, node: int) -> None:
        self.sent += 1
        word = f"{self.sent}"
        task = asyncio.ensure_future(self.live[node][1].submit(word.encode()))
        self.submitted.append(task)

    async def step(self, together: bool) -> None:
        """Something happens; ``together``: neither partition nor crash."""
        rng = self.rng
        draw = rng.random()
        node = rng.choice(sorted(self.live))
        if draw < 0.35:
            busy = [c for c in self.components() if c.unordered]
            if busy:
                rng.choice(busy).order_one()
        elif draw < 0.75:
            self.live[node][0].read(rng.randrange(1, 4))
        elif draw < 0.93:
            self.submit(node)
        elif draw < 0.95:
            if not together:
                self.partition()
        elif draw < 0.97:
            self.live[node][0].lose()
        elif draw < 0.985:
            if not together and len(self.live) > 1:
                await self.crash(node)
        elif len(self.live) < 4:
            await self.start(next(n for n in range(1, 9) if n not in self.live))
            if together:
                self.regroup(sorted(self.live))
        await self.settle()

    async def finish(self) -> None:
        """All together, until nothing is under way."""
        self.regroup(sorted(self.live))
        for _ in range(3000):
            component = self.components()[0]
            while component.unordered:
                component.order_one()
            for group, _, _ in self.live.values():
                group.read(len(group.events))
            await self.settle()
            quiet = not component.unordered and not any(g.events for g, _, _ in self.live.values())
            if quiet and all(r._live.is_set() for _, r, _ in self.live.values()):
                return
        raise AssertionError("the replicas do not come to rest")


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_replicas_agree_after_whatever_happened(seed: int, together: bool) -> None:
    async def main() -> None:
        world = World(f"replica/{seed}")
        for node in (1, 2, 3):
            await world.start(node)
        if together:
            world.regroup([1, 2, 3])
        for _ in range(400):
            await world.step(together)
        await world.finish()
        logs = {n: (log.words, log.members) for n, (_, _, log) in world.live.items()}
        assert len({json.dumps(log) for log in logs.values()}) == 1, logs
        (words, members), *_ = logs.values()
        assert members == tuple(sorted(world.live))
        assert len(set(words)) == len(words), "a command was applied twice"
        assert words
        for _, replica, _ in world.live.values():
            assert replica._error is None
        results = await asyncio.gather(*world.submitted, return_exceptions=True)
        assert all(isinstance(r, int | ResultLost | NotJoined) for r in results)
        if together:  # what was acknowledged is there, at the place that was said
            assert all(
                words[r - 1] == str(n) for n, r in enumerate(results, 1) if isinstance(r, int)
            )
        for _, replica, _ in world.live.values():
            assert not replica._held
            await replica.close()

    asyncio.run(main())


def test_a_fresh_member_never_wins_over_a_working_group() -> None:
    """Alone after its start it has a later ring than the others, but no history."""

    async def main() -> None:
        world = World("fresh")
        await world.start(1)
        await world.finish()
        for _ in range(3):
            world.submit(1)
        await world.settle()
        await world.finish()
        await world.start(9)
        await world.start(2)
        for group, _, _ in world.live.values():
            group.read(9)
        await world.settle()
        await world.finish()
        assert [log.words for _, _, log in world.live.values()] == [["1", "2", "3"]] * 3
        for _, replica, _ in world.live.values():
            await replica.close()

    asyncio.run(main())


def test_a_submission_does_not_slip_in_between_two_rounds() -> None:
    async def story() -> None:
        """A state is agreed upon, and in the same breath events are lost: who waited waits on."""
        world = World("between")
        await world.start(1)
        group, replica, _ = world.live[1]
        component = world.components()[0]
        group.read(1)  # the view: a round begins
        await world.settle()
        world.submit(1)
        await world.settle()
        component.order_one()  # the only word of the round
        group.events.append(EventsLost(1))
        group.read(2)
        await world.settle()
        assert not replica._live.is_set()
        await world.finish()
        async with asyncio.timeout(60):
            assert await world.submitted[0] == 1
        await replica.close()

    asyncio.run(story())


# --- over a real ring ----------------------------------------------------------------------


def test_joining_crashing_and_coming_back(tmp_path: Path) -> None:
    async def story() -> None:
        first, second, third = configs(tmp_path, 3)
        async with Node.open(first) as one, available(one) as a:
            assert await a.submit(b"before") == 1
            async with Node.open(second) as two, available(two) as b:
                await eventually(lambda: _words(a) == _words(b) == ["before"])
                assert await b.submit(b"from 2") == 2
                with pytest.raises(ValueError, match="no such command"):
                    await b.submit(b"bad")
                async with Node.open(third) as three, available(three) as c:
                    await eventually(lambda: a.group.members == (1, 2, 3))
                    await asyncio.gather(*(r.submit(b"x") for r in (a, b, c) for _ in range(20)))
                    await eventually(lambda: len(_words(c)) == 62)
                    assert _words(a)[:2] == _words(c)[:2]
                    assert three._host is not None
                    three._host.close("killed")
                    with pytest.raises(NodeStopped, match="killed"):
                        await c.submit(b"y")
                    with pytest.raises(NodeStopped, match="killed"):
                        await c.wait()
                await eventually(lambda: _log(a).members == _log(b).members == (1, 2))
                assert await a.submit(b"goes on") == 63
            async with Node.open(second) as two, available(two) as b:
                await eventually(lambda: _words(b) == _words(a))
                assert len(_words(b)) == 63

    run(story)


def test_a_state_larger_than_a_message_travels_in_pieces(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            ring(tmp_path, 2, settings={"max_message": 2**18}) as (one, two),
            available(one) as a,
        ):
            for n in range(10):
                await a.submit(b"%d" % n * 100_000)
            sending = asyncio.ensure_future(a.submit(b"meanwhile"))
            async with available(two) as b:
                await b.submit(b"end")
                await eventually(lambda: len(_words(a)) == len(_words(b)) == 12)
                assert _words(a) == _words(b)
                assert await sending
            with pytest.raises(MessageTooLarge):
                await a.submit(bytes(2**18))
            assert await a.submit(b"goes on") == 13

    run(story)


def test_a_replica_that_was_closed(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 1) as (one,):
            async with available(one) as a:
                waiting = asyncio.ensure_future(a.wait())
                await a.submit(b"x")
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with pytest.raises(NotJoined, match="the replica has been closed"):
                await a.submit(b"y")

    run(story)


def _log(replica: Replica[Any]) -> Log:
    assert isinstance(replica.machine, Log)
    return replica.machine


def _words(replica: Replica[Any]) -> list[str]:
    return _log(replica).words
