"""A protocol small enough to see through: everybody delivers what arrives, as it arrives.

It is there to exercise the simulator. It orders nothing, and it can be told to misbehave.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec

from ringcast.core.effects import InstallView, PackedMessages
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.inputs import Leaving, Received, Started, Submitted
from ringcast.core.machine import Machine, Table
from ringcast.core.registry import Sheet, register
from ringcast.core.settings import ListedSettings

VIEW = ViewId(1, 1)


class Phase(StrEnum):
    UP = "up"


class Clock(StrEnum):
    BEAT = "beat"
    ALARM = "alarm"


class Flood(msgspec.Struct, frozen=True, array_like=True, tag=1):
    sender: NodeId
    number: int
    body: bytes

    def wire_bytes(self) -> int:
        return 20 + len(self.body)


class Nudge(msgspec.Struct, frozen=True, array_like=True, tag=2):
    count: int


class Config(ListedSettings, frozen=True, kw_only=True):
    group: int = 3
    beat_us: int = 0
    """How often to send a Nudge to the next processor and a heartbeat write; 0 is never."""
    raise_at: int = 0
    """Raise when message number so-and-so of anybody arrives."""
    stop_at: int = 0
    """Stop, as for a broken invariant, when message number so-and-so arrives."""
    behind: tuple[NodeId, ...] = ()
    """Processors that stop in their first lives, so many, at the first frame: they fell behind."""
    lives: int = 1
    echo: tuple[NodeId, ...] = ()
    """Processors that answer every Nudge with another one."""

    @property
    def frame_budget(self) -> int:
        return self.max_packet

    def least_part(self, n: int) -> int:
        return 1

    @property
    def faults(self) -> int:
        return 1


class Toy(Machine):
    """Keeps a log of what it was told, for tests to read."""

    table: ClassVar[Table]

    def __init__(self, node: NodeId, config: Config) -> None:
        super().__init__()
        self.phase = Phase.UP
        self.node = node
        self.config = config
        self.number = 0
        self.started: Started | None = None
        self.log: list[tuple[int, str]] = []

    def start(self, env: Env, event: Started) -> None:
        self.started = event
        env.persist("starts", event.stable.get("starts", 0) + 1)
        members = tuple(range(1, self.config.group + 1))
        env.install_view(InstallView(VIEW, members, False, VIEW, 0, None))
        if self.config.beat_us:
            env.set_timer(Clock.BEAT, self.config.beat_us)

    def admit(self, env: Env, event: Received) -> bool:
        return event.src != self.node

    @property
    def ready(self) -> bool:
        return True

    def snapshot(self) -> dict[str, object]:
        return {"number": self.number}

    def on_submitted(self, env: Env, event: Submitted) -> None:
        for body in event.bodies:
            self.number += 1
            batch = self.batch(self.node, self.number, body)
            env.originate(batch)
            env.broadcast(Flood(self.node, self.number, body))
            env.deliver(VIEW, batch)

    def on_flood(self, env: Env, event: Received) -> None:
        flood = event.message
        assert isinstance(flood, Flood)
        self.log.append((env.now_us, f"flood {flood.sender}:{flood.number}"))
        if flood.number == self.config.raise_at:
            raise RuntimeError("the toy broke")
        if flood.number == self.config.stop_at:
            env.stop("broken invariant: the toy was told to")
            return
        assert self.started is not None
        before = self.started.stable.get("starts", 0)
        if self.node in self.config.behind and before < self.config.lives:
            env.stop("fell behind: the toy was told to")
            return
        env.deliver(VIEW, self.batch(flood.sender, flood.number, flood.body))

    def on_nudge(self, env: Env, event: Received) -> None:
        self.log.append((env.now_us, f"nudge {event.src}"))
        if self.node in self.config.echo:
            env.send(event.src, Nudge(1))

    def on_beat(self, env: Env, event: object) -> None:
        self.log.append((env.now_us, "beat"))
        if self.config.beat_us:
            env.send(self.node % self.config.group + 1, Nudge(1))
            env.set_timer(Clock.BEAT, self.config.beat_us)

    def on_alarm(self, env: Env, event: object) -> None:
        self.log.append((env.now_us, "alarm"))

    @staticmethod
    def batch(sender: NodeId, number: int, body: bytes) -> PackedMessages:
        return PackedMessages(VIEW, number * 1000 + sender, sender, Level.AGREED, number, (body,))


Toy.table = Table(
    Phase,
    (Flood, Nudge),
    Clock,
    {
        (Phase.UP, Leaving): lambda machine, env, event: env.stop("left"),
        (Phase.UP, Submitted): Toy.on_submitted,
        (Phase.UP, Flood): Toy.on_flood,
        (Phase.UP, Nudge): Toy.on_nudge,
        (Phase.UP, Clock.BEAT): Toy.on_beat,
        (Phase.UP, Clock.ALARM): Toy.on_alarm,
    },
)

SHEET = register(
    Sheet(
        name="toy",
        source="none",
        config=Config,
        make=Toy,
        claims=lambda config: (),
        profiles={"plain": Config()},
        messages=(Flood, Nudge),
        progress_bound_us=lambda config, n: 100_000,
    )
)
