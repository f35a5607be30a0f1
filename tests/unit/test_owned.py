"""A machine inside another: what goes on to the world, what the owner hears, and the order."""

from __future__ import annotations

from enum import StrEnum
from random import Random

import msgspec
import pytest

from ringcast.core.effects import Broadcast, CancelTimer, Note, Persist, Send, SetTimer, Stop, Up
from ringcast.core.env import Env
from ringcast.core.inputs import Leaving, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Machine, Table
from ringcast.core.owned import Heard, Owned, Parts, Scoped, ScopedTimer


class Phase(StrEnum):
    ONLY = "only"


class Timer(StrEnum):
    TICK = "part tick"


class Ping(msgspec.Struct, frozen=True, tag=1, array_like=True):
    number: int


class Pong(msgspec.Struct, frozen=True, tag=2, array_like=True):
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


class Coordinator(Machine):
    """Makes and drops parts of one type, which talk to their like at other processors."""

    phase = Phase.ONLY
    table = Table(
        Phase,
        (),
        (),
        {
            (Phase.ONLY, Submitted): lambda machine, env, event: None,
            (Phase.ONLY, Leaving): lambda machine, env, event: None,
        },
    )

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.heard: list[tuple[str, Heard]] = []
        self.parts: Parts = Parts()
        for name in names:
            self.make(name)

    def make(self, name: str) -> None:
        self.parts.add(Owned(Part(), lambda env, said: self.heard.append((name, said)), name))

    def start(self, env: Env, event: Started) -> None:
        for name in self.parts:
            self.parts[name].handle(env, event)

    def admit(self, env: Env, event: Received) -> bool:
        return True

    @property
    def ready(self) -> bool:
        return True

    def snapshot(self) -> dict[str, object]:
        return {}


def test_two_parts_of_a_kind_have_their_own_timers_and_frames() -> None:
    machine, env = Coordinator("a", "b"), Env(7, Random(1))
    machine.handle(env, Started(1, {}))
    timers = [e.timer for e in env.take() if isinstance(e, SetTimer)]
    assert timers == ["a/part tick", "b/part tick"]
    machine.handle(env, Received(3, 1, Scoped("b", Ping(4))))
    assert env.take() == [Send(3, Scoped("b", Ping(5))), Broadcast(Scoped("b", Ping(0)))]
    assert machine.heard == [("b", Up(Told(4)))]
    machine.handle(env, TimerFired(timers[0]))
    assert env.take() == [Note("part P-1", "a/drop", "a tick")]
    assert machine.heard[1:] == [("a", Stop("enough"))]


def test_a_dropped_part_takes_its_timers_along_and_hears_no_more() -> None:
    machine, env = Coordinator("a", "b"), Env(7, Random(1))
    machine.handle(env, Started(1, {}))
    timers = [e.timer for e in env.take() if isinstance(e, SetTimer)]
    machine.parts.drop(env, "a")
    assert env.take() == [CancelTimer(timers[0])]
    machine.handle(env, Received(3, 1, Scoped("a", Ping(4))))
    machine.handle(env, TimerFired(timers[0]))
    assert env.dropped == {"a message of another protocol": 2}
    assert not machine.heard
    machine.make("a")  # a later instance of the same name
    machine.handle(env, Received(3, 1, Scoped("a", Ping(4))))
    assert machine.heard == [("a", Up(Told(4)))]


def test_a_part_of_a_part_has_a_path() -> None:
    inner = Coordinator("leaf")
    heard: list[Heard] = []
    outer = Owned(inner, lambda env, said: heard.append(said), "branch")
    parts, env = Parts(), Env(7, Random(1))
    parts.add(outer)
    assert parts.route(env, Received(3, 1, Scoped("branch/leaf", Ping(4))))
    assert env.take()[0] == Send(3, Scoped("branch/leaf", Ping(5)))
    outer.handle(env, Started(1, {}))
    (armed,) = env.take()
    assert isinstance(armed, SetTimer) and armed.timer == "branch/leaf/part tick"
    assert parts.route(env, TimerFired(armed.timer))
    assert env.take() == [Note("part P-1", "branch/leaf/drop", "a tick")]
    assert not parts.route(env, Received(3, 1, Scoped("twig/leaf", Ping(4))))


def test_each_part_gets_what_it_persisted_itself() -> None:
    stable = {"a/x": 1, "b/x": 2, "x": 3, "ab/x": 4}
    given: dict[str, object] = {}

    class Remembering(Part):
        def start(self, env: Env, event: Started) -> None:
            given.update(event.stable)
            env.persist("x", 9)

    part, env = Owned(Remembering(), lambda env, said: None, "a"), Env(7, Random(1))
    part.handle(env, Started(1, stable))
    assert given == {"x": 1}
    assert env.take() == [Persist("a/x", 9)]


def test_scoped_frames_survive_the_wire() -> None:
    frame = Scoped("a", Ping(4))
    decoder = msgspec.msgpack.Decoder(Scoped[Ping] | Pong)
    assert decoder.decode(msgspec.msgpack.encode(frame)) == frame


@pytest.mark.parametrize(
    ("scope", "port"), [("a/b", None), ("", 1)], ids=["a separator", "a port without a name"]
)
def test_a_scope_is_a_name(scope: str, port: int | None) -> None:
    with pytest.raises(ValueError, match="scope"):
        Owned(Part(), lambda env, said: None, scope, port)


def test_names_and_ports_are_taken_once() -> None:
    parts = Parts()
    parts.add(Owned(Part(), lambda env, said: None, "a", 1))
    for scope, port in (("a", 2), ("b", 1), ("", None)):
        with pytest.raises(ValueError, match="taken"):
            parts.add(Owned(Part(), lambda env, said: None, scope, port))


def ignore(env: Env, heard: Heard) -> None:
    """Nothing to hear."""


def test_a_part_of_a_part_has_no_port() -> None:
    """Its frames were sent under the outer part's name, on the outer part's port."""
    inner = Coordinator()
    inner.parts.add(Owned(Part(), ignore, "leaf", 1))
    with pytest.raises(ValueError, match="'leaf' of part 'branch' has port 1"):
        Owned(inner, ignore, "branch")
    later = Coordinator()
    Owned(later, ignore, "branch")
    with pytest.raises(ValueError, match="give the port to the outer part"):
        later.parts.add(Owned(Part(), ignore, "leaf", 0))
    alone = Coordinator()
    Owned(alone, ignore)  # its effects go on as they are
    alone.parts.add(Owned(Part(), ignore, "leaf", 1))


def test_frames_at_a_part_s_port_are_the_part_s_whatever_the_owner_knows() -> None:
    """The owner's table took them, and its ``admit`` judged ids of another domain."""

    class Knowing(Coordinator):
        table = Table(
            Phase,
            (Ping,),
            (),
            {
                (Phase.ONLY, Ping): lambda machine, env, event: env.note("owner", "took"),
                (Phase.ONLY, Submitted): lambda machine, env, event: None,
                (Phase.ONLY, Leaving): lambda machine, env, event: None,
            },
        )

        def admit(self, env: Env, event: Received) -> bool:
            return event.src != 3

    machine, env = Knowing(), Env(7, Random(1))
    machine.parts.add(Owned(Part(), ignore, "ring", 1))
    machine.handle(env, Received(3, 1, Ping(4), 1))
    assert env.take() == [Send(3, Ping(5), 1), Broadcast(Ping(0), 1)]
    machine.handle(env, Received(4, 1, Ping(4), 0))
    assert env.take() == [Note("owner", "took")]


def test_a_part_keeps_no_timer_that_is_not_set() -> None:
    """A part that names a timer after each message grew without bound."""
    part, env = Owned(Part(), ignore, "a"), Env(7, Random(1))

    def use(env: Env, timer: str) -> None:
        env.set_timer(timer, 5)
        env.set_timer(timer, 6)
        env.cancel_timer(timer)

    for number in range(3):
        part.call(env, use, f"t{number}")
        part.call(env, Env.set_timer, f"u{number}", 5)
    fired = [e.timer for e in env.take() if isinstance(e, SetTimer)][-1]
    assert sorted(part._timers) == ["u0", "u1", "u2"]
    assert isinstance(fired, ScopedTimer)
    part.fire(env, fired)
    assert sorted(part._timers) == ["u0", "u1"]
    env.take()
    part.disarm(env)
    assert env.take() == [CancelTimer("a/u0"), CancelTimer("a/u1")]


def test_rules_that_a_shared_part_cites_are_those_of_its_owners_book() -> None:
    """A tag alone gets the book's name; what names its book, or is no rule, stays."""

    def cite(env: Env) -> None:
        for rule in ("G-5", "other G-5", "kernel"):
            env.note(rule, "said", data=(1,))

    for book, rules in (
        ("mine", ["mine G-5", "other G-5", "kernel"]),
        ("", ["G-5", "other G-5", "kernel"]),
    ):
        env = Env(1, Random(0))
        Owned(Part(), lambda env, heard: None, book=book).call(env, cite)
        assert [effect.rule for effect in env.effects if isinstance(effect, Note)] == rules
        assert all(effect.data == (1,) for effect in env.effects if isinstance(effect, Note))


def test_what_a_part_sends_may_go_another_way_and_keeps_its_place() -> None:
    """``over``: a channel of the owner's carries unicasts, with the part's name on them."""
    env = Env(7, Random(1))

    def carry(env: Env, to: int, message: msgspec.Struct) -> None:
        env.note("owner", "carried", f"to {to}")
        env.send(to, Told(9))

    for scope in ("", "one"):
        carried: list[object] = []

        def over(env: Env, to: int, message: msgspec.Struct) -> None:
            carried.append(message)  # noqa: B023
            carry(env, to, message)

        part = Owned(Part(), lambda env, heard: env.note("owner", "heard"), scope, over=over)
        part.handle(env, Received(3, 1, Ping(1)))
        effects = env.take()
        assert carried == [Scoped("one", Ping(2)) if scope else Ping(2)]
        assert [type(effect) for effect in effects] == [Note, Send, Note, Broadcast]
        assert effects[1] == Send(3, Told(9))
