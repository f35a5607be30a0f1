"""Whoever reads gets everything that is delivered where it is, however rings break: what ``send``
has confirmed is read by its sender, and nothing is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import ringcast
from ringcast.testing import Crash, Host, Swarm, World, simtest

PROTOCOLS = ("totem", "total", "counter", "rbp", "irbp", "totem-multi")
"""Those whose members come back."""

SECONDS = 8.0


class Reader:
    """A life of a member."""

    def __init__(self) -> None:
        self.confirmed: list[bytes] = []
        self.read: set[bytes] = set()
        self.lost = 0
        self.quiet = False

    def missing(self) -> list[bytes]:
        return [body for body in self.confirmed if body not in self.read]

    async def reading(self, group: ringcast.Group) -> None:
        async for event in group:
            if isinstance(event, ringcast.Message):
                self.read.add(event.body)
            elif isinstance(event, ringcast.EventsLost):
                self.lost += event.count


async def member(node: ringcast.Node, host: Host, lives: dict[str, Reader]) -> None:
    """Three senders at once, so that something is always under way."""
    mine = lives[host.name] = Reader()
    async with node.join("g") as group:
        reading = asyncio.create_task(mine.reading(group))

        async def send(sender: int) -> None:
            for number in range(10_000):
                if host.world.now > SECONDS:
                    return
                body = f"{host.name}/{host.lives}/{sender}/{number}".encode()
                with suppress(ringcast.DeliveryUncertain):
                    await group.send(body, ringcast.SAFE if number % 2 else ringcast.AGREED)
                    mine.confirmed.append(body)
                await asyncio.sleep(0.01)

        await asyncio.gather(*(send(sender) for sender in range(3)))
        mine.quiet = True
        await asyncio.Event().wait()
        reading.cancel()


@simtest(
    seeds=1,
    faults=(Crash(at=2.95, lasts=2.0, host="member2"),),
    settings={"settings": {"max_packet": 60_000}},
)
async def test_a_backlog_is_no_reason_to_be_left_aside(world: World) -> None:
    """The word of one that sends much came behind all that its machine had taken; what it had sent
    itself was too much to wait for that, and it lost that, and its groups."""

    lives = {f"member{number}": Reader() for number in range(3)}

    async def sender(node: ringcast.Node, host: Host) -> None:
        mine = lives[host.name]
        async with node.join("g") as group:
            reading = asyncio.create_task(mine.reading(group))
            if host.name == "member0":
                await node.wait_for_ring(3)
                await asyncio.sleep(2.9 - host.world.now)
                bodies = [number.to_bytes(2) + bytes(2**20) for number in range(120)]
                await asyncio.gather(*map(group.send, bodies))
                mine.confirmed += bodies
            await asyncio.Event().wait()
            reading.cancel()

    for name in lives:
        world.host(name, sender)
    first, second, _ = lives.values()
    await world.until(lambda: bool(first.confirmed), within=60)
    await world.until(lambda: len(second.read) == 120, within=10)
    assert not first.missing() and not first.lost


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_confirmed_is_read(protocol: str) -> None:
    """A ring that broke before all had said which groups they are in lost messages to its readers,
    in every protocol."""

    @simtest(
        seeds=6,
        faults=Swarm(kinds=("crash", "pause", "cut", "partition"), most=8),
        span=SECONDS,
        settings={"protocol": protocol},
    )
    async def reads(world: World) -> None:
        lives: dict[str, Reader] = {}
        hosts = [
            world.host(f"member{number}", member, lives, on_error="restart")  # rbp, irbp: too few
            for number in range(5)
        ]
        await world.sleep(SECONDS)
        await world.until(
            lambda: all(host.up and lives[host.name].quiet for host in hosts), within=120
        )
        await world.sleep(2)
        for name, each in lives.items():
            assert not each.lost, f"{name} lost {each.lost}"
            assert not (missing := each.missing()), f"{name} did not read {missing[:3]}"
        world.sometimes("a member comes back", lambda: world.restarts > 0)

    reads()
