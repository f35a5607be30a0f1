"""A replica where two features meet: a journal, a merge, a compaction, other settings, a restart.

Each story is told over many moments, drawn by seed; what was confirmed must be there at its end, at
every member, and the shop must sell.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import ringcast
from ringcast.api import log_writer, quorum
from ringcast.journal import check
from ringcast.journal.merged_reader import whole
from ringcast.replica.contents import submission
from ringcast.replica.log import Image
from ringcast.replica.store import ReplicaStore
from ringcast.testing import CallFailed, Host, Request, World, simtest

pytest.importorskip("pandas")  # pyarrow loads it late, where simulated dates would confuse it

VOTERS = (1, 2, 3)
PEERS = [f"{number}@10.0.0.{number}:5400" for number in VOTERS]
SEEDS = 4
"""In the suite; ``--simtest-seeds 100`` runs more."""


class Seats(ringcast.StateMachine[str]):
    """Who has which seat, and which orders were carried out."""

    def __init__(self) -> None:
        self.sold: dict[str, str] = {}
        self.orders: list[str] = []

    def apply(self, command: ringcast.Message) -> str:
        seat, buyer, order = command.body.decode().split()
        assert order not in self.orders, f"{order} is carried out again"
        self.orders.append(order)
        return self.sold.setdefault(seat, buyer)

    def snapshot(self) -> bytes:
        return json.dumps([self.sold, self.orders]).encode()

    def pieces(self) -> Iterator[bytes]:
        whole = self.snapshot()
        return (whole[at : at + 10] for at in range(0, len(whole), 10))

    def restore(self, state: bytes) -> None:
        self.sold, self.orders = json.loads(state)


class Shop:
    """Three members, one client that numbers its orders and repeats them, and what it was told."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world, self.settings = world, settings
        self.rng = Random(f"{world.seed}/meets")
        self.members: dict[str, Any] = {}
        """What a host is configured with, if not as the others."""
        self.ended: dict[str, str] = {}
        """Hosts whose replica ended, and why."""
        self.told: dict[int, str] = {}
        self._sides: tuple[list[Host], ...] = ()
        self.hosts = [world.host(f"shop{n}", self.shop) for n in VOTERS]
        self.client = world.host("client", self.idle, steady=True)

    async def shop(self, host: Host) -> None:
        members = self.members.get(host.name, VOTERS)
        async with (
            host.node(**self.settings) as node,
            ringcast.Replica(node.join("shop"), Seats(), members, host.folder / "r") as replica,
        ):

            async def answer(request: Request) -> Any:
                if request.path == "/caught-up":
                    return await node.caught_up()
                if request.path == "/seats":
                    return await replica.read(lambda seats: dict(seats.sold), 1.0)
                seat, order = request.body
                body = f"{seat} c {order}".encode()
                return await replica.submit(body, client="c", request=order, timeout=1.0)

            host.serve(answer)
            try:
                await replica.wait()
            except ringcast.RingcastError as error:
                self.ended[host.name] = str(error)
            await asyncio.Event().wait()

    async def idle(self) -> None:
        await asyncio.Event().wait()

    async def ask(self, path: str, body: Any, *hosts: Host) -> Any:
        """Until there is an answer, of one of these."""

        async def asking() -> Any:
            while True:
                with suppress(CallFailed):
                    target = self.rng.choice(hosts or self.hosts)
                    return await self.client.call(target, path, body, within=1.5)
                await asyncio.sleep(0.05)

        return await self.client.spawn(asking())

    async def buy(self, *orders: int, at: tuple[Host, ...] = ()) -> None:
        """A seat with the number of the order; all under way at once."""

        async def one(order: int) -> None:
            self.told[order] = await self.ask("/buy", [order, order], *at)

        await asyncio.gather(*(one(order) for order in orders))

    def part(self, *sides: list[Host]) -> None:
        """From now on hosts hear their own side only; without sides, each other."""
        self.world.unite(*self._sides)
        self._sides = sides
        self.world.partition(*sides)

    async def settle(self, last: int) -> None:
        """All run and hear each other: every member sells, and has all that was confirmed."""
        self.part()
        for host in self.hosts:
            host.start()
        for number, host in enumerate(self.hosts):
            await self.buy(last + number, at=(host,))
        for host in self.hosts:
            sold = await self.ask("/seats", None, host)
            missing = {n: who for n, who in self.told.items() if sold.get(str(n)) != who}
            assert not missing, f"{host.name} lacks {missing}"
            await self.buy(
                *list(self.told)[-3:], at=(host,)
            )  # repetitions; apply would refuse them


def told(story: Callable[[Shop], Coroutine[Any, Any, None]], protocol: str, **more: Any) -> None:
    """Run a story over a protocol, for many seeds."""

    async def test(world: World) -> None:
        await story(Shop(world, **more))

    simtest(seeds=SEEDS, settings={"protocol": protocol, "peers": PEERS})(test)()


OVER = pytest.mark.parametrize("protocol", ["totem", "total"])


@OVER
def test_a_member_with_a_journal_was_away_while_the_others_parted(protocol: str) -> None:
    """Its replica and its journal both catch up, and the journal tells every command."""

    async def story(shop: Shop) -> None:
        world, (one, two, three) = shop.world, shop.hosts
        await shop.buy(*range(1, 6))
        three.crash()
        shop.part([one], [two, three])
        waiting = [asyncio.ensure_future(shop.buy(n, at=(h,))) for n, h in ((6, one), (7, two))]
        await world.sleep(shop.rng.uniform(0.1, 3))
        shop.part()
        await asyncio.gather(*waiting)
        shop.part([one, three], [two])
        three.start()
        await world.sleep(shop.rng.uniform(0, 1))
        await shop.buy(8, 9, at=(one,))
        await shop.settle(10)
        for host in shop.hosts:
            await shop.ask("/caught-up", None, host)
        folders = [host.folder / "journal" for host in shop.hosts]
        await world.sleep(1)  # records that nobody waits for are written now and then
        for folder in folders:
            assert [f for report in check.examine(folder) for f in report.findings] == []
        for host in (one, three):  # two was up, and apart when others sold: it got their entries
            assert commands(host.folder / "journal") >= shop.told.keys()
        assert list(check.compare(folders)) == []

    told(story, protocol, journal=True, journal_patience_s=5.0)


def commands(folder: Path) -> set[int]:
    """The orders of all commands in a journal."""
    found = [
        submission(body)
        for batch in whole([folder])
        for kind, body in zip(
            *(batch.column(name).to_pylist() for name in ("kind", "body")), strict=True
        )
        if kind == "message"
    ]
    return {int(each.command.split()[2]) for each in found if each is not None}


@OVER
def test_a_restart_in_the_middle_of_a_merge(protocol: str) -> None:
    async def story(shop: Shop) -> None:
        world = shop.world
        mixed = shop.rng.sample(shop.hosts, 3)
        await shop.buy(*range(1, 4))
        shop.part(mixed[:1], mixed[1:])
        await shop.buy(*range(4, 8), at=tuple(mixed[1:]))
        shop.part()
        waiting = asyncio.ensure_future(shop.buy(*range(8, 20)))
        for host in shop.rng.sample(shop.hosts, shop.rng.randint(1, 3)):
            await world.sleep(shop.rng.choice((0.002, 0.05, 0.5)) * shop.rng.random())
            host.restart()
        await waiting
        await shop.settle(20)

    told(story, protocol)


@OVER
def test_all_are_killed_while_a_state_is_written(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the state, the log that names it and the removal of what was before."""
    monkeypatch.setattr(log_writer, "COMPACT_AT", 300)
    monkeypatch.setattr(quorum, "TICK_S", 0.03)
    kept: list[int] = []
    keep = ReplicaStore.keep

    def noticed(self: ReplicaStore, image: Image) -> None:
        kept.append(image.at)
        keep(self, image)

    monkeypatch.setattr(ReplicaStore, "keep", noticed)

    async def story(shop: Shop) -> None:
        world, following = shop.world, 1
        for _ in range(4):
            kept.clear()
            waiting: asyncio.Future[None] = asyncio.ensure_future(asyncio.sleep(0))
            while not kept:
                await waiting
                waiting = asyncio.ensure_future(shop.buy(*range(following, following + 12)))
                following += 12
                await world.sleep(0.05)
            await world.sleep(shop.rng.uniform(0, 0.004))
            for host in shop.hosts:
                host.crash()
            for host in shop.hosts:
                host.start()
            await waiting
        world.sometimes("a state is on disk", lambda: any(h.folder.glob("r/state-*")
                                                          for h in shop.hosts))  # fmt: skip
        await shop.settle(following)

    told(story, protocol)


def test_a_member_that_comes_back_with_other_voters_ends_and_the_others_go_on() -> None:
    """Its disk would count in quorums that the others do not know of."""

    async def story(shop: Shop) -> None:
        await shop.buy(1, 2)
        wrong = shop.rng.choice(shop.hosts)
        shop.members[wrong.name] = shop.rng.choice([(1, 2, 4), 5, (1, 2)])
        wrong.restart()
        right = tuple(host for host in shop.hosts if host is not wrong)
        await shop.buy(3, 4, at=right)
        await shop.world.until(lambda: "founded with [1, 2, 3]" in shop.ended.get(wrong.name, ""))
        del shop.members[wrong.name]
        wrong.restart()
        await shop.settle(5)

    told(story, "totem")


def test_members_that_are_configured_differently_found_nothing() -> None:
    """By number and by name they could count by different voters; the text says what differs."""

    async def story(shop: Shop) -> None:
        wrong = shop.rng.choice(shop.hosts)
        shop.members[wrong.name] = 3
        waiting = asyncio.ensure_future(shop.buy(1))
        await shop.world.sleep(5)
        assert not shop.told
        del shop.members[wrong.name]
        wrong.restart()
        await waiting
        await shop.settle(2)

    told(story, "totem")


def test_a_client_repeats_what_is_not_remembered_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused at every member, those that took over a state included, and never applied."""
    monkeypatch.setattr(log_writer, "COMPACT_AT", 300)
    monkeypatch.setattr(quorum, "TICK_S", 0.03)
    monkeypatch.setattr(quorum, "WINDOW", 4)

    async def story(shop: Shop) -> None:
        world = shop.world
        away = shop.rng.choice(shop.hosts)
        await shop.buy(1)
        away.crash()
        for first in range(2, 40, 6):  # more at once than the window
            await shop.buy(*range(first, first + 6))
        away.start()
        await shop.settle(50)
        for host in shop.hosts:
            await world.until(lambda host=host: host.up)  # type: ignore[misc]
            answer = await shop.client.spawn(refused(shop.client, host))
            assert "results are kept for 16 requests" in answer
        await shop.settle(60)

    async def refused(client: Host, host: Host) -> str:
        with pytest.raises(CallFailed) as error:
            await client.call(host, "/buy", [1, 1], within=30)
        return str(error.value)

    told(story, "totem")
