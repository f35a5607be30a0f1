"""A gateway small enough to see through: two Totem rings on two ports, and what one ring delivers
is submitted to the other.

It is there to exercise parts with a scope and machines with several ports. One gateway joins two
rings; with a second one, messages would go round for ever.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import ClassVar

import msgspec

from ringcast.core.effects import Deliver, Stop
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Leaving, Received, Started, Submitted
from ringcast.core.machine import Machine, Table
from ringcast.core.owned import Heard, Owned, Parts
from ringcast.core.registry import Sheet
from ringcast.core.settings import GroupSettings
from ringcast.protocols.totem_single import SHEET as TOTEM
from ringcast.protocols.totem_single import Config as RingConfig
from ringcast.protocols.totem_single import TotemSingle


class Phase(StrEnum):
    UP = "up"


class Config(GroupSettings, frozen=True, kw_only=True):
    ring: RingConfig = RingConfig()
    gateway: bool = False

    @property
    def patience_us(self) -> int:
        return self.ring.patience_us

    @property
    def frame_budget(self) -> int:
        return self.ring.frame_budget


class Gateway(Machine):
    """Forwards between the rings at its ports; it has no application of its own."""

    table: ClassVar[Table]

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__()
        self.me, self.config = me, config
        self.phase = Phase.UP
        self.parts: Parts = Parts()
        self.ids: dict[str, NodeId] = {}

    def start(self, env: Env, event: Started) -> None:
        for port, me in enumerate(event.ports):
            name = f"ring-{port}"
            self.ids[name] = me
            ring = TotemSingle(me, self.config.ring)
            self.parts.add(Owned(ring, partial(self.hear, name), name, port, me))
        for name in self.parts:
            self.parts[name].handle(env, event)

    def admit(self, env: Env, event: Received) -> bool:
        return True

    def hear(self, name: str, env: Env, heard: Heard) -> None:
        match heard:
            case Deliver(batch=batch) if batch.sender != self.ids[name]:
                for other in self.parts:
                    if other != name:
                        self.parts[other].handle(env, Submitted(batch.bodies, batch.level))
            case Stop(reason):
                env.stop(f"{name}: {reason}")

    @property
    def ready(self) -> bool:
        return False

    def snapshot(self) -> dict[str, object]:
        return {name: self.parts[name].machine.snapshot() for name in self.parts}

    def on_submitted(self, env: Env, event: Submitted) -> None:
        env.drop("gateway", "it has no application")

    def on_leaving(self, env: Env, event: Leaving) -> None:
        for name in self.parts:
            self.parts[name].handle(env, event)


Gateway.table = Table(
    Phase,
    (),
    (),
    {
        (Phase.UP, Submitted): Gateway.on_submitted,
        (Phase.UP, Leaving): Gateway.on_leaving,
    },
)


def make(me: NodeId, config: Config) -> Machine:
    """A gateway, or an ordinary member of one of its rings: plain Totem."""
    return Gateway(me, config) if config.gateway else TotemSingle(me, config.ring)


SHEET: Sheet = msgspec.structs.replace(
    TOTEM,
    name="toy-gateway",
    config=Config,
    make=make,
    profiles={"toy": Config()},
    most_ports=2,
    agreed=("max_message",),
    alike=("max_packet", "patience_us"),
)
