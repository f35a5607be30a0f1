"""Atomic broadcast by reduction to consensus, from blocks alone: they are shown to work together.

A submission is broadcast reliably. Members propose the oldest they have for the next place in the
order, in an instance of consensus that is made for that place and dropped afterwards. One reliable
channel carries it all. Source: Chandra and Toueg, JACM 43(2), 1996, section 7.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec

from ringcast.blocks import channel, detector
from ringcast.blocks.channel import Ack, Arrived, Channel, Packet
from ringcast.blocks.consensus import Adopted, Begin, Consensus, Decided, Estimate, Proposal
from ringcast.blocks.detector import Detector, Heartbeat
from ringcast.blocks.reliable_broadcast import HandedUp, Relay, ReliableBroadcast
from ringcast.core.effects import Up
from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Leaving, Message, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Cell, Key, Machine, Table
from ringcast.core.owned import Heard, Owned, Parts, Scoped
from ringcast.core.registry import MembershipKind, Sheet, register
from ringcast.core.settings import ListedSettings


class Phase(StrEnum):
    DECIDING = "Deciding"


class Offer(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A value of ``node``'s."""

    node: NodeId
    number: int
    body: bytes


Frames = Scoped[
    Estimate[Offer] | Proposal[Offer] | Adopted | Begin | Relay[Offer]
]  # what instances send


class Config(ListedSettings, frozen=True, kw_only=True):
    beat_us: int = 1_000
    suspect_us: int = 4_000
    suspect_max_us: int = 40_000
    resend_us: int = 1_000
    piece_bytes: int = 0

    @property
    def frame_budget(self) -> int:
        return self.max_packet

    @property
    def faults(self) -> int:
        return (len(self.members) - 1) // 2


class Deciders(Machine):
    """One member; ``log`` is what was decided, in order."""

    table: ClassVar[Table]

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__()
        self.me, self.phase, self.config = me, Phase.DECIDING, config
        times = detector.Settings(
            beat_us=config.beat_us,
            suspect_us=config.suspect_us,
            suspect_max_us=config.suspect_max_us,
        )
        carry = channel.Settings(resend_us=config.resend_us, piece_bytes=config.piece_bytes)
        self.detector = Owned(Detector(me, times), self.hear_detector)
        self.channel = Owned(Channel(me, carry, Frames), self.hear_channel)
        self.parts: Parts = Parts()
        block = ReliableBroadcast(me, config.members)
        self.offers = Owned(block, self.hear_offer, "offers", over=self.post)
        self.parts.add(self.offers)
        self.log: list[Offer] = []
        self.pending: dict[Offer, None] = {}
        self.submitted = 0
        self.boots: dict[NodeId, int] = {}

    @property
    def scope(self) -> str:
        """The instance that decides next."""
        return f"consensus:{len(self.log)}"

    @property
    def ready(self) -> bool:
        return True

    def start(self, env: Env, event: Started) -> None:
        self.boots = dict.fromkeys(self.config.members, 1)
        self.detector.handle(env, event)
        self.channel.handle(env, event)
        self.detector.call(env, self.detector.machine.watch, ViewId(1, 1), self.boots)

    def admit(self, env: Env, event: Received) -> bool:
        self.detector.machine.heard[event.src] = env.now_us
        return True

    def go_on(self, env: Env) -> None:
        """Make the next instance, if there is something to decide."""
        if self.pending and self.scope not in self.parts:
            block = Consensus(self.me, self.config.members, len(self.log) % self.config.n)
            part = Owned(block, self.hear_instance, self.scope, over=self.post)
            self.parts.add(part)
            part.handle(env, Started(1, {}))
            part.call(env, block.suspect, self.detector.machine.suspected)
            part.call(env, block.propose, next(iter(self.pending)))

    def post(self, env: Env, to: NodeId, message: Message) -> None:
        self.channel.call(env, self.channel.machine.send, to, message)

    def on_submitted(self, env: Env, event: Submitted) -> None:
        for body in event.bodies:
            self.submitted += 1
            offer = Offer(self.me, self.submitted, body)
            key = f"{self.me} {self.submitted}"
            self.offers.call(env, self.offers.machine.broadcast, key, offer)

    def hear_offer(self, env: Env, heard: Heard) -> None:
        assert isinstance(heard, Up) and isinstance(heard.what, HandedUp)
        offer = heard.what.payload
        assert isinstance(offer, Offer)
        if offer not in self.log:
            self.pending[offer] = None
            self.go_on(env)

    def hear_instance(self, env: Env, heard: Heard) -> None:
        assert isinstance(heard, Up) and isinstance(heard.what, Decided)
        value = heard.what.value
        assert isinstance(value, Offer) and value not in self.log
        self.parts.drop(env, self.scope)
        self.log.append(value)
        self.pending.pop(value, None)
        self.go_on(env)

    def hear_channel(self, env: Env, heard: Heard) -> None:
        """A frame of an instance that has not begun waits for nothing: the offer comes first."""
        assert isinstance(heard, Up) and isinstance(heard.what, Arrived)
        message = heard.what.payload
        assert isinstance(message, Scoped)
        if not self.parts.route(env, Received(heard.what.src, heard.what.boot, message)):
            assert not message.path.startswith("consensus:") or self.over(message.path)
            env.drop("deciders", "a frame of a decision that is over")

    def over(self, path: str) -> bool:
        return int(path.partition(":")[2]) < len(self.log)

    def hear_detector(self, env: Env, heard: Heard) -> None:
        if self.scope in self.parts:
            part = self.parts[self.scope]
            part.call(env, part.machine.suspect, self.detector.machine.suspected)

    def to_channel(self, env: Env, event: Received | TimerFired) -> None:
        self.channel.handle(env, event)

    def to_detector(self, env: Env, event: Received | TimerFired) -> None:
        self.detector.handle(env, event)

    def on_leaving(self, env: Env, event: Leaving) -> None:
        env.stop("left")

    def snapshot(self) -> dict[str, object]:
        return {"decided": len(self.log), "instances": len(list(self.parts))}


CELLS: dict[Key, Cell] = {
    Submitted: Deciders.on_submitted,
    Leaving: Deciders.on_leaving,
    Packet: Deciders.to_channel,
    Ack: Deciders.to_channel,
    Heartbeat: Deciders.to_detector,
    channel.Timer.RESEND: Deciders.to_channel,
    detector.Timer.BEAT: Deciders.to_detector,
}
MESSAGES = (Packet[Frames | channel.Piece], Ack, Heartbeat)

Deciders.table = Table(
    Phase,
    (Packet, Ack, Heartbeat),
    (*channel.Timer, *detector.Timer),
    {(Phase.DECIDING, key): cell for key, cell in CELLS.items()},
)

DECIDERS = register(
    Sheet(
        name="deciders",
        source="tests",
        config=Config,
        make=Deciders,
        claims=lambda config: (),
        profiles={"plain": Config()},
        messages=MESSAGES,
        progress_bound_us=lambda config, n: 1_000_000,
        membership=MembershipKind.FIXED,
    )
)
