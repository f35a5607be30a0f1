"""Shared objects on simulated hosts, one story each: what programs do with them that tests of their
methods do not."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

import ringcast
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
