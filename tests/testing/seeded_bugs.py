"""Small programs with a bug that only faults or an unlucky order show, and the same without it.

Each is a test that takes a world and whether the program is broken. ``python bench/simulated.py
catalogue`` measures how many seeds show each bug.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

import ringcast
from ringcast.testing import CallFailed, Host, Request, Swarm, World
from ringcast.testing.run import Faults, Outcome, RunSetup, run

Program = Callable[[World, bool], Coroutine[Any, Any, None]]


class SeededBug(msgspec.Struct):
    """A program, the faults it is run under, and a seed that shows the bug."""

    test: Program
    faults: Faults
    span: float
    shown_by: int

    def run(self, seed: int, broken: bool) -> Outcome:
        """One seed of one of the two."""

        async def test(world: World) -> None:
            await self.test(world, broken)

        return run(test, RunSetup(seed=seed, faults=self.faults, span=self.span))


CATALOGUE: dict[str, SeededBug] = {}


def seeded(
    shown_by: int, faults: Faults = "swarm", span: float = 5.0
) -> Callable[[Program], Program]:
    """Put a program into the catalogue."""

    def take(test: Program) -> Program:
        CATALOGUE[test.__name__] = SeededBug(test, faults, span, shown_by)
        return test

    return take


async def persistent_call(host: Host, target: str, path: str, body: Any = None) -> Any:
    """Ask until there is an answer."""
    while True:
        try:
            return await host.call(target, path, body, within=1.0)
        except CallFailed:
            await asyncio.sleep(0.1)


@seeded(1)
async def check_then_act(world: World, broken: bool) -> None:
    """A shop looks whether a seat is free, asks the bank, and sells: another buyer came between."""
    sold: list[tuple[int, str]] = []

    async def shop(host: Host) -> None:
        lock = asyncio.Lock()

        async def sell(seat: int, buyer: str) -> bool:
            if any(taken == seat for taken, _ in sold):
                return False
            await asyncio.to_thread(lambda: "the bank says yes")
            sold.append((seat, buyer))
            return True

        async def answer(request: Request) -> bool:
            if broken:
                return await sell(request.body, request.caller)
            async with lock:
                return await sell(request.body, request.caller)

        host.serve(answer)
        await asyncio.Event().wait()

    async def buyer(host: Host) -> None:
        for seat in range(5):
            await persistent_call(host, "shop", "/buy", seat)
            await asyncio.sleep(0.2)

    world.host("shop", shop, steady=True)
    buyers = [world.host(f"buyer{n}", buyer) for n in range(3)]
    world.always(
        lambda: max(Counter(seat for seat, _ in sold).values(), default=0) <= 1, "sold once"
    )
    await world.until(lambda: all(each.done for each in buyers), within=120)


LEASE_S = 1.0


@seeded(56, Swarm(kinds=("pause", "cut", "drift")))
async def lock_without_fencing(world: World, broken: bool) -> None:
    """Who holds a lock writes; it may have stood still since, and somebody else holds the lock."""
    written: list[int] = []

    async def locks(host: Host) -> None:
        free_at, token = 0.0, 0

        async def acquire(request: Request) -> int:
            nonlocal free_at, token
            now = time.monotonic()
            if now < free_at:
                return 0
            free_at, token = now + LEASE_S, token + 1
            return token

        host.serve(acquire)
        await asyncio.Event().wait()

    async def store(host: Host) -> None:
        async def write(request: Request) -> bool:
            if not broken and written and request.body < written[-1]:
                return False
            written.append(request.body)
            return True

        host.serve(write)
        await asyncio.Event().wait()

    async def worker(host: Host) -> None:
        for _ in range(10):
            if token := await persistent_call(host, "locks", "/acquire"):
                began = time.monotonic()
                while time.monotonic() - began < LEASE_S / 2:
                    await persistent_call(host, "store", "/write", token)
                    await asyncio.sleep(0.1)
            await asyncio.sleep(0.3)

    world.host("locks", locks, steady=True)
    world.host("store", store, steady=True)
    workers = [world.host(f"worker{n}", worker) for n in range(2)]
    world.always(lambda: written == sorted(written), "tokens ascend")
    await world.until(lambda: all(each.done for each in workers), within=200)


@seeded(9, Swarm(kinds=("crash", "pause")), span=3.0)
async def acknowledged_before_safe(world: World, broken: bool) -> None:
    """A member says that an order is taken when it has seen it itself; then it dies, alone."""
    taken: set[bytes] = set()
    seen: dict[str, set[bytes]] = {}
    missed: set[str] = set()

    async def shop(node: ringcast.Node, host: Host) -> None:
        mine = seen[host.name] = set()
        async with node.join("orders") as group:

            async def read() -> None:
                together = False
                async for event in group:
                    match event:
                        case ringcast.View(members=members, transitional=transitional):
                            together = len(members) == 3 and not transitional
                        case ringcast.Message(sender=sender, body=body):
                            mine.add(body)
                            if sender == group.me and together:
                                taken.add(body)
                        case ringcast.EventsLost():
                            missed.add(host.name)

            reading = asyncio.create_task(read())
            number = 0
            while world.now < 6:
                number += 1
                order = f"{host.name}/{host.lives}/{number}".encode()
                with suppress(ringcast.DeliveryUncertain):
                    await group.send(order, ringcast.AGREED if broken else ringcast.SAFE)
                await asyncio.sleep(0.05)
            await asyncio.sleep(10)
            reading.cancel()

    shops = [world.host(f"shop{n}", shop) for n in range(3)]
    await world.sleep(9)
    lived = [each.name for each in shops if each.lives == 1 and each.name not in missed]
    for name in lived:
        unknown = sorted(taken - seen[name])
        assert not unknown, f"{name} lived on and does not know of {unknown[0]!r}"


@seeded(0)
async def retry_forgotten(world: World, broken: bool) -> None:
    """A client asks again because no answer came; the server does it again."""
    paid: list[int] = []

    async def bank(host: Host) -> None:
        answers: dict[int, str] = {}

        async def pay(request: Request) -> str:
            if broken or request.body not in answers:
                paid.append(request.body)
                answers[request.body] = f"receipt {len(paid)}"
            return answers.get(request.body, "done")

        host.serve(pay)
        await asyncio.Event().wait()

    async def client(host: Host) -> None:
        for number in range(20):
            await persistent_call(host, "bank", "/pay", number)
            await asyncio.sleep(0.2)

    world.host("bank", bank, steady=True)
    paying = world.host("client", client, steady=True)
    world.always(lambda: len(paid) == len(set(paid)), "paid once")
    await world.until(lambda: paying.done, within=200)


@seeded(15)
async def timeout_taken_for_a_no(world: World, broken: bool) -> None:
    """A client that gets no answer orders elsewhere; the first order was carried out, though."""
    delivered: Counter[str] = Counter()

    async def supplier(host: Host) -> None:
        seen: set[str] = set()

        async def order(request: Request) -> bool:
            if request.path == "/cancel":
                seen.add(request.body)  # also one that has not come yet
                delivered[request.body] = 0
            elif request.body not in seen:
                seen.add(request.body)
                delivered[request.body] += 1
            return True

        host.serve(order)
        await asyncio.Event().wait()

    async def client(host: Host) -> None:
        for number in range(20):
            part = f"part {number}"
            try:
                await host.call("first", "/order", f"{part} of first", within=0.5)
            except CallFailed:
                if not broken:
                    await persistent_call(host, "first", "/cancel", f"{part} of first")
                await persistent_call(host, "second", "/order", f"{part} of second")
            await asyncio.sleep(0.2)

    def each_part_once() -> None:
        parts = Counter(name.partition(" of ")[0] for name, n in delivered.items() if n)
        assert max(parts.values(), default=0) <= 1, f"{parts.most_common(1)} came twice"

    world.host("first", supplier, steady=True)
    world.host("second", supplier, steady=True)
    ordering = world.host("client", client, steady=True)
    if broken:
        world.always(each_part_once)
    await world.until(lambda: ordering.done, within=300)
    each_part_once()


@seeded(4, Swarm(kinds=("jump", "drift", "pause")))
async def clock_trusted(world: World, broken: bool) -> None:
    """The write with the latest time wins; clocks differ, and a later write is thrown away."""

    async def store(host: Host) -> None:
        value, version = "", 0.0

        async def answer(request: Request) -> Any:
            nonlocal value, version
            if request.path == "/read":
                return value, version
            new, at = request.body
            if at > version:
                value, version = new, at
            return True

        host.serve(answer)
        await asyncio.Event().wait()

    async def taking_turns(host: Host) -> None:
        turns = {0} if host.name == "writer0" else set()

        async def answer(request: Request) -> bool:
            turns.add(request.body)  # it may be told twice
            return True

        host.serve(answer)
        for number in range(10):
            while number not in turns:  # noqa: ASYNC110  # as a user might write it
                await asyncio.sleep(0.02)
            mine = f"{host.name}/{number}"
            at = time.time()
            if not broken:
                at = (await persistent_call(host, "store", "/read"))[1] + 1
            await persistent_call(host, "store", "/write", (mine, at))
            now, _ = await persistent_call(host, "store", "/read")
            assert now == mine, f"{mine} was written, {now!r} is read"
            turn = number + 1 if host.name == "writer1" else number
            await persistent_call(host, other[host.name], "/turn", turn)

    other = {"writer0": "writer1", "writer1": "writer0"}
    world.host("store", store, steady=True)
    writers = [world.host(name, taking_turns) for name in other]
    await world.until(lambda: writers[0].done, within=200)


def save(path: Path, data: bytes) -> None:
    """A file that is there after a crash, whole."""
    beside = path.with_suffix(".new")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


@seeded(0, Swarm(kinds=("crash", "pause")))
async def not_synced(world: World, broken: bool) -> None:
    """A counter is written to its file, and answered; the power fails before it is on the disk."""

    async def counter(host: Host) -> None:
        path = host.folder / "count"
        count = int(path.read_bytes() or b"0") if path.exists() else 0

        async def add(request: Request) -> int:
            nonlocal count
            count += 1
            if broken:
                path.write_bytes(b"%d" % count)
            else:
                save(path, b"%d" % count)
            return count

        host.serve(add)
        await asyncio.Event().wait()

    async def client(host: Host) -> None:
        last = 0
        for _ in range(20):
            count = await persistent_call(host, "counter", "/add")
            assert count > last, f"{count} after {last}"
            last = count
            await asyncio.sleep(0.2)

    world.host("counter", counter)
    counting = world.host("client", client, steady=True)
    await world.until(lambda: counting.done, within=200)


@seeded(7, Swarm(kinds=("crash",)))
async def torn_end_trusted(world: World, broken: bool) -> None:
    """The last line of a log is believed, although a crash may have cut it off."""

    async def ledger(host: Host) -> None:
        path = host.folder / "log"
        text = path.read_text() if path.exists() else ""
        lines = text.split("\n")
        if not broken:
            lines = lines[:-1]  # what has no end is no line
            save(path, "".join(f"{each}\n" for each in lines).encode())
        amounts = [int(each) for each in lines if each]
        assert all(each >= 1000 for each in amounts), f"{amounts} in the log"
        with path.open("ab") as file:
            while True:
                file.write(b"%d\n" % (1000 + len(amounts)))
                file.flush()
                amounts.append(1000)
                await asyncio.sleep(0.05)
                os.fsync(file.fileno())
                await asyncio.sleep(0.05)

    world.host("ledger", ledger)
    await world.sleep(10)


@seeded(34, Swarm(kinds=("cut", "pause", "drift")))
async def lease_from_the_answer(world: World, broken: bool) -> None:
    """A lease is counted from when the answer came; it began when the question was answered."""
    holder: list[tuple[str, float]] = [("", 0.0)]
    acts: list[tuple[str, str]] = []

    async def leases(host: Host) -> None:
        async def answer(request: Request) -> bool:
            name, until = holder[0]
            now = world.now
            if now < until and name != request.caller:
                return False
            holder[0] = (request.caller, now + LEASE_S)
            return True

        host.serve(answer)
        await asyncio.Event().wait()

    async def worker(host: Host) -> None:
        for _ in range(8):
            asked = time.monotonic()
            if await persistent_call(host, "leases", "/lease"):
                began = time.monotonic() if broken else asked
                ends = began + LEASE_S * (1.0 if broken else 0.9)
                while time.monotonic() < ends:
                    acts.append((host.name, holder[0][0]))
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)

    def only_the_holder_acts() -> None:
        who, has = acts[-1] if acts else ("", "")
        assert who == has, f"{who} acts, and {has} has the lease"

    world.host("leases", leases, steady=True)
    workers = [world.host(f"worker{n}", worker) for n in range(2)]
    world.always(only_the_holder_acts)
    await world.until(lambda: all(each.done for each in workers), within=200)


@seeded(245, Swarm(kinds=("crash", "pause")), span=3.0)
async def outbox_sent_twice(world: World, broken: bool) -> None:
    """What waits in a file to be sent is sent again after a crash, and had been sent before."""
    applied: dict[str, Counter[bytes]] = {}

    async def member(node: ringcast.Node, host: Host) -> None:
        mine = applied[host.name] = Counter()
        outbox = host.folder / "outbox"
        body = outbox.read_bytes() if outbox.exists() else b""
        number = 0
        async with node.join("counter") as group:

            async def read() -> None:
                async for event in group:
                    if isinstance(event, ringcast.Message) and (broken or not mine[event.body]):
                        mine[event.body] += 1

            reading = asyncio.create_task(read())
            while body or number < 30:
                if not body:
                    number += 1
                    body = f"{host.name}/{host.lives}/{number}".encode()
                    save(outbox, body)
                with suppress(ringcast.DeliveryUncertain):
                    await group.send(body)
                    save(outbox, b"")
                    body = b""
                await asyncio.sleep(0.05)
            reading.cancel()

    def once() -> None:
        for name, counts in applied.items():
            for body, times in counts.items():
                assert times == 1, f"{name} applied {body.decode()} twice"

    members = [world.host(f"member{n}", member) for n in range(3)]
    await world.until(lambda: all(each.done for each in members), within=100)
    once()


@seeded(0, None)
async def wake_up_lost(world: World, broken: bool) -> None:
    """A reader looks whether there is something, and begins to wait; it came in between."""

    async def program() -> None:
        items: list[int] = []
        waiting: list[asyncio.Future[None]] = []
        loop = asyncio.get_running_loop()

        async def take() -> int:
            while not items:
                if broken:
                    await asyncio.to_thread(lambda: "write down that we wait")
                waiting.append(loop.create_future())
                await waiting[-1]
            return items.pop(0)

        async def put(number: int) -> None:
            await asyncio.to_thread(lambda: "think")
            items.append(number)
            for each in waiting:
                each.set_result(None)
            waiting.clear()

        for number in range(3):
            await asyncio.gather(put(number), take())

    host = world.host("one", program)
    await world.until(lambda: host.done, within=60)


@seeded(19, Swarm(kinds=("crash",)))
async def served_before_recovery(world: World, broken: bool) -> None:
    """A server that starts again answers before it has read its file."""

    async def counter(host: Host) -> None:
        path = host.folder / "count"
        count = 0

        async def answer(request: Request) -> int:
            nonlocal count
            if request.path == "/add":
                count += 1
                save(path, b"%d" % count)
            return count

        if broken:
            host.serve(answer)
        stored = await asyncio.to_thread(lambda: path.read_bytes() if path.exists() else b"0")
        count = max(count, int(stored))
        host.serve(answer)
        await asyncio.Event().wait()

    async def client(host: Host) -> None:
        last = 0
        for _ in range(60):
            count = await persistent_call(host, "counter", "/add" if last < 3 else "/read")
            assert count >= last, f"{count} after {last}"
            last = count
            await asyncio.sleep(0.05)

    world.host("counter", counter)
    reading = world.host("client", client, steady=True)
    await world.until(lambda: reading.done, within=200)


@seeded(0)
async def datagrams_in_order(world: World, broken: bool) -> None:
    """The last datagram is taken for the newest."""
    shown: list[int] = []

    async def display() -> None:
        class Show(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, place: Any) -> None:
                number = int(data)
                if broken or not shown or number > shown[-1]:
                    shown.append(number)

        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(Show, ("0.0.0.0", 7))
        await asyncio.Event().wait()

    async def sensor(host: Host) -> None:
        class Send(asyncio.DatagramProtocol):
            pass

        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            Send, remote_addr=(world["display"].address, 7)
        )
        for number in range(100):
            transport.sendto(b"%d" % number)
            await asyncio.sleep(0.02)

    world.host("display", display, steady=True)
    measuring = world.host("sensor", sensor, steady=True)
    world.always(lambda: shown == sorted(set(shown)), "time does not go back")
    await world.until(lambda: measuring.done, within=60)
