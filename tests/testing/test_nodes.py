"""Node, Group, Replica and the journal as they are, on simulated hosts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import pytest

import ringcast
from ringcast.testing import Host, Swarm, World, simtest
from ringcast.testing.run import RunSetup, run

SEEDS = 12
"""In the suite; ``--simtest-seeds 200`` runs more."""

PROTOCOLS = {
    "totem": "swarm",
    "total": Swarm(kinds=("crash", "pause", "cut", "drift")),
    "token-fd": Swarm(kinds=("pause", "drift")),
}
"""What each can live with: the members of token-fd are fixed, and who crashed stays away."""


def one_order(seen: dict[str, list[tuple[Any, bytes]]]) -> None:
    """At a position is one message, and everybody goes through positions in their order."""
    at: dict[Any, bytes] = {}
    for who, messages in seen.items():
        for position, body in messages:
            assert at.setdefault(position, body) == body, f"{who}: {body!r} at {position}"
        positions = [position for position, _ in messages]
        assert positions == sorted(positions), f"{who} saw an earlier position later"


async def talk(node: ringcast.Node, host: Host) -> None:
    mine: list[tuple[Any, bytes]] = []
    host.seen[f"{host.name}/{host.lives}"] = mine  # type: ignore[attr-defined]
    async with node.join("talk") as group:

        async def read() -> None:
            async for event in group:
                if isinstance(event, ringcast.Message):
                    mine.append((event.position, event.body))

        reading = asyncio.create_task(read())
        number = 0
        while number < 15:
            body = f"{host.name}/{host.lives}/{number}".encode()
            heard = False
            with suppress(ringcast.DeliveryUncertain):
                await group.send(body, ringcast.SAFE if number % 3 else ringcast.AGREED)
                heard = True
            number += heard or number < 14  # the others wait for the last one
            await asyncio.sleep(0.1)
        await host.world.until(lambda: all_done(host.world), within=200)
        reading.cancel()


def all_done(world: World) -> bool:
    """Everybody that is up has heard itself say its last word."""
    return all(
        any(body.endswith(b"/14") for _, body in host.seen.get(f"{host.name}/{host.lives}", ()))  # type: ignore[attr-defined]
        for host in world.hosts
    )


async def members_agree(world: World) -> None:
    seen: dict[str, list[tuple[Any, bytes]]] = {}
    for number in range(3):
        world.host(f"member{number}", talk).seen = seen  # type: ignore[attr-defined]
    await world.until(lambda: all_done(world), within=200)
    one_order(seen)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_agrees_on_one_order(protocol: str) -> None:
    faults: Any = PROTOCOLS[protocol]
    test = simtest(seeds=SEEDS, faults=faults, span=5.0, settings={"protocol": protocol})
    test(members_agree)()


def test_the_check_sees_two_orders() -> None:
    one = [((1, 1), b"a"), ((1, 2), b"b")]
    one_order({"x": one, "y": one[1:]})
    with pytest.raises(AssertionError, match="b'b' at"):
        one_order({"x": one, "y": [((1, 1), b"b")]})
    with pytest.raises(AssertionError, match="earlier position later"):
        one_order({"x": one[::-1]})


class Tally(ringcast.StateMachine[int]):
    """Counts votes."""

    def __init__(self) -> None:
        self.votes: dict[str, int] = {}

    def apply(self, command: ringcast.Message) -> int:
        name = command.body.decode()
        self.votes[name] = self.votes.get(name, 0) + 1
        return self.votes[name]

    def snapshot(self) -> bytes:
        return msgspec.json.encode(self.votes)

    def restore(self, state: bytes) -> None:
        self.votes = msgspec.json.decode(state, type=dict[str, int])


async def vote(node: ringcast.Node, host: Host) -> None:
    host.tally = tally = Tally()  # type: ignore[attr-defined]
    folder = host.folder / "votes"
    async with ringcast.Replica(node.join("votes"), tally, 3, folder) as replica:
        for number in range(10):
            with suppress(ringcast.DeliveryUncertain, ringcast.ResultLost):
                await replica.submit(f"choice {number % 3}".encode())
            await asyncio.sleep(0.2)
        await asyncio.Event().wait()


async def replicas_agree(world: World) -> None:
    hosts = [world.host(f"voter{number}", vote) for number in range(3)]

    def same() -> bool:
        tallies = [host.tally.votes for host in hosts]  # type: ignore[attr-defined]
        return bool(tallies[0]) and tallies[0] == tallies[1] == tallies[2]

    await world.sleep(12)
    await world.until(same, within=60)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_replicas_agree_when_the_faults_are_over(protocol: str) -> None:
    faults: Any = PROTOCOLS[protocol]
    test = simtest(seeds=SEEDS, faults=faults, span=5.0, settings={"protocol": protocol})
    test(replicas_agree)()


async def keep(host: Host) -> None:
    """Sends what must be on disk when it is acknowledged."""
    async with (
        host.node(journal=True, journal_patience_s=2.0) as node,
        node.join("kept") as group,
    ):

        async def read() -> None:
            async for _ in group:
                pass

        reading = asyncio.create_task(read())
        for number in range(15):
            body = f"{host.name}/{host.lives}/{number}".encode()
            with suppress(ringcast.DeliveryUncertain):
                await group.send(body, durable=True)
                host.kept.append(body)  # type: ignore[attr-defined]
            await asyncio.sleep(0.1)
        reading.cancel()
    files = sorted((host.folder / "journal").rglob("*"))  # also what waits for those who know more
    host.journal = b"".join(path.read_bytes() for path in files if path.is_file())  # type: ignore[attr-defined]


@simtest(seeds=SEEDS, faults=Swarm(kinds=("crash", "pause")), span=3.0)
async def test_what_was_acknowledged_as_durable_is_on_the_disk(world: World) -> None:
    keepers = [world.host(f"keeper{number}", keep) for number in range(3)]
    for host in keepers:
        host.kept = []  # type: ignore[attr-defined]
    await world.until(lambda: all(host.done for host in keepers), within=200)
    world.sometimes("a member with a journal was restarted", lambda: world.restarts > 0)
    for host in keepers:
        missing = [body for body in host.kept if body not in host.journal]  # type: ignore[attr-defined]
        assert not missing, f"{host.name} kept {missing[0]!r}, and its journal does not have it"


def test_a_member_that_is_paused_is_external_and_keeps_its_place() -> None:
    """iRBP: no view tells of it; ``group.external`` does, until it is back in the ring."""

    async def stay(node: ringcast.Node, host: Host) -> None:
        async with node.join("talk") as group:
            host.group = group  # type: ignore[attr-defined]
            host.views = []  # type: ignore[attr-defined]
            async for event in group:
                if isinstance(event, ringcast.View):
                    host.views.append(event.members)  # type: ignore[attr-defined]

    async def run(world: World) -> None:
        hosts: list[Any] = [world.host(f"member{number}", stay) for number in range(3)]
        whole = (1, 2, 3)
        await world.until(
            lambda: all(getattr(host, "views", []) and host.views[-1] == whole for host in hosts),
            within=10,
        )
        before = [len(host.views) for host in hosts]
        hosts[2].pause()
        await world.until(lambda: hosts[0].group.external == (3,), within=1)
        await hosts[0].group.send(b"without it")
        hosts[2].resume()
        await world.until(lambda: all(host.group.external == () for host in hosts), within=10)
        assert [len(host.views) for host in hosts] == before, "nobody saw a change"

    simtest(seeds=3, settings={"protocol": "irbp"})(run)()


@pytest.mark.parametrize("seed", range(4))
def test_a_node_of_a_host_does_as_one_that_a_program_opens(seed: int) -> None:
    """A program's own node runs on what replaces sockets and clocks, a host's past them: the same
    frames leave both at the same times, whatever drifts, stands still or crashes."""

    def frames(of_host: bool) -> list[Any]:
        async def member(host: Host) -> None:
            opened = host.node() if of_host else ringcast.Node.open(host.settings())
            async with opened as node, node.join("talk") as group:
                while True:
                    with suppress(ringcast.DeliveryUncertain):
                        await group.send(host.name.encode())
                    await asyncio.sleep(0.3)

        async def test(world: World) -> None:
            for number in range(3):
                world.host(f"member{number}", member)
            await world.sleep(8)

        outcome = run(test, RunSetup(seed=seed, faults="swarm", span=6.0))
        assert outcome.error is None
        return [event for event in outcome.events if len(event) == 5]

    found = frames(of_host=True)
    assert len(found) > 100
    assert found == frames(of_host=False)
