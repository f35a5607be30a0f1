"""Who is elected runs the job: it campaigns, works while it leads, and campaigns again."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress

import ringcast
from ringcast.testing import Cut, Host, Swarm, World, simtest
from ringcast.testing.run import RunSetup, run


class Ledger:
    """What the job writes to: it refuses terms smaller than the largest it has seen."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, int]] = []
        """Member and term."""

    @property
    def term(self) -> int:
        return self.lines[-1][1] if self.lines else 0

    def write(self, member: int, term: int) -> None:
        assert term >= self.term, "the fence holds"
        self.lines.append((member, term))


async def worker(node: ringcast.Node, host: Host, world: World, ledger: Ledger) -> None:
    group = node.join("job")
    folder = host.folder / "job"
    async with ringcast.Election(group, members=3, dir=folder, timeout=2) as election:

        async def job(term: int) -> None:
            while term >= ledger.term:
                ledger.write(group.me, term)
                await asyncio.sleep(0.1)

        while True:
            with suppress(ringcast.NoQuorum):
                term = await election.campaign()
                working = asyncio.create_task(job(term))
                await election.lost(term)
                working.cancel()


async def one_works_at_a_time(world: World) -> None:
    ledger = Ledger()
    hosts = [world.host(f"job{n}", worker, ledger) for n in (1, 2, 3)]
    world.always(lambda: len(set(ledger.lines)) == len({term for _, term in ledger.lines}))
    await world.until(lambda: world.now > 6 and all(host.up for host in hosts), within=60)
    lines = len(ledger.lines)
    await world.until(lambda: len(ledger.lines) > lines + 5, within=60)
    leader, term = ledger.lines[-1]
    hosts[leader - 1].crash()
    await world.until(lambda: ledger.term > term, within=60)


def test_somebody_leads_whatever_happened_before() -> None:
    simtest(seeds=6, faults=Swarm(kinds=("cut", "partition", "pause")), span=5.0)(
        one_works_at_a_time
    )()


async def apart_one_after_the_other(world: World) -> None:
    """Members 2 and 3 wait in the line, and each is cut off for a moment. Then the first one goes:
    nobody was in the line any more, and nobody ever led."""
    await one_works_at_a_time(world)


def test_who_was_lost_for_a_moment_still_waits() -> None:
    others = {"job2": ("job1", "job3"), "job3": ("job1", "job2")}
    faults = tuple(
        Cut(at=at, lasts=1.5, source=source, target=target)
        for at, host in ((2.0, "job2"), (4.0, "job3"))
        for other in others[host]
        for source, target in ((host, other), (other, host))
    )
    simtest(seeds=3, faults=faults)(apart_one_after_the_other)()


def test_a_run_does_not_know_the_run_before() -> None:
    """``tempfile`` keeps its source of names, and asks for another in a new process alone: the
    first world gave it one, and the next world had drawn one number less."""

    async def writer(host: Host) -> None:
        (host.folder / "file").write_text("x")

    async def draws(world: World) -> None:
        host = world.host("one", writer)
        await world.until(lambda: host.done, within=1)
        world.record("test", str(world.chance.getrandbits(64)))

    tempfile.TemporaryDirectory().cleanup()
    runs = [run(draws, RunSetup(seed=14)) for _ in range(3)]
    assert runs[0].events == runs[1].events == runs[2].events
