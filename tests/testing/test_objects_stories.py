"""Shared objects on simulated hosts, one story each: what programs do with them that tests of their
methods do not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest

import ringcast
from ringcast.replica.log import Record
from ringcast.replica.store import ReplicaStore
from ringcast.testing import Host, World, simtest

VOTERS = (1, 2, 3)


class Members:
    """One object at each of three members."""

    def __init__(self, world: World, kind: Any) -> None:
        self.world, self.kind = world, kind
        self.objects: dict[int, Any] = {}
        self.hosts = [world.host(f"m{n}", self.member, on_error="restart") for n in VOTERS]

    async def member(self, node: ringcast.Node, host: Host) -> None:
        group, folder = node.join("object"), host.folder / "object"
        async with self.kind(group, VOTERS, folder, timeout=5) as shared:
            self.objects[host.number] = shared
            await shared.replica.wait()

    async def ready(self) -> None:
        def met() -> bool:
            objects = self.objects.values()
            return len(objects) == 3 and all(each.replica.primary for each in objects)

        await self.world.until(met, within=30)

    async def at(self, number: int, work: Coroutine[Any, Any, Any]) -> Any:
        """Carried out in the process of a member."""
        return await self.hosts[number - 1].spawn(work)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


async def values_are_copies(world: World) -> None:
    """A read, a change of what was read, and a conditional write: as anybody would write it."""
    members = Members(world, ringcast.ReplicatedDict)
    await members.ready()

    async def program() -> None:
        one, two = members.objects[1], members.objects[2]
        await one.set("cart", ["apple"])
        cart = await one.get("cart")
        cart.append("pear")
        assert await one.compare_and_set("cart", ["apple"], cart)
        await two.set("page", {"n": [1]})
        (await one.get("page"))["n"].append(2)
        (await one.items())["page"]["n"].append(2)
        one.local("page").value["n"].append(2)
        assert await two.compare_and_set("page", {"n": [1]}, {"n": 3})
        for each in (one, two):
            with pytest.raises(ValueError, match="nested more than 100 deep"):
                await each.set("deep", nested(101))
            await each.set("deep", nested(100))
            assert await each.get("deep") == nested(100)
            await each.delete("deep")
            assert await each.items() == {"cart": ["apple", "pear"], "page": {"n": 3}}

    await members.at(1, program())


def test_who_changes_what_it_read_changes_no_state() -> None:
    simtest(seeds=1)(values_are_copies)()


async def given_up(wanted: Coroutine[Any, Any, Any], after: float) -> Any:
    """The outcome, or None if it did not come in time."""
    with suppress(TimeoutError):
        return await asyncio.wait_for(wanted, after)


async def gets_are_given_up(world: World) -> None:
    """Consumers that look now and then, for less time than a get takes."""
    members = Members(world, ringcast.Queue)
    await members.ready()
    got: list[int] = []

    async def consumer(number: int) -> None:
        while True:
            item = await given_up(members.objects[number].get(), 0.01)
            if item is not None:
                got.append(item)

    async def producer() -> None:
        for number in range(1, 101):
            await members.objects[1].put(number)
            await asyncio.sleep(0.02)

    for number in (2, 2, 3):
        members.hosts[number - 1].spawn(consumer(number))
    await members.at(1, producer())
    await world.until(lambda: len(got) >= 100, within=10)
    await world.sleep(1)
    assert sorted(got) == list(range(1, 101))


def test_a_get_that_was_given_up_loses_nothing() -> None:
    simtest(seeds=3)(gets_are_given_up)()


async def an_acquire_is_given_up(world: World) -> None:
    members = Members(world, ringcast.Lock)
    await members.ready()
    one, two, three = (members.objects[n] for n in VOTERS)
    first = await members.at(1, one.acquire())
    for after in (0.0001, 0.01, 1):
        assert await members.at(2, given_up(two.acquire(), after)) is None
    await members.at(1, one.release())
    second = await members.at(3, given_up(three.acquire(), 30))
    assert second is not None
    assert second > first
    waiting = members.hosts[1].spawn(two.acquire())
    await world.sleep(1)
    await members.at(3, three.release())
    assert await waiting > second, "it may wait again"


def test_who_gave_up_waiting_for_a_lock_does_not_get_it() -> None:
    simtest(seeds=3)(an_acquire_is_given_up)()


async def one_of_two_gives_up(world: World) -> None:
    """Two tasks of a member wait for the lock, which is the member's: one goes on waiting. And a
    task that gives up asking again does not lose what another one holds."""
    members = Members(world, ringcast.Lock)
    await members.ready()
    one, two = members.objects[1], members.objects[2]
    await members.at(1, one.acquire())
    waiting = members.hosts[1].spawn(two.acquire())
    assert await members.at(2, given_up(two.acquire(), 1)) is None
    await members.at(1, one.release())
    token = await waiting
    for after in (0.0, 0.0001, 0.001):
        await members.at(2, given_up(two.acquire(), after))
    await world.sleep(5)
    assert await members.at(1, one.holder()) == (2, token)


def test_who_still_waits_or_holds_is_not_given_up() -> None:
    simtest(seeds=2)(one_of_two_gives_up)()


@pytest.mark.parametrize("protocol", ["totem", "total"])
@pytest.mark.parametrize("restarted", [(3,), (1, 2, 3)])
def test_a_lock_is_free_when_its_holder_was_started_anew(
    protocol: str, restarted: tuple[int, ...]
) -> None:
    """So soon that the others never went on without it; nobody has its token any more."""

    async def story(world: World) -> None:
        members = Members(world, ringcast.Lock)
        await members.ready()
        held = await members.at(3, members.objects[3].acquire())
        for number in restarted:
            members.hosts[number - 1].crash("nothing")
            del members.objects[number]
            members.hosts[number - 1].start()
        await members.ready()
        for number in (1, 3):
            token = await members.at(number, given_up(members.objects[number].acquire(), 60))
            assert token is not None
            assert token > held
            await world.sleep(5)
            assert await members.at(2, members.objects[2].holder()) == (number, token)
            await members.at(number, members.objects[number].release())

    peers = [f"{number}@10.0.0.{number}:5400" for number in VOTERS]
    simtest(seeds=2, settings={"protocol": protocol, "peers": peers})(story)()


async def the_smallest_hangs(world: World, hung: set[str]) -> None:
    """Of five, the disk of 1 hangs; 5 holds the lock and crashes. 2, 3 and 4 go on."""
    objects: dict[int, ringcast.Lock] = {}

    async def member(node: ringcast.Node, host: Host) -> None:
        folder = host.folder / "lock"
        async with ringcast.Lock(node.join("lock"), range(1, 6), folder, timeout=5) as lock:
            objects[host.number] = lock
            await lock.replica.wait()

    hosts = [world.host(f"m{n}", member) for n in range(1, 6)]
    await world.until(
        lambda: len(objects) == 5 and all(each.replica.primary for each in objects.values()), 30
    )
    await hosts[4].spawn(objects[5].acquire())
    hung.add("m1")
    waiting = hosts[1].spawn(objects[2].acquire())
    await world.sleep(1)
    hosts[4].crash("nothing")
    await world.until(waiting.done, within=60)


def test_a_hung_disk_of_the_smallest_member_keeps_no_lock_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who is there was for the smallest member of the view to say, whether it went on or not."""
    hung: set[str] = set()
    append = ReplicaStore.append

    def slow(self: ReplicaStore, records: list[Record]) -> None:
        if hung & {*self.folder.parts}:
            time.sleep(100_000)
        append(self, records)

    async def story(world: World) -> None:
        hung.clear()
        await the_smallest_hangs(world, hung)

    monkeypatch.setattr(ReplicaStore, "append", slow)
    simtest(seeds=2)(story)()
