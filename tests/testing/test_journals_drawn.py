"""Journals of nodes that crash, part and lose their disks: compared when all is well again."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import suppress
from random import Random
from typing import Any

import pytest

import ringcast
from ringcast.journal import check
from ringcast.journal.merged_reader import whole
from ringcast.testing import CallFailed, Host, Request, World, simtest

pytest.importorskip("pandas")  # pyarrow loads it late, where simulated dates would confuse it

SEEDS = 3
"""In the suite; ``--simtest-seeds 100`` runs more."""

LOSSES: Any = ("unsynced", "torn", "nothing")
PROTOCOLS = ("totem", "total", "counter", "rbp", "irbp", "totem-multi")


class Keepers:
    """Three nodes with journals that send durably, a writer that publishes, and what each was
    told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = Random(f"{world.seed}/keepers")
        self.hosts = [world.host(f"keeper{n}", self.keep, on_error="restart") for n in (1, 2, 3)]
        self.writer = world.host("writer", self.write, steady=True)
        self.disks = {host.name: 0 for host in self.hosts}
        """How many journals each has lost."""
        self.kept: dict[bytes, tuple[str, int]] = {}
        """What was acknowledged as durable, by whom, and on which disk."""
        self.confirmed: list[tuple[int, int, tuple[str, int]]] = []
        """Batches with their numbers of rows, and whose journal has them."""
        self.over = self.written = False
        self._sides: tuple[list[Host], ...] = ()

    async def keep(self, host: Host) -> None:
        """A node; it sends until the run is over."""
        mine = (host.name, self.disks[host.name])
        async with host.node(journal=True, journal_patience_s=5.0) as node, node.join("g") as group:

            async def send(body: bytes, level: ringcast.Level) -> None:
                await group.send(body, level, durable=True)
                self.kept[body] = mine

            async def answer(request: Request) -> Any:
                match request.path:
                    case "/ring":
                        return list(node.ring)
                    case "/caught-up":
                        return await node.caught_up()
                    case "/send":
                        return await send(request.body, ringcast.AGREED)
                batch, count = request.body
                await node.publish("g", "w", batch, 0, rows(batch, count))
                return mine

            async def read() -> None:
                async for _ in group:
                    pass

            host.serve(answer)
            reading = asyncio.create_task(read())
            number = 0
            while not self.over:
                with suppress(ringcast.DeliveryUncertain):
                    level = ringcast.AGREED if number % 3 else ringcast.SAFE
                    await send(f"{host.name}/{host.lives}/{number}".encode(), level)
                number += 1
                await asyncio.sleep(host.world.chance.random() * 0.2)
            await reading

    async def write(self) -> None:
        """Publishes a batch after the other, each until somebody confirms it."""
        batch = 0
        while not self.over:
            count, within = self.rng.randint(1, 4), self.rng.choice((0.05, 0.5, 2.0))
            name, disk = await self.ask("/publish", [batch, count], *self.hosts, within=within)
            self.confirmed.append((batch, count, (name, disk)))
            batch += 1
            await asyncio.sleep(self.rng.random() * 0.3)
        self.written = True
        await asyncio.Event().wait()

    async def ask(self, path: str, body: Any, *hosts: Host, within: float = 2.0) -> Any:
        """Until one of these answers."""

        async def asking() -> Any:
            while True:
                with suppress(CallFailed):
                    return await self.writer.call(self.rng.choice(hosts), path, body, within=within)
                await asyncio.sleep(0.05)

        return await self.writer.spawn(asking())

    # --- what goes wrong -------------------------------------------------------------------

    def fault(self) -> None:
        """Something happens; only one of them ever loses its journal."""
        hosts, rng = self.hosts, self.rng
        host = rng.choice(hosts)
        match rng.choice(("crash", "crash", "start", "part", "heal", "all", "lose")):
            case "crash":
                host.crash(rng.choice(LOSSES))
            case "start":
                for each in rng.sample(hosts, 2):
                    each.start()
            case "part":
                mixed, cut = rng.sample(hosts, 3), rng.randint(1, 2)
                self.part(mixed[:cut], mixed[cut:])
            case "heal":
                self.part()
            case "all":
                for each in hosts:
                    each.crash(rng.choice(LOSSES))
                for each in hosts:
                    each.start()
            case _ if not sum(self.disks.values()):
                self.lose(host)

    def part(self, *sides: list[Host]) -> None:
        """From now on hosts hear their own side only; without sides, each other."""
        self.world.unite(*self._sides)
        self._sides = sides
        self.world.partition(*sides)

    def lose(self, host: Host) -> None:
        """The disk with its journal is gone, for good."""
        host.crash("nothing")
        host.note("its journal is lost")
        self.disks[host.name] += 1
        shutil.rmtree(host.folder / "journal", ignore_errors=True)
        folder = os.open(host.folder, os.O_RDONLY)
        self.world.disk.sync(folder, host.name)
        os.close(folder)

    async def heal(self) -> None:
        """All run, hear each other and catch up; then the last words."""
        self.part()
        for host in self.hosts:
            host.start()
        await self.world.sleep(2)
        for host in self.hosts:
            while await self.ask("/ring", None, host) != [1, 2, 3]:
                await self.world.sleep(0.1)
        for host in self.hosts:
            await self.ask("/caught-up", None, host, within=40.0)
        self.over = True
        await self.world.until(lambda: self.written, what="the writer ends")
        for host in self.hosts:
            await self.ask("/send", b"end " + host.name.encode(), host)
        await self.world.sleep(1)  # records that nobody waits for are written now and then

    # --- what must be true -----------------------------------------------------------------

    def judge(self) -> None:
        """Journals are sound, agree, and have what their nodes said that they have."""
        folders = [host.folder / "journal" for host in self.hosts]
        for folder in folders:
            *_, report = check.examine(folder)
            assert report.findings == []
        assert [*check.compare(folders), *check.holes(folders)] == []
        bodies = {host.name: self.bodies(host) for host in self.hosts}
        for body, (name, disk) in self.kept.items():
            assert disk < self.disks[name] or body in bodies[name], f"{name} lost {body!r}"
        for batch, count, (name, disk) in self.confirmed:
            lost = {*rows(batch, count)} - bodies[name]
            assert disk < self.disks[name] or not lost, f"{name} confirmed {lost} and lacks them"

    def bodies(self, host: Host) -> set[bytes]:
        """What a journal has."""
        parts = whole([host.folder / "journal"])
        return {body for part in parts for body in part.column("body").to_pylist()}


def rows(batch: int, count: int) -> tuple[bytes, ...]:
    """Of a batch."""
    return tuple(b"row %d/%d" % (batch, number) for number in range(count))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_journals_are_sound_and_agree_whatever_happened(protocol: str) -> None:
    async def story(world: World) -> None:
        keepers = Keepers(world)
        await world.sleep(1.5)
        for _ in range(keepers.rng.randint(3, 6)):
            await world.sleep(keepers.rng.choice((0.05, 0.3, 1.5)) * keepers.rng.random())
            keepers.fault()
        await keepers.heal()
        keepers.judge()
        world.sometimes("a node with a journal was restarted", lambda: world.restarts > 0)

    peers = [f"{number}@10.0.0.{number}:5400" for number in (1, 2, 3)]
    simtest(seeds=SEEDS, settings={"protocol": protocol, "peers": peers}, shrink_runs=0)(story)()
