"""What does one frame cost the Totem machine itself, without simulator, network and trace?

A machine is taken out of a formed ring of five and fed by hand, in processor microseconds:
a frame received and delivered, a visit of the token that sends ten frames, and the same with
twenty messages of 64 bytes packed into each. Beside it the same of a multiple-ring machine, of
which the ring is the only one.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from random import Random
from time import process_time

import msgspec
from record import spread, table, write

import ringcast.protocols  # noqa: F401  (makes the protocols known by name)
from ringcast.blocks.packing import Contents
from ringcast.core.effects import Broadcast, Deliver, Send
from ringcast.core.env import Env
from ringcast.core.ids import Level
from ringcast.core.inputs import Received, Submitted
from ringcast.core.machine import Machine
from ringcast.core.registry import protocol
from ringcast.protocols.totem_multi import TotemMulti
from ringcast.protocols.totem_multi.clock import TokenRide
from ringcast.protocols.totem_multi.messages import Sort
from ringcast.protocols.totem_single import TotemSingle
from ringcast.protocols.totem_single.messages import Regular, Stamp, Token
from ringcast.sim.cluster import Cluster
from ringcast.sim.presets import preset

BURST = 10
"""Frames of one visit."""


class Bench:
    """The second of five processors, in Operational, and the world around it."""

    protocol = "totem"

    def __init__(self) -> None:
        sheet = protocol(self.protocol)
        config = msgspec.structs.replace(sheet.profiles["lan"], adaptive=False)
        cluster = Cluster(sheet, config, range(1, 6), preset("ideal"))
        cluster.start()
        cluster.run_until(1_000_000)
        self.machine = cluster.machine(2)
        self.single = single = self.ring_of(self.machine)
        assert len(single.my_memb) == 5
        self.env = Env(2, Random("bench"))
        self.ring = single.my_ring_id
        self.boot = single.old.boots[1]
        self.seq = single.old.my_aru

    def ring_of(self, machine: Machine) -> TotemSingle:
        """The ring of the machine."""
        assert isinstance(machine, TotemSingle)
        return machine

    def stamp(self, seq: int) -> Stamp:
        """What a frame of another processor carries besides."""
        return None

    def ride(self) -> bytes | None:
        """What its token carries besides."""
        return None

    def receive(self, bodies: tuple[bytes, ...]) -> float:
        """A burst of another processor arrives, then the token, which lets it be released."""
        frames = [
            Received(
                1,
                self.boot,
                Regular(1, self.ring, seq, Level.AGREED, Contents(seq, bodies), self.stamp(seq)),
            )
            for seq in range(self.seq + 1, self.seq + BURST + 1)
        ]
        self.seq += BURST
        took = self.tell(frames, {Deliver: BURST})
        self.token(0)
        return took

    def visit(self, bodies: tuple[bytes, ...]) -> float:
        """The token comes, and there is something to send."""
        for _ in range(BURST):
            self.machine.handle(self.env, Submitted(bodies))
        self.env.take()
        took = self.token(BURST)
        self.seq += BURST
        self.token(0)
        self.token(0)
        return took

    def token(self, frames: int) -> float:
        """One visit of the token; it must send so many frames."""
        held, seq = self.single.token, self.seq
        ride = self.ride()
        token = Token(self.ring, held.my_token_seq, seq, seq, None, (), 0, False, ride=ride)
        took = self.tell([Received(1, self.boot, token)], {Send: 1, Broadcast: frames})
        held.idle_visits = 0  # never rest
        return took

    def tell(self, events: list[Received], wanted: dict[type, int]) -> float:
        """Seconds the machine took; what it did is checked outside of the measurement."""
        machine, env = self.machine, self.env
        effects = []
        began_s = process_time()
        for event in events:
            machine.handle(env, event)
            effects += env.take()
        took = process_time() - began_s
        done = Counter(map(type, effects))
        assert all(done[kind] == count for kind, count in wanted.items()), effects
        return took


class JoinedBench(Bench):
    """The same of a network of one ring."""

    protocol = "totem-multi"

    def ring_of(self, machine: Machine) -> TotemSingle:
        """The only one."""
        assert isinstance(machine, TotemMulti)
        (port,) = machine.ports.values()
        self.clock = machine.clock
        return port.part.machine

    def stamp(self, seq: int) -> Stamp:
        """Its timestamp, which is above all that came before."""
        return Sort.AGREED, self.clock.my_timestamp + seq - self.seq + BURST, seq

    def ride(self) -> bytes | None:
        """The clock."""
        return msgspec.msgpack.encode(TokenRide(self.clock.my_timestamp))


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    asked = parser.parse_args()
    large, small = (bytes(1000),), (bytes(64),) * 20
    cases: dict[str, tuple[Callable[[tuple[bytes, ...]], float], tuple[bytes, ...]]] = {}
    for bench, where in ((Bench(), ""), (JoinedBench(), ", multiple-ring")):
        cases |= {
            f"receive and deliver a frame, 1000 B{where}": (bench.receive, large),
            f"receive and deliver a frame, 20 x 64 B{where}": (bench.receive, small),
            f"send a frame (visits of ten), 1000 B{where}": (bench.visit, large),
            f"send a frame (visits of ten), 20 x 64 B{where}": (bench.visit, small),
        }
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(asked.repeats):
        for name, (act, bodies) in cases.items():
            found[name].append(sum(act(bodies) for _ in range(500)) / 500 / BURST * 1e6)
    shown = []
    for name, values in found.items():
        us = spread(values)
        messages = len(cases[name][1])
        shown.append(
            (name, f"{us['median']:.2f}", f"{us['least']:.2f}-{us['most']:.2f}",
             f"{1e6 * messages / us['median']:,.0f}")
        )  # fmt: skip
    print(table(("the Totem machine alone", "us a frame", "spread", "messages/s"), shown))
    file = write("machine", {"us_per_frame": {n: spread(v) for n, v in found.items()}})
    print(f"\nwritten to {file.parent.name}/{file.name}")


if __name__ == "__main__":
    main()
