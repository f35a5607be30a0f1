"""The ticket shop on simulated hosts: three voters, a late member without a vote, clients that
retry, partitions that move, crashes of some and of all, restarts with and without disk.

``python bench/simulated.py shops`` runs them by the thousand.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from random import Random
from shutil import rmtree
from typing import Any

import ringcast
from ringcast.testing import CallFailed, Host, Jump, Request, Swarm, World
from ringcast.testing.disk import Loss
from ringcast.testing.run import Outcome, RunSetup, run

VOTERS, LATE = (1, 2, 3), 4
PEERS = [f"{number}@10.0.0.{number}:5400" for number in (*VOTERS, LATE)]
"""Some protocols list who may ever take part."""
FAULTS = Swarm(kinds=("pause", "cut", "drift", "jump"), most=3)
SPAN_S = 7.0
ANSWER_S, PATIENCE_S = 2.0, 2.5

RETURNING = ("totem", "total", "counter", "rbp", "irbp", "totem-multi")
"""Protocols whose members come back after a crash, and take in others later."""
FIXED = ("token-fd",)
"""Protocols of a fixed group, whose crashed members stay out."""


class Judge:
    """Knows what anybody was told or applied. A seat has one buyer, for ever."""

    def __init__(self) -> None:
        self.buyer: dict[int, str] = {}
        self.confirmed: set[int] = set()
        """Seats whose buyer was told so."""
        self.wrong: list[str] = []
        """What a machine raises goes to clients, so wrongs are noted here."""

    def no_seat_twice_and_no_sale_lost(self) -> None:
        assert not self.wrong, self.wrong[0]

    def applied(self, where: str, seat: int, buyer: str) -> None:
        other = self.buyer.setdefault(seat, buyer)
        if other != buyer:
            self.wrong.append(f"{where}: seat {seat} is {buyer}'s, and was {other}'s")

    def told(self, seat: int, buyer: str) -> None:
        self.applied("a client was told", seat, buyer)
        self.confirmed.add(seat)

    def read(self, where: str, sold: dict[str, str], confirmed: set[int]) -> None:
        """What a read gave that began when these seats were confirmed."""
        if missing := sorted(confirmed - {int(seat) for seat in sold}):
            self.wrong.append(f"{where} reads nothing of the confirmed seats {missing}")
        for seat, buyer in sold.items():
            self.applied(where, int(seat), buyer)


class Seats(ringcast.StateMachine[str]):
    """Who has which seat. A command is an order: its result is who has the seat now."""

    def __init__(self, judge: Judge, where: str) -> None:
        self.sold: dict[str, str] = {}
        self.orders: set[str] = set()
        self._judge, self._where = judge, where

    def apply(self, command: ringcast.Message) -> str:
        seat, buyer, order = command.body.decode().split()
        if order in self.orders:
            self._judge.wrong.append(f"{self._where}: order {order} is carried out again")
        self.orders.add(order)
        who = self.sold.setdefault(seat, buyer)
        self._judge.applied(self._where, int(seat), who)
        return who

    def snapshot(self) -> bytes:
        return json.dumps([self.sold, sorted(self.orders)]).encode()

    def restore(self, state: bytes) -> None:
        self.sold, orders = json.loads(state)
        self.orders = set(orders)
        for seat, buyer in self.sold.items():
            self._judge.applied(self._where, int(seat), buyer)


MakeReplica = Callable[[ringcast.Node, Seats, Host], ringcast.Replica[str]]


def by_quorum(node: ringcast.Node, seats: Seats, host: Host) -> ringcast.Replica[str]:
    return ringcast.Replica(node.join("tickets"), seats, VOTERS, host.folder / "tickets")


class ShopTest:
    """One world. ``replica`` and ``numbered`` are as they should be, or wrong on purpose."""

    def __init__(
        self,
        world: World,
        protocol: str = "totem",
        replica: MakeReplica = by_quorum,
        numbered: bool = True,
    ) -> None:
        self.world, self.returning = world, protocol in RETURNING
        self._replica, self._numbered = replica, numbered
        self.rng = Random(f"{world.seed}/shop")
        self.judge = Judge()
        self.seats = self.rng.choices((20, 100, 1000), (12, 6, 1))[0]
        self.disks: set[str] = set()
        """Shops whose disk has taken part in a quorum since it was last blank."""
        self.rushes: asyncio.Queue[int] = asyncio.Queue()
        self.late_s = self.rng.uniform(0.5, SPAN_S)
        self.sides: tuple[list[Host], ...] = ()
        self.healed = asyncio.Event()

    # --- programs --------------------------------------------------------------------------

    async def shop(self, node: ringcast.Node, host: Host) -> None:
        seats = Seats(self.judge, host.name)
        async with self._replica(node, seats, host) as replica:

            async def sell(request: Request) -> Any:
                if request.path == "/seats":
                    return await replica.read(lambda machine: dict(machine.sold), ANSWER_S)
                seat, buyer, order = request.body
                body = f"{seat} {buyer} {buyer}/{order}".encode()
                if not self._numbered:
                    return await replica.submit(body, timeout=ANSWER_S)
                return await replica.submit(body, client=buyer, request=order, timeout=ANSWER_S)

            host.serve(sell)
            await replica.ready()
            self.disks.add(host.name)
            await replica.wait()

    async def late(self, host: Host) -> None:
        """A shop that comes later, and has no vote."""
        if host.lives == 1:
            await asyncio.sleep(self.late_s)
        async with host.node() as node:
            await self.shop(node, host)

    async def buy(self, host: Host, seat: int, buyer: str, order: int, rng: Random) -> None:
        """Order until there is an answer, at any shop."""
        while True:
            with suppress(CallFailed):
                shop, asked = rng.choice(self.shops), [seat, buyer, order]
                self.judge.told(seat, await host.call(shop, "/buy", asked, within=PATIENCE_S))
                return
            await asyncio.sleep(0.05 + 0.2 * rng.random())

    async def client(self, host: Host, number: int) -> None:
        """Buys seats, and now and then looks at what is sold."""
        rng = Random(f"{self.world.seed}/client{number}")
        order = 0
        while not self.healed.is_set():
            order += 1
            await self.buy(host, rng.randint(1, self.seats // 2), host.name, order, rng)
            if rng.random() < 0.2:
                await self.look(host, rng.choice(self.shops))
            await asyncio.sleep(rng.random() * 0.3)

    async def rush(self, host: Host) -> None:
        """Many orders at once: what a fault breaks off."""
        rng = Random(f"{self.world.seed}/rush")
        async with asyncio.TaskGroup() as group:
            numbers = itertools.count(1)
            while many := await self.rushes.get():
                for number in itertools.islice(numbers, many):
                    seat = rng.randint(1, self.seats // 2)
                    group.create_task(self.buy(host, seat, f"rush{number}", 0, rng))

    async def look(self, host: Host, shop: Host) -> bool:
        confirmed = set(self.judge.confirmed)
        with suppress(CallFailed):
            self.judge.read(
                shop.name, await host.call(shop, "/seats", within=PATIENCE_S), confirmed
            )
            return True
        return False

    async def last_buyer(self, host: Host) -> None:
        """After healing every seat can be sold, and every shop knows of every sale."""
        rng = Random(0)
        await self.healed.wait()
        for first in range(1, self.seats + 1, 100):
            some = range(first, min(first + 100, self.seats + 1))
            await asyncio.gather(*(self.buy(host, seat, f"last{seat}", 0, rng) for seat in some))
        assert len(self.judge.confirmed) == self.seats
        for shop in self.shops:
            while not await self.look(host, shop):
                host.note(f"looks at {shop.name} again")
                await asyncio.sleep(0.2)

    # --- what is done to them --------------------------------------------------------------

    def part(self, *sides: list[Host]) -> None:
        """Move the cut: none if there is one side."""
        if self.sides:
            self.world.unite(*self.sides)
        self.sides = sides if len(sides) > 1 else ()
        if self.sides:
            self.world.partition(*self.sides)

    def lose_disk(self, shop: Host) -> None:
        """While the other voters have theirs: a majority of the disks survives. One of them may
        not have heard of the last sales, and is left alone with the blank disk."""
        rng = self.rng
        others = [each for each in self.voters if each is not shop]
        if not {each.name for each in others} <= self.disks:
            return
        shop.crash()
        self.disks.discard(shop.name)
        # A node without its state_dir has only the wall clock to tell its lives apart.
        jumps = any(isinstance(fault, Jump) for fault in self.world.plan)
        whole = not jumps and rng.random() < 0.5
        rmtree(shop.folder / ("." if whole else "tickets"), ignore_errors=True)
        shop.note("its disk is lost" if whole else "its replica's folder is lost")
        self.world.sometimes("a disk is lost")
        if rng.random() < 0.7:
            ignorant = next((each for each in others if each in self.alone), rng.choice(others))
            self.part(
                [shop, ignorant], [each for each in self.shops if each not in (shop, ignorant)]
            )

    @property
    def alone(self) -> list[Host]:
        """The side with fewer voters."""
        return min(self.sides, key=lambda side: len(set(side) & set(self.voters)), default=[])

    def mistreat(self) -> None:
        """One fault."""
        rng = self.rng
        mixed = rng.sample(self.shops, len(self.shops))
        kind = rng.random() * (1.0 if self.returning else 0.55)
        if kind < 0.4:
            at = rng.randint(1, len(mixed) - 1)
            self.part(mixed[:at], mixed[at:])
        elif kind < 0.5:
            self.part(mixed)
        elif kind < 0.55 and not self.returning:
            if len(self.disks) >= len(VOTERS):  # a group is founded by all its voters
                self.voters[2].crash()
        elif kind < 0.65:
            mixed[0].crash()
        elif kind < 0.75:
            loss: Loss | None = rng.choice((None, "unsynced"))
            for shop in mixed:
                shop.crash(loss)
            self.world.sometimes("all are killed")
        else:
            self.lose_disk(rng.choice(self.voters))
        for shop in mixed:
            if self.returning and not shop.up and rng.random() < 0.6:
                shop.start()

    async def trouble(self) -> None:
        """Faults that move, each lasting long enough to matter, most of them in a rush."""
        rng, world = self.rng, self.world
        until = SPAN_S if self.returning else SPAN_S / 2
        while world.now < until:
            await world.sleep(rng.choice((0.3, 1.0, 2.0)) * rng.uniform(0.5, 1.5))
            self.rushes.put_nowait(rng.choice((1, 6, 12)))
            await world.sleep(rng.random() * 0.04)
            self.mistreat()
        self.part(self.shops)
        for shop in self.shops:
            if self.returning:
                shop.start()
        self.healed.set()
        self.rushes.put_nowait(0)

    async def run(self) -> None:
        world = self.world
        self.voters = [world.host(f"shop{n}", self.shop, on_error="restart") for n in VOTERS]
        late = world.host(f"shop{LATE}", self.late, on_error="restart")
        self.shops = [*self.voters, late]
        clients = [world.host(f"client{n}", self.client, n, steady=True) for n in range(4)]
        clients.append(world.host("rush", self.rush, steady=True))
        last = world.host("last", self.last_buyer, steady=True)
        world.always(self.judge.no_seat_twice_and_no_sale_lost)
        await self.trouble()
        if not self.returning:
            self.shops = [shop for shop in self.shops if shop.up]
        world.sometimes(
            "a sale is confirmed while things go wrong", lambda: bool(self.judge.confirmed)
        )
        await world.until(lambda: last.done, within=120, what="every seat can be sold")
        await world.until(lambda: all(each.done for each in clients), within=60)


def settings_of(protocol: str) -> dict[str, Any]:
    """Of every shop's node."""
    return {"protocol": protocol, "peers": PEERS}


def one(seed: int, protocol: str, **wrong: Any) -> Outcome:
    """What comes of a seed over a protocol."""

    async def test(world: World) -> None:
        await ShopTest(world, protocol, **wrong).run()

    settings = settings_of(protocol)
    return run(test, RunSetup(seed=seed, faults=FAULTS, span=SPAN_S, settings=settings))
