"""Every example as it is, on simulated hosts, under faults.

An example is a program for a terminal: what is typed comes from the test, what it prints goes into
the story, and its settings are those of its host.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

import ringcast
from ringcast.testing import Host, Swarm, World, simtest
from ringcast.testing.process import PROCESS

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

PROTOCOLS = ("totem", "total", "counter", "irbp", "totem-multi", "rbp")
"""Whose members come back after a crash. Seeds take them in turn."""

SEEDS = 2 * len(PROTOCOLS)
"""In the suite; ``bench/simulated.py programs`` runs 200 over each protocol."""

CALM_S = 25.0
"""When all faults are over and every member has the state of the others."""


def here() -> Host:
    """The host whose program runs."""
    process = PROCESS.get()
    assert process is not None
    return process.host


class Place:
    """Where examples keep their folders: on the host that runs."""

    def __truediv__(self, name: str) -> Path:
        return here().folder / name


def settings(me: int, most: int = 3) -> dict[str, Any]:
    """Of the node of an example; no more than three take part here."""
    host = here()
    peers = [f"{each.number}@{each.address}:5400" for each in host.world.hosts[:3]]
    return host.settings(peers=peers, protocol=PROTOCOLS[host.world.seed % len(PROTOCOLS)])


@contextmanager
def typed(name: str, words: dict[float, str]) -> Iterator[ModuleType]:
    """An example to which ``words`` are typed on every host, each at its time."""
    module = import_module(name)

    async def lines() -> AsyncIterator[str]:
        host = here()
        for at, text in words.items():
            if (wait := at - host.world.now) > 0:
                await asyncio.sleep(wait)
            elif at < CALM_S:
                continue  # before this life of the host
            yield text.replace("ME", str(host.number))

    def spoken(*texts: Any, **_: Any) -> None:
        text = " ".join(map(str, texts))
        here().said.append((here().lives, text))  # type: ignore[attr-defined]
        here().note(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "settings", settings, raising=False)
        patch.setattr(module, "PLACE", Place(), raising=False)
        patch.setattr(module, "lines", lines, raising=False)
        patch.setattr(module, "print", spoken, raising=False)
        assert builtins.print is not spoken
        yield module


def members(world: World, module: ModuleType) -> list[Host]:
    hosts = []
    for number in (1, 2, 3):
        host = world.host(f"member{number}", module.main, number, on_error="restart")
        host.said = []  # type: ignore[attr-defined]
        hosts.append(host)
    return hosts


def last(host: Host, start: str = "") -> str:
    """The last thing a host said."""
    said: list[tuple[int, str]] = host.said  # type: ignore[attr-defined]
    return next((text for _, text in reversed(said) if text.startswith(start)), "")


FAULTS = Swarm(kinds=("crash", "pause", "cut", "partition"), most=3)
swarm = simtest(seeds=SEEDS, faults=FAULTS, span=5.0)


@swarm
async def test_chat(world: World) -> None:
    """Lines that two members both saw, they saw in one order."""
    words = {0.5 + 0.4 * n: f"line {n} of ME" for n in range(12)} | {CALM_S + 5: "bye"}
    with typed("chat", words) as module:
        hosts = members(world, module)
        await world.sleep(CALM_S)
        seen = [
            [text for when, text in host.said if text.startswith("<") and when == life]  # type: ignore[attr-defined]
            for host in hosts
            for life in range(1, host.lives + 1)
        ]
        for one in seen:
            for other in seen:
                both = set(one) & set(other)
                assert [x for x in one if x in both] == [x for x in other if x in both]
        world.sometimes("all twelve lines of a member are seen", lambda: max(map(len, seen)) >= 12)


@swarm
async def test_replicated_dict(world: World) -> None:
    """When the faults are over, all have the same dict; nobody's is empty."""
    words = {0.5 + 0.3 * n: f"set key{n % 4} ME-{n}" for n in range(15)}
    words |= {CALM_S: "all", CALM_S + 5: "all"}
    with typed("replicated_dict", words) as module:
        hosts = members(world, module)
        await world.sleep(CALM_S + 1)
        tables = [json.loads(last(host, "{") or "null") for host in hosts]
        assert tables[0], "the first one has nothing"
        assert tables[1:] == tables[:-1]


@swarm
async def test_whiteboard(world: World) -> None:
    """When the faults are over, all have the same picture."""
    words = {0.5 + 0.3 * n: f"draw {3 * n} {n} {n + 2} ME" for n in range(15)}
    words |= {CALM_S: "show", CALM_S + 5: "show"}
    with typed("whiteboard", words) as module:
        hosts = members(world, module)
        await world.sleep(CALM_S + 1)
        boards = {last(host) for host in hosts}
        assert len(boards) == 1, boards
        assert len(next(iter(boards)).splitlines()) == module.HEIGHT


@swarm
async def test_lock(world: World) -> None:
    """A token is given to one member, and tokens grow at each."""
    words = {0.5 + 0.3 * n: ("acquire", "release")[n % 2] for n in range(16)}
    with typed("lock", words | {CALM_S + 5: "release"}) as module:
        hosts = members(world, module)
        await world.sleep(CALM_S)
        holders: dict[str, int] = {}
        for host in hosts:
            for _, text in host.said:  # type: ignore[attr-defined]
                if text.startswith("held by "):
                    who, _, token = text.removeprefix("held by ").partition(", token ")
                    holder = host.number if who == "me" else int(who)
                    assert holders.setdefault(token, holder) == holder, f"{token} was given twice"
        world.sometimes("all three held it", lambda: set(holders.values()) == {1, 2, 3})


@swarm
async def test_leader(world: World) -> None:
    """In a term all that know a leader know the same one."""
    with typed("leader", {CALM_S: "who", CALM_S + 5: "who"}) as module:
        hosts = members(world, module)
        await world.sleep(CALM_S + 1)
        leaders: dict[str, str] = {}
        for host in hosts:
            for _, text in host.said:  # type: ignore[attr-defined]
                who, found, term = text.partition(", term ")
                if found:
                    who = str(host.number) if who == "I lead" else who.removeprefix("leader ")
                    assert leaders.setdefault(term, who) == who, f"term {term}"
        assert last(hosts[0], "leader ")
        assert {last(host, "leader ") for host in hosts} == {last(hosts[0], "leader ")}


SEATS = 12


async def persistently(host: Host, shop: Callable[[], Host], asked: str) -> tuple[int, Any]:
    """What the HTTP face of a shop says, or of another; asked until it is an answer."""
    while True:
        with suppress(OSError, TimeoutError, ValueError, IndexError):
            one = shop()
            async with asyncio.timeout(3.0):
                reader, writer = await asyncio.open_connection(one.name, 5410 + one.number)
                with closing(writer):
                    writer.write(f"{asked} HTTP/1.1\r\n\r\n".encode())
                    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            if (status := int(head.split()[1])) != 503:
                return status, json.loads(body)
        await asyncio.sleep(0.2)


@swarm
async def test_tickets(world: World) -> None:
    """A seat has one buyer, for ever; and when the faults are over every seat can be sold."""
    buyers: dict[str, str] = {}

    async def buy(host: Host, seat: int, client: str, request: int, rng: Random) -> None:
        """Order until there is an answer, at any shop."""
        order = f"POST /buy?seat={seat}&client={client}&request={request}"
        status, sold = await persistently(host, lambda: rng.choice(shops), order)
        assert buyers.setdefault(str(seat), sold["buyer"]) == sold["buyer"], f"{seat} is sold twice"
        assert status == (200 if sold["buyer"] == client else 409), status

    async def customer(host: Host, number: int) -> None:
        rng = Random(f"{world.seed}/{number}")
        for request in range(6):
            await asyncio.sleep(rng.random())
            await buy(host, rng.randint(1, SEATS // 2), host.name, request, rng)

    async def last_customer(host: Host) -> None:
        await asyncio.sleep(CALM_S)
        for seat in range(1, SEATS + 1):
            await buy(host, seat, host.name, seat, Random(seat))
        for shop in shops:
            _, sold = await persistently(host, lambda shop=shop: shop, "GET /seats")  # type: ignore[misc]
            assert sold == buyers, f"{shop.name} has forgotten a sale"

    with typed("tickets", {1000.0: "bye"}) as module, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FACE", "0.0.0.0")
        patch.setattr(module, "SEATS", SEATS)
        shops = members(world, module)
        clients = [world.host(f"client{n}", customer, n, steady=True) for n in range(3)]
        clients.append(world.host("last", last_customer, steady=True))
        await world.until(lambda: all(client.done for client in clients), within=150)
        world.sometimes("a shop was restarted", lambda: world.restarts > 0)


@swarm
async def test_cache_invalidation(world: World) -> None:
    """When the faults are over, what a cache says is what the store says."""
    words = {0.5 + 0.3 * n: f"put key{n % 3} ME-{n}" for n in range(10)}
    words |= {0.6 + 0.3 * n: f"get key{n % 3}" for n in range(10)}
    words |= {CALM_S + n / 10: f"get key{n}" for n in range(3)} | {CALM_S + 5: "get key0"}
    with typed("cache_invalidation", dict(sorted(words.items()))) as module:
        store = world.disk.folder("store")
        vars(module)["STORE"] = store
        hosts = members(world, module)
        await world.sleep(CALM_S + 1)
        for host in hosts:
            for path in store.iterdir():
                said = last(host, f"{path.name} = ")
                assert said.startswith(f"{path.name} = {path.read_text()} "), said


@pytest.mark.parametrize("name", ["lock", "leader", "tickets"])
def test_a_program_ends_with_its_node(name: str) -> None:
    """Two of three crash, so the node of the third one stops, and is started again with its
    program: one waited for its user, one raised in a callback, one called it a fault of its own."""
    outcome = globals()[f"test_{name}"].simtest.one(45)
    assert outcome.error is None


def test_a_group_that_was_parted_twice_goes_on() -> None:
    """Over rbp, with hops of 8 ms: a member that was suspected once was never waited for (F6)."""
    assert test_whiteboard.simtest.one(491).error is None  # type: ignore[attr-defined]


def test_orders() -> None:
    """Without faults, which this one is not made for: all have the same stock at the end."""

    async def test(world: World) -> None:
        with typed("orders", {}) as module, pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "ORDERS", 20)
            folder = world.disk.folder("shop")
            hosts = [world.host(f"m{n}", module.member, n, folder) for n in (1, 2, 3)]
            await world.until(lambda: all(host.done for host in hosts), within=100)
            shelves = [host.result["shelves"] for host in hosts]
            assert shelves[0] == shelves[1] == shelves[2]
            assert any(left != (module.STOCK, 0) for left in shelves[0].values())

    simtest(seeds=3)(test)()


def test_every_example_is_here() -> None:
    not_simulated = {"local", "orders_spark"}  # a helper, a Spark job
    names = {path.stem for path in EXAMPLES.glob("*.py")} - not_simulated
    assert names == {name.removeprefix("test_") for name in globals() if name[5:] in names}
    assert ringcast.__version__
