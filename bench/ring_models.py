"""One small ring, written twice: as a machine for our simulator, and as SimPy processes.

A token goes round ``nodes`` processors. Whoever has it broadcasts ``burst`` frames to all others
and passes it on. Each frame to each receiver is lost or delayed at random; tokens are delayed
only. Every arrival sets a watchdog anew, and receivers add up what they get. Both versions draw
from the same stream in the same order, so they must report the very same ``Outcome``.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import StrEnum
from random import Random
from typing import Any, ClassVar

import msgspec
import simpy

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Leaving, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Discard, Machine, Table
from ringcast.core.registry import Sheet
from ringcast.core.settings import GroupSettings
from ringcast.sim.cluster import Cluster
from ringcast.sim.model import Exponential, LinkModel, NetworkModel

WATCHDOG_US = 100_000
BASE_US, TAIL_US, MOST_US = 80, 20, 2_000


class Model(GroupSettings, frozen=True):
    """The size of the experiment."""

    nodes: int = 5
    burst: int = 10
    loss: float = 0.01
    visits: int = 4_000
    """Visits of the token after which it is not passed on any more."""

    @property
    def frame_budget(self) -> int:
        """All of a packet."""
        return self.max_packet


class Outcome(msgspec.Struct, frozen=True):
    """What both versions must agree on."""

    received: int
    """Frames handed to processors, tokens included."""
    total: int
    """Sum of the numbers received."""
    ended_us: int
    """When the token came to rest."""
    expired: int
    """Watchdogs that ran out, one for each processor, at the end."""


# --- for our simulator ----------------------------------------------------------------------


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A broadcast frame."""

    number: int


class Token(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """The token, with the number of the visit."""

    visit: int


class Phase(StrEnum):
    """A light machine has one."""

    UP = "up"


class Clock(StrEnum):
    """Its timers."""

    WATCHDOG = "watchdog"


class Light(Machine):
    """One processor of the model."""

    table: ClassVar[Table]

    def __init__(self, me: NodeId, model: Model) -> None:
        super().__init__()
        self.phase = Phase.UP
        self.me = me
        self.model = model
        self.received = self.total = self.ended_us = self.expired = 0

    def start(self, env: Env, event: Started) -> None:
        """The first processor makes the token."""
        env.set_timer(Clock.WATCHDOG, WATCHDOG_US)
        if self.me == 1:
            self.visit(env, 1)

    def visit(self, env: Env, visit: int) -> None:
        """Broadcast, and pass the token on."""
        if visit > self.model.visits:
            self.ended_us = env.now_us
            return
        first = visit * self.model.burst
        for number in range(first, first + self.model.burst):
            env.broadcast(Frame(number))
        env.send(self.me % self.model.nodes + 1, Token(visit + 1))

    def on_frame(self, env: Env, event: Received) -> None:
        """Count."""
        env.set_timer(Clock.WATCHDOG, WATCHDOG_US)
        self.received += 1
        self.total += event.message.number  # type: ignore[attr-defined]

    def on_token(self, env: Env, event: Received) -> None:
        """My turn."""
        env.set_timer(Clock.WATCHDOG, WATCHDOG_US)
        self.received += 1
        self.visit(env, event.message.visit)  # type: ignore[attr-defined]

    def on_watchdog(self, env: Env, event: TimerFired) -> None:
        """Nothing came for a long time."""
        self.expired += 1

    def admit(self, env: Env, event: Received) -> bool:
        """All frames are fine."""
        return True

    @property
    def ready(self) -> bool:
        """There is no application."""
        return False

    def snapshot(self) -> dict[str, object]:
        """What was counted."""
        return {"received": self.received}


Light.table = Table(
    Phase,
    (Frame, Token),
    Clock,
    {
        (Phase.UP, Leaving): Discard("bench", "nobody leaves"),
        (Phase.UP, Submitted): Discard("bench", "there is no application"),
        (Phase.UP, Frame): Light.on_frame,
        (Phase.UP, Token): Light.on_token,
        (Phase.UP, Clock.WATCHDOG): Light.on_watchdog,
    },
)

SHEET = Sheet(
    "light", "bench", Model, Light, lambda config: (), {}, (Frame, Token), lambda config, n: 0
)


def run_ringcast(model: Model) -> Outcome:
    """The model in our simulator."""
    delay = Exponential(BASE_US, TAIL_US, MOST_US)
    network = NetworkModel(link=LinkModel(delay=delay, loss=model.loss))
    cluster = Cluster(SHEET, model, range(1, model.nodes + 1), network)
    cluster.start()
    while cluster.scheduler.heap:
        cluster.run_for(1_000_000)
    machines = [cluster.machine(node) for node in cluster.ids]
    return outcome([machine for machine in machines if isinstance(machine, Light)])


# --- for SimPy ------------------------------------------------------------------------------


class Station:
    """One processor of the model, written as SimPy's documentation writes such things: waiting
    for a frame *or* a timeout, and one process for each frame on its way."""

    def __init__(self, env: simpy.Environment, me: int, model: Model, rng: Random) -> None:
        self.env: Any = env
        self.me = me
        self.model = model
        self.rng = rng
        self.inbox: Any = simpy.Store(env)
        self.peers: list[Any] = []
        self.received = self.total = self.ended_us = self.expired = 0
        env.process(self.receive())

    def receive(self) -> Generator[Any, Any, None]:
        """Take what arrives, until nothing comes for a long time."""
        while True:
            arrival = self.inbox.get()
            yield arrival | self.env.timeout(WATCHDOG_US)
            if not arrival.triggered:
                break
            kind, number = arrival.value
            self.take(kind, number)
        self.expired += 1

    def take(self, kind: Any, number: Any) -> None:
        """A frame or the token is here."""
        self.received += 1
        if kind is Token:
            self.visit(number)
        else:
            self.total += number

    def visit(self, visit: int) -> None:
        """Broadcast, and pass the token on."""
        if visit > self.model.visits:
            self.ended_us = self.env.now
            return
        first = visit * self.model.burst
        for number in range(first, first + self.model.burst):
            frame = (Frame, number)
            for peer in self.peers:
                if peer is not self and self.rng.random() >= self.model.loss:
                    self.carry(peer, frame, self.delay_us())
        successor = self.peers[self.me % self.model.nodes]
        self.carry(successor, (Token, visit + 1), self.delay_us())

    def delay_us(self) -> int:
        """Time on the way."""
        return min(BASE_US + int(self.rng.expovariate(1.0 / TAIL_US)), MOST_US)

    def carry(self, peer: Any, frame: tuple[type, int], delay_us: int) -> None:
        """Put a frame on its way."""
        self.env.process(self.travel(peer, frame, delay_us))

    def travel(
        self, peer: Any, frame: tuple[type, int], delay_us: int
    ) -> Generator[Any, Any, None]:
        """The way of one frame."""
        yield self.env.timeout(delay_us)
        peer.inbox.put(frame)


class TunedStation(Station):
    """The same by somebody who knows SimPy's costs: a frame is a timeout with a callback, and
    one watchdog moves its deadline and sleeps on, as our simulator's timers do."""

    def __init__(self, env: simpy.Environment, me: int, model: Model, rng: Random) -> None:
        super().__init__(env, me, model, rng)
        self.deadline_us = WATCHDOG_US
        env.process(self.watch())

    def receive(self) -> Generator[Any, Any, None]:
        """Take what arrives."""
        while True:
            kind, number = yield self.inbox.get()
            self.deadline_us = self.env.now + WATCHDOG_US
            self.take(kind, number)

    def watch(self) -> Generator[Any, Any, None]:
        """Notice when nothing came for a long time."""
        while self.deadline_us > self.env.now:
            yield self.env.timeout(self.deadline_us - self.env.now)
        self.expired += 1

    def carry(self, peer: Any, frame: tuple[type, int], delay_us: int) -> None:
        """Let the timeout put the frame into the inbox."""
        self.env.timeout(delay_us, frame).callbacks.append(peer.arrive)

    def arrive(self, event: simpy.Event) -> None:
        """The frame is there."""
        self.inbox.put(event.value)


def run_simpy(model: Model, station: type[Station] = Station) -> Outcome:
    """The model in SimPy."""
    env = simpy.Environment()
    rng = Random("0/network")
    stations = [station(env, me, model, rng) for me in range(1, model.nodes + 1)]
    for each in stations:
        each.peers = stations
    stations[0].visit(1)
    env.run()
    return outcome(stations)


def outcome(processors: list[Light] | list[Station]) -> Outcome:
    """The sums over all processors."""
    return Outcome(
        received=sum(p.received for p in processors),
        total=sum(p.total for p in processors),
        ended_us=max(p.ended_us for p in processors),
        expired=sum(p.expired for p in processors),
    )
