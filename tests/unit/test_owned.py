"""A machine inside another: what goes on to the world, what the owner hears, and the order."""

from __future__ import annotations

from enum import StrEnum
from random import Random

import msgspec

from ringcast.core.effects import Broadcast, Note, Send, SetTimer, Stop, Up
from ringcast.core.env import Env
from ringcast.core.inputs import Leaving, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Machine, Table
from ringcast.core.owned import Heard, Owned


class Phase(StrEnum):
    ONLY = "only"


class Timer(StrEnum):
    TICK = "part tick"


class Ping(msgspec.Struct, frozen=True, tag=True, array_like=True):
    number: int


class Told(msgspec.Struct, frozen=True):
    number: int


class Part(Machine):
    """Answers a Ping, tells its owner, and sends once more."""

    phase = Phase.ONLY

    def start(self, env: Env, event: Started) -> None:
        env.set_timer(Timer.TICK, 5)

    def admit(self, env: Env, event: Received) -> bool:
        return True

    @property
    def ready(self) -> bool:
        return True

    def snapshot(self) -> dict[str, object]:
        return {}

    def on_ping(self, env: Env, event: Received) -> None:
        assert isinstance(event.message, Ping)
        env.send(event.src, Ping(event.message.number + 1))
        env.up(Told(event.message.number))
        env.broadcast(Ping(0))

    def on_tick(self, env: Env, event: TimerFired) -> None:
        env.drop("part P-1", "a tick")
        env.stop("enough")

    def say(self, env: Env, number: int) -> None:
        env.broadcast(Ping(number + env.now_us))

    table = Table(
        Phase,
        (Ping,),
        Timer,
        {
            (Phase.ONLY, Ping): on_ping,
            (Phase.ONLY, Timer.TICK): on_tick,
            (Phase.ONLY, Submitted): lambda machine, env, event: None,
            (Phase.ONLY, Leaving): lambda machine, env, event: None,
        },
    )


class Owner:
    def __init__(self) -> None:
        self.part = Owned(Part(), self.hear)
        self.env = Env(7, Random(1))
        self.env.now_us = 1000

    def hear(self, env: Env, said: Heard) -> None:
        match said:
            case Up(Told(number)):
                self.part.call(env, self.part.machine.say, number)
            case Stop(reason):
                env.note("owner", "heard", reason)


def test_effects_go_on_in_order_and_the_owner_answers_at_the_place() -> None:
    owner = Owner()
    owner.part.handle(owner.env, Received(3, 1, Ping(4)))
    assert owner.env.take() == [Send(3, Ping(5)), Broadcast(Ping(1004)), Broadcast(Ping(0))]


def test_timers_and_counts_are_the_owners_and_the_end_of_a_part_is_no_end_of_all() -> None:
    owner = Owner()
    owner.part.handle(owner.env, Started(1, {}))
    assert owner.env.take() == [SetTimer(Timer.TICK, 5)]
    owner.part.handle(owner.env, TimerFired(Timer.TICK))
    assert owner.env.take() == [
        Note("part P-1", "drop", "a tick"),
        Note("owner", "heard", "enough"),
    ]
    assert owner.env.dropped == {"a tick": 1}
