"""A member with the key that does not do as it should, in a group in virtual time.

Its machine is an honest one; a ``Deed`` changes what leaves it and what it hears. The others are as
they are, with 200 us between any two members and something to send all the time.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from ringcast.core.effects import (
    Broadcast,
    CancelTimer,
    Deliver,
    InstallView,
    Persist,
    Send,
    SetTimer,
    Stop,
)
from ringcast.core.env import Env
from ringcast.core.ids import LIMIT, NodeId
from ringcast.core.inputs import Input, Received, Started, Submitted, TimerFired
from ringcast.core.registry import Sheet

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "fuzz"))
from altered import altered, sequence

N, CULPRIT = 4, 3
HONEST = (1, 2, 4)
HOP_US, EVERY_US = 200, 7_000
LASTS_US = 400_000
"""How long the culprit goes on."""

Flight = tuple[int, NodeId, Received]
"""A delay, to whom, and what."""


class Deed(NamedTuple):
    """What a culprit does with its frames, and whether it hears those of others."""

    sends: Callable[[Group, Received, list[NodeId]], list[Flight]]
    hears: Callable[[Group, Received], bool] = lambda group, frame: True
    every_us: int = 0
    """How often it begins a new life; 0: never."""
    forgets: bool = False
    load: int = 1


class Member:
    """A machine, its timers and its disk, and what it told its application."""

    def __init__(self, group: Group, me: NodeId) -> None:
        self.group, self.me = group, me
        self.stable: dict[str, int] = {}
        self.boot = 100 * me
        self.delivered: list[bytes] = []
        self.views = 0
        self.stopped = ""
        self.begin()

    def begin(self) -> None:
        """A new life."""
        self.boot += 1
        self.timers: dict[str, int] = {}
        self.env = Env(self.me, Random(f"{self.me}/{self.boot}"))
        self.machine = self.group.sheet.make(self.me, self.group.config)
        self.handle(Started(self.boot, dict(self.stable)))

    def handle(self, event: Input) -> None:
        """One input, and what comes of it."""
        if self.stopped:
            return
        self.env.now_us = self.group.now_us
        self.machine.handle(self.env, event)
        for effect in self.env.take():
            match effect:
                case Send(to, message):
                    self.group.carry(self, message, [to])
                case Broadcast(message):
                    others = [me for me in range(1, N + 1) if me != self.me]
                    self.group.carry(self, message, others)
                case SetTimer(timer, delay_us):
                    self.timers[timer] = at = self.group.now_us + delay_us
                    self.group.at(at, self.run_out, timer, at)
                case CancelTimer(timer):
                    self.timers.pop(timer, None)
                case Persist(key, value):
                    self.stable[key] = value
                case Deliver(_, batch):
                    self.delivered += batch.bodies
                case InstallView(transitional=transitional):
                    self.views += not transitional
                case Stop(reason):
                    self.stopped = reason

    def tail(self, of: NodeId) -> list[bytes]:
        """The last messages of somebody that came here."""
        mine = b"%d/" % of
        return [body for body in self.delivered[-60:] if body.startswith(mine)]

    def run_out(self, timer: str, at: int) -> None:
        """A timer, unless it was set anew."""
        if self.timers.get(timer) == at:
            del self.timers[timer]
            self.handle(TimerFired(timer))


class Group:
    """Three honest members and a culprit."""

    def __init__(self, sheet: Sheet, deed: Deed) -> None:
        self.sheet, self.deed = sheet, deed
        self.config = sheet.for_group(sheet.default, tuple(range(1, N + 1)))
        self.rng = Random(f"misbehaving/{sheet.name}")
        self.now_us, self._number = 1_000_000, 0
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.acts = self.over = False
        self.kept: list[Received] = []
        self.sent = 0
        self.members: dict[NodeId, Member] = {}
        for me in range(1, N + 1):
            self.members[me] = Member(self, me)
        for me in self.members:
            self.at(self.now_us + me * 500, self.speak, me)

    def at(self, at_us: int, act: Callable[..., None], *told: Any) -> None:
        """Something later."""
        self._number += 1
        heapq.heappush(self._events, (at_us, self._number, act, told))

    def until(self, at_us: int, met: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; whether it was met."""
        while self._events and self._events[0][0] <= at_us:
            self.now_us, _, act, told = heapq.heappop(self._events)
            act(*told)
            if met():
                return True
        self.now_us = at_us
        return met()

    def speak(self, me: NodeId) -> None:
        """An application sends."""
        member = self.members[me]
        for _ in range(self.deed.load if me == CULPRIT and self.acts else 1):
            if member.machine.ready and not member.stopped and (me != CULPRIT or not self.over):
                self.sent += 1
                member.handle(Submitted((b"%d/%d" % (me, self.sent),)))
        self.at(self.now_us + EVERY_US, self.speak, me)

    def carry(self, sender: Member, message: Any, to: list[NodeId]) -> None:
        """Frames set out."""
        frame = Received(sender.me, sender.boot, message)
        flights: list[Flight] = [(0, each, frame) for each in to]
        if sender.me == CULPRIT:
            if len(self.kept) < 400:
                self.kept.append(frame)
            if self.over:
                return
            if self.acts:
                flights = self.deed.sends(self, frame, to)
        for delay_us, each, said in flights:
            if 1 <= each <= N and each != sender.me:
                self.at(self.now_us + HOP_US + delay_us, self.arrive, each, said)

    def arrive(self, to: NodeId, frame: Received) -> None:
        """A frame is heard. What it says went over the wire, so it fits its types."""
        if to == CULPRIT:
            if self.over or (self.acts and not self.deed.hears(self, frame)):
                return
            self.kept = [*self.kept[-399:], frame]
        if to in self.members:
            self.members[to].handle(frame)

    def anew(self) -> None:
        """The culprit's next life."""
        culprit = self.members[CULPRIT]
        if not self.over:
            if self.deed.forgets:
                culprit.stable.clear()
            culprit.stopped = ""
            culprit.begin()
            self.at(self.now_us + self.deed.every_us, self.anew)

    # --- the story -------------------------------------------------------------------------

    def together(self) -> bool:
        """Whether all honest members have delivered what each of them sent from here on."""
        return all(
            any(int(body.split(b"/")[1]) > self.mark for body in self.members[me].tail(of))
            for me in HONEST
            for of in HONEST
        )

    def play(self, after: float = 1.0) -> dict[str, Any]:
        """A group forms, the culprit acts for a while, and is gone; what that cost the others.

        ``after``: how much of the time that is allowed is waited for."""
        limit_us = self.sheet.progress_bound_us(self.config, N)
        self.mark = 0
        assert self.until(self.now_us + 10 * limit_us, self.together), "they begin together"
        views = [self.members[me].views for me in HONEST]
        self.acts = True
        if self.deed.every_us:
            self.anew()
        self.until(self.now_us + LASTS_US)
        during = [self.members[me].views for me in HONEST]
        self.over, self.mark, begun_us = True, self.sent, self.now_us
        again = self.until(self.now_us + int(after * limit_us), self.together)
        return {
            "together": again,
            "after_ms": (self.now_us - begun_us) // 1000,
            "views": max(b - a for a, b in zip(views, during, strict=True)),
            "stopped": [m.stopped for m in self.members.values() if m.me in HONEST and m.stopped],
            "orders": one_order([self.members[me].delivered for me in HONEST]),
        }


def one_order(told: list[list[bytes]]) -> bool:
    """Whether any two have what they both have in one order, each once."""
    for one in told:
        for other in told:
            both = set(one) & set(other)
            if [body for body in one if body in both] != [body for body in other if body in both]:
                return False
    return all(len(set(each)) == len(each) for each in told)


# --- what a culprit can do ----------------------------------------------------------------------


def right(group: Group, frame: Received, to: list[NodeId]) -> list[Flight]:
    return [(0, each, frame) for each in to]


def times(count: int) -> Any:
    def sends(group: Group, frame: Received, to: list[NodeId]) -> list[Flight]:
        return [(10 * n, each, frame) for n in range(count) for each in to]

    return sends


def later(delay_us: int, share: float = 1.0) -> Any:
    def sends(group: Group, frame: Received, to: list[NodeId]) -> list[Flight]:
        late = delay_us if group.rng.random() < share else 0
        return [(late, each, frame) for each in to]

    return sends


def loses(share: float) -> Any:
    def sends(group: Group, frame: Received, to: list[NodeId]) -> list[Flight]:
        return [(0, each, frame) for each in to if group.rng.random() >= share]

    return sends


def only(test: Callable[[Group, Received, list[NodeId], NodeId], bool]) -> Any:
    def sends(group: Group, frame: Received, to: list[NodeId]) -> list[Flight]:
        return [(0, each, frame) for each in to if test(group, frame, to, each)]

    return sends


def to_all(group: Group, frame: Received, to: list[NodeId]) -> list[Flight]:
    return [(0, each, frame) for each in range(1, N + 1)]


def to_another(group: Group, frame: Received, to: list[NodeId]) -> list[Flight]:
    return [(0, each % N + 1 if len(to) == 1 else each, frame) for each in to]


def replays(whose: Callable[[Received], bool]) -> Any:
    """Old frames besides the right ones, in its own name."""

    def sends(group: Group, frame: Received, to: list[NodeId]) -> list[Flight]:
        old = [each for each in group.kept if whose(each)]
        found = right(group, frame, to)
        if old:
            again = group.rng.choice(old)
            found += [(50, each, Received(CULPRIT, frame.boot, again.message)) for each in HONEST]
        return found

    return sends


def with_boot(step: Callable[[Group], int]) -> Any:
    def sends(group: Group, frame: Received, to: list[NodeId]) -> list[Flight]:
        other = Received(CULPRIT, frame.boot + step(group), frame.message)
        return [(0, each, other) for each in to]

    return sends


def says(change: Callable[[Group, Any], Any], share: float, besides: bool = True) -> Any:
    """Altered frames, besides the right ones or instead of them."""

    def sends(group: Group, frame: Received, to: list[NodeId]) -> list[Flight]:
        if group.rng.random() >= share:
            return right(group, frame, to)
        plain = msgspec.to_builtins(frame.message, builtin_types=(bytes,))
        try:
            data = msgspec.msgpack.encode(change(group, plain))
            message = msgspec.msgpack.decode(data, type=type(frame.message))
        except (msgspec.MsgspecError, OverflowError):
            return right(group, frame, to)
        told: list[Flight] = [(0, each, Received(CULPRIT, frame.boot, message)) for each in to]
        return [*told, *right(group, frame, to)] if besides else told

    return sends


def field(value: Callable[[Group, Any], Any], wanted: type) -> Any:
    """One field of a type, replaced."""

    def change(group: Group, plain: list[Any]) -> list[Any]:
        fits = [at for at in range(1, len(plain)) if type(plain[at]) is wanted]
        if not fits:
            return plain
        at = group.rng.choice(fits)
        return [*plain[:at], value(group, plain[at]), *plain[at + 1 :]]

    return change


DEEDS: dict[str, Deed] = {
    "falls silent": Deed(loses(1.0)),
    "keeps what it is to pass on": Deed(only(lambda g, f, to, each: len(to) > 1)),
    "passes on, and says nothing to all": Deed(only(lambda g, f, to, each: len(to) == 1)),
    "is deaf": Deed(right, lambda group, frame: False),
    "hears one member only": Deed(right, lambda group, frame: frame.src == 1),
    "is heard by one member only": Deed(only(lambda g, f, to, each: each == 1)),
    "hears nothing half of the time": Deed(right, lambda g, frame: g.now_us // 25_000 % 2 == 0),
    "loses every second frame": Deed(loses(0.5)),
    "loses nine of ten": Deed(loses(0.9)),
    "says everything twice": Deed(times(2)),
    "says everything ten times": Deed(times(10)),
    "is late by 30 ms": Deed(later(30_000)),
    "is late by 2 s now and then": Deed(later(2_000_000, 0.1)),
    "says things in any order": Deed(later(3_000, 0.5)),
    "sends to all what is for one": Deed(to_all),
    "sends to one what is for another": Deed(to_another),
    "repeats old frames of its own": Deed(replays(lambda frame: frame.src == CULPRIT)),
    "repeats frames of others as its own": Deed(replays(lambda frame: frame.src != CULPRIT)),
    "bears a later boot number": Deed(with_boot(lambda group: 50)),
    "bears another boot number now and then": Deed(
        with_boot(lambda group: group.rng.choice((0, 0, 0, 7)))
    ),
    "restarts all the time": Deed(right, every_us=80_000),
    "restarts and forgets all the time": Deed(right, every_us=80_000, forgets=True),
    "floods": Deed(right, load=60),
    "says the largest numbers besides": Deed(says(field(lambda g, v: LIMIT, int), 0.3)),
    "says zeros besides": Deed(says(field(lambda g, v: 0, int), 0.3)),
    "says numbers that are off by one besides": Deed(
        says(field(lambda g, v: v + g.rng.choice((-1, 1)), int), 0.3)
    ),
    "says lists that are empty, cut or turned round besides": Deed(
        says(field(lambda g, v: sequence(g.rng.random, list(v), [1]), list), 0.3)
    ),
    "says what is false as true besides": Deed(says(field(lambda g, v: not v, bool), 0.5)),
    "says anything besides": Deed(
        says(lambda g, plain: altered(g.rng.random, plain, [1, 2, 3]), 0.5)
    ),
    "says anything instead": Deed(
        says(lambda g, plain: altered(g.rng.random, plain, [1, 2, 3]), 0.5, besides=False)
    ),
}

VIEWS = {"totem-multi": 2}
"""Views that a change of the membership brings, where it is not one: one for those who part, one
for those who come together."""

EXPENSIVE = {
    ("hears one member only", "rbp"): 6,
    ("is heard by one member only", "rbp"): 2,
    ("loses nine of ten", "rbp"): 3,
    ("repeats frames of others as its own", "rbp"): 20,
}
"""Deeds that cost more changes than one: docs/security.md names them."""


def usual(name: str, protocol: str) -> int:
    """Views that a deed costs: those of one change, or of one for each life of the culprit."""
    every_us = DEEDS[name].every_us
    return VIEWS.get(protocol, 1) * (LASTS_US // every_us if every_us else 1)


LIES = (
    "says numbers that are off by one besides",
    "says anything besides",
    "says anything instead",
)
"""Of these some are lies about the order that fit: see docs/security.md."""
