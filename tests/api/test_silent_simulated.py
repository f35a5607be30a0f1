"""A member of joined rings that says no more which groups it is in."""

from __future__ import annotations

import asyncio

import pytest
from simulated_rings import NAMES, settings

import ringcast
from ringcast.api import directory
from ringcast.api.outgoing import Item
from ringcast.testing import Host, World, simtest
from ringcast.testing.nodes import open_node
from ringcast.wire.envelope import Groups

READERS = ("a1", "a2")


async def member(host: Host, read: dict[str, int], aside: dict[str, int]) -> None:
    async with open_node(host, settings(host)) as node:
        put_first = node.outgoing.put_first

        def silent(item: Item) -> None:
            if host.name != "c1" or host.world["b1"].up or not isinstance(item.word, Groups):
                put_first(item)

        node.outgoing.put_first = silent  # type: ignore[method-assign]

        async def reading(group: ringcast.Group) -> None:
            async for event in group:
                read[host.name] += isinstance(event, ringcast.Message)

        await node.wait_for_ring(len(NAMES))
        if host.name in READERS:
            group = node.join("orders")
            await group.join()
            task = asyncio.create_task(reading(group))
            await asyncio.sleep(4 - host.world.now)
            assert len(node.ring) < len(NAMES)
            for _ in range(60):
                await group.send(bytes(1000))
            assert not task.done()
        while True:
            await asyncio.sleep(0.1)
            aside[host.name] = node._directory.left_aside


def test_it_is_left_aside_though_others_do_not_see_what_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages of a group go to the rings of its members alone, so nobody knew how much waits."""
    for name in ("MOST_WAITING", "MUCH_TO_SOME", "CROWDED"):
        monkeypatch.setattr(directory, name, getattr(directory, name) // 1024)

    @simtest(seeds=2)
    async def reads_on(world: World) -> None:
        read, aside = dict.fromkeys(READERS, 0), dict.fromkeys(NAMES, 0)
        for name in NAMES:
            world.host(name, member, read, aside)
        await world.sleep(3)
        world["b1"].crash()
        await world.until(lambda: set(read.values()) == {120}, within=30)
        await world.until(lambda: all(aside[each] for each in NAMES if each != "b1"), within=5)

    reads_on()
