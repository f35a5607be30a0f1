"""Linearizability of the replicated objects on simulated hosts, under faults."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from random import Random
from typing import Any

import pytest
from shared_objects import Clients, Objects
from ticket_shop import RETURNING

import ringcast
from ringcast.api.quorum import QuorumCopy
from ringcast.testing import CallFailed, Host, NotLinearizable, Request, Swarm, World, simtest
from ringcast.testing.run import Outcome, RunSetup, run

SEEDS = 2
"""In the suite; ``bench/simulated.py programs`` runs 200 over each protocol."""

MEMBERS = (1, 2, 3)
FAULTS = Swarm(kinds=("crash", "pause", "cut", "partition"), most=5)
SPAN_S = 5.0
START_S = 0.5
"""Before that nobody answers, and what has no outcome makes a history easier to explain."""


async def member(node: ringcast.Node, host: Host) -> None:
    async with AsyncExitStack() as stack:
        objects = Objects(node, host.folder)
        await objects.open(stack)

        async def answer(request: Request) -> Any:
            return await objects.do(*request.body)

        host.serve(answer)
        await asyncio.Event().wait()


async def objects_under_faults(world: World) -> None:
    clients = Clients(lambda: world.now)

    async def ask(host: Host, who: str, at: int, kind: str, name: str, args: list[Any]) -> None:
        operation = clients.begin(who, at, kind, name, args)
        with suppress(CallFailed):
            result = await host.call(f"member{at}", "/do", [kind, name, args], within=2.5)
            clients.end(kind, operation, result)

    async def reader(host: Host, number: int) -> None:
        rng = Random(f"{world.seed}/{number}")
        await asyncio.sleep(START_S)
        for turn in range(24):
            asked = clients.ask(rng, 1000 * number + turn)
            await ask(host, host.name, rng.choice(MEMBERS), *asked)
            await asyncio.sleep(rng.random() * 0.3)

    async def holder(host: Host, at: int) -> None:
        """The lock is a member's: one client for each."""
        rng = Random(f"{world.seed}/holder{at}")
        await asyncio.sleep(START_S)
        for _ in range(10):
            for name in ("acquire", "holder", "release"):
                await ask(host, f"m{at}", at, "lock", name, [])
                await asyncio.sleep(rng.random() * 0.2)

    for number in MEMBERS:
        world.host(f"member{number}", member, on_error="restart")
    hosts = [world.host(f"client{n}", reader, n, steady=True) for n in range(3)]
    hosts += [world.host(f"holder{n}", holder, n, steady=True) for n in MEMBERS]
    await world.until(lambda: all(host.done for host in hosts), within=200)
    for event in world.events:  # a lock is free when its holder is not in a view, or starts anew
        if len(event) == 3 and event[2].startswith("sees the ring"):
            for at in MEMBERS:
                if f"member{at}" not in event[2]:
                    clients.lost(at, event[0] / 1e6)
        elif len(event) == 3 and event[2].startswith("crashes") and event[1][:-1] == "member":
            clients.lost(int(event[1][-1]), event[0] / 1e6)
    clients.check()
    for kind in clients.histories:
        world.sometimes(f"{kind}: ten answers", lambda k=kind: clients.answered(k) >= 10)  # type: ignore[misc]


@pytest.mark.parametrize("protocol", RETURNING)
def test_the_objects_are_linearizable(protocol: str) -> None:
    settings = {"protocol": protocol}
    simtest(seeds=SEEDS, faults=FAULTS, span=SPAN_S, settings=settings)(objects_under_faults)()


def one(seed: int, protocol: str) -> Outcome:
    """What comes of a seed over a protocol."""
    setup = RunSetup(seed=seed, faults=FAULTS, span=SPAN_S, settings={"protocol": protocol})
    return run(objects_under_faults, setup)


def test_reads_of_the_local_copy_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the checker must refuse: a read that asks nobody."""

    async def read(self: Any, look: Any, timeout: float | None) -> Any:
        return look(self._applied.machine)

    monkeypatch.setattr(QuorumCopy, "read", read)
    errors = (one(seed, "totem").error for seed in (9, *range(50)))
    assert isinstance(next(filter(None, errors), None), NotLinearizable)
