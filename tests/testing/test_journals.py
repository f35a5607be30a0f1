"""Journals of nodes that were away while the others parted: they catch up, and a check says so."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from ringcast.journal import check
from ringcast.journal.merged_reader import whole
from ringcast.testing import CallFailed, Host, Request, World, simtest

pytest.importorskip("pandas")  # pyarrow loads it late, where simulated dates would confuse it

PEERS = [f"{number}@10.0.0.{number}:5400" for number in (1, 2, 3)]


async def keep(host: Host) -> None:
    """Keeps a journal, and sends and publishes what it is asked to."""
    async with host.node(journal=True) as node, node.join("g") as group:

        async def answer(request: Request) -> Any:
            match request.path:
                case "/ring":
                    return list(node.ring)
                case "/caught-up":
                    return await node.caught_up()
                case _:
                    return str(await group.send(request.body.encode(), durable=True))

        host.serve(answer)
        async for _ in group:
            pass


async def idle() -> None:
    await asyncio.Event().wait()


class Keepers:
    """Three nodes with journals, and somebody who asks them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hosts = [world.host(f"keeper{number}", keep) for number in (1, 2, 3)]
        self.client = world.host("client", idle, steady=True)

    async def ask(self, host: Host, path: str, body: Any = None) -> Any:
        """Until it answers."""

        async def asking() -> Any:
            while True:
                with suppress(CallFailed):
                    return await self.client.call(host, path, body)
                await asyncio.sleep(0.05)

        return await self.client.spawn(asking())

    async def ring(self, host: Host, *members: Host) -> None:
        """Wait until a node is on a ring with these."""
        numbers = [each.number for each in members]
        while await self.ask(host, "/ring") != numbers:
            await self.world.sleep(0.05)

    def rows(self, host: Host) -> list[dict[str, Any]]:
        """The records of a journal."""
        return [row for part in whole([host.folder / "journal"]) for row in part.to_pylist()]

    def check(self) -> None:
        """Every journal is sound, and they agree."""
        folders = [host.folder / "journal" for host in self.hosts]
        for folder in folders:
            assert [f for report in check.examine(folder) for f in report.findings] == []
        assert [*check.compare(folders), *check.holes(folders)] == []


@pytest.mark.parametrize("protocol", ["totem", "total", "totem-multi"])
def test_the_other_side_began_below_the_end_of_the_journal(protocol: str) -> None:
    """With timestamps, the view of the side that sends less comes before the last record of a
    member that died on the other side: it is told what follows, and cannot take the view."""

    async def story(world: World) -> None:
        keepers = Keepers(world)
        one, two, three = keepers.hosts
        await keepers.ring(three, one, two, three)
        world.partition([one], [two, three])
        await keepers.ring(one, one)
        await keepers.ring(three, two, three)
        for number in range(30):
            await keepers.ask(three, "/send", f"three {number}")
        three.crash("nothing")
        for number in range(60):
            await keepers.ask(one, "/send", f"one {number}")
        world.unite([one], [two, three])
        three.start()
        for host in keepers.hosts:
            await keepers.ring(host, one, two, three)
            await keepers.ask(host, "/caught-up")
            await keepers.ask(host, "/send", "end")
        await world.sleep(1)  # records that nobody waits for are written now and then
        keepers.check()
        rows = keepers.rows(three)
        begun = [row["view"] for row in rows if row["kind"] != "message"]
        told = [row for row in rows if row["body"].startswith(b"one ")]
        apart = [row for row in told if row["view"] not in begun]
        assert bool(apart) == (protocol == "totem-multi")

    simtest(seeds=2, settings={"protocol": protocol, "peers": PEERS})(story)()
