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


OVER = pytest.mark.parametrize("protocol", ["totem", "total", "totem-multi"])


async def keep(host: Host) -> None:
    """Keeps a journal, and sends and publishes what it is asked to."""
    async with host.node(journal=True) as node, node.join("g") as group:

        async def answer(request: Request) -> Any:
            match request.path:
                case "/ring":
                    return list(node.ring)
                case "/caught-up":
                    return await node.caught_up()
                case "/publish":
                    rows = tuple(row.encode() for row in request.body[1])
                    return str(await node.publish("g", "w", request.body[0], 0, rows))
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

    async def refused(self, host: Host, path: str, body: Any) -> str:
        """Why it does not do what it is asked."""
        with pytest.raises(CallFailed) as error:
            await self.client.spawn(self.client.call(host, path, body, within=30))
        return str(error.value)

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


@OVER
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


@OVER
def test_rows_that_another_member_spoke_of_are_confirmed_when_the_journal_has_them(
    protocol: str,
) -> None:
    """A node that was away knew a batch by another member's word, and confirmed it while it still
    waited for a third one. Then the journal of that member was lost, and the rows with it."""

    async def story(world: World) -> None:
        keepers = Keepers(world)
        one, two, three = keepers.hosts
        await keepers.ring(one, one, two, three)
        for host in keepers.hosts:
            await keepers.ask(host, "/caught-up")
        one.crash()
        three.crash()
        await keepers.ring(two, two)
        await keepers.ask(two, "/publish", [0, ["a", "b"]])
        one.start()
        await keepers.ring(one, one, two)
        publishing = keepers.client.call(one, "/publish", [0, ["a", "b"]], within=30)
        await keepers.client.spawn(publishing)
        two.crash()
        one.crash("unsynced")
        one.start()
        await keepers.ring(one, one)
        assert [row["body"] for row in keepers.rows(one) if row["body"]] == [b"a", b"b"]

    simtest(seeds=2, settings={"protocol": protocol, "peers": PEERS})(story)()


@OVER
def test_rows_that_a_journal_never_gets_are_confirmed_by_those_who_have_them(
    protocol: str,
) -> None:
    """They were delivered where others were while the network was parted, and nothing is put into
    the past of a journal that has gone on."""

    async def story(world: World) -> None:
        keepers = Keepers(world)
        one, two, three = keepers.hosts
        await keepers.ring(one, one, two, three)
        for host in keepers.hosts:
            await keepers.ask(host, "/caught-up")
        world.partition([one], [two, three])
        await keepers.ring(two, two, three)
        await keepers.ask(two, "/publish", [0, ["a", "b"]])
        world.unite([one], [two, three])
        await keepers.ring(one, one, two, three)
        why = await keepers.refused(one, "/publish", [0, ["a", "b"]])
        assert "batch 0 of writer 'w' is not published in group 'g'" in why
        await keepers.ask(three, "/publish", [0, ["a", "b"]])
        await keepers.ask(one, "/publish", [1, ["c"]])
        await world.sleep(1)
        bodies = [[row["body"] for row in keepers.rows(host) if row["body"]]
                  for host in keepers.hosts]  # fmt: skip
        assert bodies == [[b"c"], [b"a", b"b", b"c"], [b"a", b"b", b"c"]]
        keepers.check()

    simtest(seeds=2, settings={"protocol": protocol, "peers": PEERS})(story)()
