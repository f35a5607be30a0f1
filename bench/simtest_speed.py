"""How many seeds a second: three members of a ticket shop, a hundred clients, ten seconds, faults.

python bench/simtest_speed.py [SEEDS] [--against CHECKOUT]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import perf_counter, process_time

from record import spread, write

import ringcast
from ringcast.testing import CallFailed, Host, Request, World
from ringcast.testing.run import RunSetup, run

CLIENTS, SEATS, SECONDS = 100, 200, 10.0
ROUNDS = 3


class Seats(ringcast.StateMachine[str]):
    """Who has which seat."""

    def __init__(self) -> None:
        self.sold: dict[str, str] = {}

    def apply(self, command: ringcast.Message) -> str:
        seat, buyer = command.body.decode().split()
        return self.sold.setdefault(seat, buyer)

    def snapshot(self) -> bytes:
        return " ".join(f"{seat} {buyer}" for seat, buyer in self.sold.items()).encode()

    def restore(self, state: bytes) -> None:
        words = state.decode().split()
        self.sold = dict(zip(words[::2], words[1::2], strict=True))


async def shop(node: ringcast.Node, host: Host) -> None:
    """Sells seats to who asks first."""
    seats = Seats()
    async with ringcast.Replica(node.join("seats"), seats, 3, host.folder / "seats") as replica:

        async def sell(request: Request) -> str:
            return await replica.submit(f"{request.body} {request.caller}".encode())

        host.serve(sell)
        await asyncio.Event().wait()


async def client(host: Host, number: int) -> int:
    """Buys two seats, at the shop nearby."""
    bought = 0
    for turn in range(2):
        await asyncio.sleep(0.5 + 4 * turn + number * 0.04)
        with suppress(CallFailed):
            seat = (number * 7 + turn) % SEATS
            owner = await host.call(f"shop{number % 3}", "/buy", seat, within=2.0)
            bought += owner == host.name
    return bought


async def test(world: World) -> None:
    for number in range(3):
        world.host(f"shop{number}", shop)
    for number in range(CLIENTS):
        world.host(f"client{number}", client, number, steady=True)
    await world.sleep(SECONDS)


def measure(seeds: int) -> None:
    """Run them, and say how fast."""
    run(test, RunSetup(seed=0, faults="swarm", span=8.0))
    began_s, began_cpu_s = perf_counter(), process_time()
    bought = datagrams = 0
    for seed in range(seeds):
        outcome = run(test, RunSetup(seed=seed, faults="swarm", span=8.0))
        assert outcome.error is None, outcome.error
        datagrams += sum(len(event) == 5 for event in outcome.events)
        bought += sum("hears of" in str(event[2]) for event in outcome.events)
    wall_s, cpu_s = perf_counter() - began_s, process_time() - began_cpu_s
    print(
        f"{seeds} seeds: {seeds / cpu_s:.2f} a second of CPU ({seeds / wall_s:.2f} by the clock); "
        f"a seed has {datagrams / seeds:.0f} datagrams and {bought / seeds:.0f} answered requests"
    )


def beside(other: Path, seeds: int) -> None:
    """Rounds of this checkout and another in turn; the record has the ratio of each."""
    rounds: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        found = {}
        for name, place in (("before", other.resolve()), ("after", Path(__file__).parents[1])):
            told = subprocess.run(
                [sys.executable, str(place / "bench" / Path(__file__).name), str(seeds)],
                env={**os.environ, "PYTHONPATH": str(place / "src")},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            found[name] = float(told.partition("seeds: ")[2].split()[0])
            print(f"{name}: {told}", end="", flush=True)
        rounds.append(found)
    ratio = spread([each["after"] / each["before"] for each in rounds])
    load = os.getloadavg()[1]
    print(
        ratio,
        write("simtest-speed", {"seeds": seeds, "load": load, "rounds": rounds, "ratio": ratio}),
    )


def main() -> None:
    """One measurement, or several beside another checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=50)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    asked = parser.parse_args()
    if asked.against:
        beside(asked.against, asked.seeds)
    else:
        measure(asked.seeds)


if __name__ == "__main__":
    main()
