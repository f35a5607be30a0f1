"""A few machines of a protocol in virtual time; one of them is told what a hostile member says.

Honest frames are recorded. A hostile one is an honest one with parts replaced, encoded, decoded as
the wire does, and given to the victim from any sender. Everything follows from the seed.
"""

from __future__ import annotations

import gc
import re
import sys
import time
from collections import Counter, deque
from random import Random
from types import FunctionType, ModuleType
from typing import Any

import msgspec
from altered import altered, numbers, one_of, spoilt
from steps import Steps

from ringcast.core.effects import Broadcast, CancelTimer, Persist, Send, SetTimer, Stop
from ringcast.core.env import Env
from ringcast.core.errors import UNREADABLE
from ringcast.core.ids import Level
from ringcast.core.inputs import Input, Received, Started, Submitted, TimerFired
from ringcast.core.registry import Sheet
from ringcast.sim.rings import attached

RING, RINGS, VICTIM = ((1, 2, 3),), ((1, 2, 3), (2, 4, 5)), 2
"""One broadcast domain, or two that the victim joins."""
MOST_UNDER_WAY = 400
KEPT, KEPT_OF_ALL = 300, 0.1
"""Honest frames to alter, and which share of those that are sent replace older ones."""
BLOCKS = (24, 60)
"""Hostile frames that follow each other. Of 60 alone, a round meets fewer lines of a machine."""
ALTERATIONS = (0, 1, 1, 1, 2, 3)
"""How many parts of a frame are replaced."""
LEVELS = tuple(Level)
MOST_OBJECTS, MOST_BYTES = 400_000, 64 * 2**20
"""What hangs together with a machine of the default settings, at most."""
ELSEWHERE = (type, ModuleType, FunctionType, Random)

encode = msgspec.msgpack.Encoder().encode


class Processor:
    """A machine, its timers and its disk."""

    def __init__(self, world: World, me: int) -> None:
        self.world, self.me, self.ports = world, me, world.places[me]
        self.stable: dict[str, int] = {}
        self.boot = 100 * me
        self.begin()

    def begin(self) -> None:
        """A new life."""
        self.boot += 1
        self.over = False
        self.timers: dict[str, int] = {}
        self.env = Env(self.me, Random(f"{self.world.seed}/{self.me}/{self.boot}"))
        self.machine = self.world.sheet.make(self.me, self.world.config)
        self.handle(Started(self.boot, dict(self.stable), tuple(pid for _, pid in self.ports)))

    def handle(self, event: Input) -> None:
        """One input, and what comes of it."""
        if self.over:
            self.world.renew(self)
            return
        self.env.now_us = self.world.now_us
        self.machine.handle(self.env, event)
        for effect in self.env.take():
            kind = type(effect)
            if kind is Send:
                self.world.carry(self, effect.message, effect.to, effect.port)  # type: ignore[union-attr]
            elif kind is Broadcast:
                self.world.carry(self, effect.message, 0, effect.port)  # type: ignore[union-attr]
            elif kind is SetTimer:
                due = self.world.now_us + effect.delay_us  # type: ignore[union-attr]
                self.timers[effect.timer] = due  # type: ignore[union-attr]
            elif kind is CancelTimer:
                self.timers.pop(effect.timer, None)  # type: ignore[union-attr]
            elif kind is Persist:
                self.stable[effect.key] = effect.value  # type: ignore[union-attr]
            elif kind is Stop:
                reason = re.sub(r"^interface \d+: ", "", effect.reason)  # type: ignore[union-attr]
                self.world.stops[re.split(r":| \(", reason)[0]] += 1
                self.over = True
                return


class World:
    """A group, and somebody who speaks to one of its members."""

    def __init__(self, sheet: Sheet, seed: int) -> None:
        self.sheet, self.seed = sheet, seed
        self.places = attached(RINGS if sheet.most_ports > 1 else RING)
        self.members = tuple(self.places)
        self.config = sheet.for_group(sheet.default, self.members)
        self.rng = Random(f"{seed}/fuzz/{sheet.name}")
        self.decode = msgspec.msgpack.Decoder(union(sheet)).decode
        self.now_us = 1_000_000
        self.under_way: deque[tuple[int, Received]] = deque()
        self.stops: Counter[str] = Counter()
        self.kept: list[tuple[int, int, Any]] = []
        """Domain, sender and frame."""
        self.known = [0]
        self.aimed = self.kept
        """Those of a kind that is altered more than others."""
        self.sent = self.refused = 0
        self.steps = Steps()
        self.pace = self.rng.choice((1, 4, 12))
        self.block = self.rng.choice(BLOCKS)
        """How much else goes on, and after how many hostile frames."""
        self.at = {
            (domain, pid): (me, port)
            for me, ports in self.places.items()
            for port, (domain, pid) in enumerate(ports)
        }
        """By domain and id there: whose port it is."""
        self.beside = {
            (domain, pid): [
                (other, *whose)
                for (there, other), whose in self.at.items()
                if there == domain and other != pid
            ]
            for domain, pid in self.at
        }
        """By domain and id there: ids of the others, whose they are and at which port."""
        self.victim_at = {at: (port, pid) for port, (at, pid) in enumerate(self.places[VICTIM])}
        """By domain: the victim's port there, and its id."""
        self.processors: dict[int, Processor] = {}
        for me in self.places:
            self.processors[me] = Processor(self, me)

    @property
    def victim(self) -> Processor:
        """Whom the hostile frames are for."""
        return self.processors[VICTIM]

    def renew(self, stopped: Processor) -> None:
        """A processor that stopped begins anew; where that cannot be, the whole group does."""
        if not self.sheet.fixed:
            stopped.begin()
            return
        self.under_way.clear()
        for each in self.processors.values():
            each.stable.clear()
            each.begin()

    def carry(self, sender: Processor, message: msgspec.Struct, to: int, port: int) -> None:
        """An honest frame sets out. What the wire or the receivers refuse would be a defect."""
        self.decode(encode(message))
        domain, src = sender.ports[port]
        if len(self.under_way) < MOST_UNDER_WAY:
            for pid, me, its in self.beside[domain, src]:
                if not to or pid == to:
                    self.under_way.append((me, Received(src, sender.boot, message, its)))
        random = self.rng.random
        if len(self.kept) < 20 or random() < KEPT_OF_ALL:
            plain = msgspec.to_builtins(message, builtin_types=(bytes,))
            entry = (domain, src, plain)
            if len(self.kept) < KEPT:
                self.kept.append(entry)
            else:
                self.kept[int(random() * KEPT)] = entry
            found: list[int] = []
            numbers(plain, found)
            self.known = (found + self.known)[:200]

    def live(self, steps: int) -> None:
        """Let honest frames arrive, timers run out and applications speak."""
        random = self.rng.random
        for _ in range(steps):
            self.now_us += one_of(random, (10, 50, 200))
            if self.under_way and random() < 0.85:
                me, frame = self.under_way.popleft()
                self.processors[me].handle(frame)
            elif random() < 0.2:
                processor = self.processors[one_of(random, self.members)]
                if processor.machine.ready:
                    bodies = (bytes(one_of(random, (0, 5, 60, 3000))),) * one_of(random, (1, 3))
                    processor.handle(Submitted(bodies, one_of(random, LEVELS)))
            else:
                self.run_out()

    def run_out(self) -> None:
        """The next timer of anybody."""
        due = [
            (at, p.me, timer) for p in self.processors.values() for timer, at in p.timers.items()
        ]
        if due:
            at, me, timer = min(due)
            self.now_us = max(self.now_us, at)
            del self.processors[me].timers[timer]
            self.processors[me].handle(TimerFired(timer))

    def aim(self) -> None:
        """Choose another kind of message, or all of them."""
        kind = self.rng.choice([-1, *(plain[0] for *_, plain in self.kept)])
        self.aimed = [each for each in self.kept if each[2][0] == kind] or self.kept

    def attack(self) -> None:
        """A block of hostile frames."""
        random, kept, victim = self.rng.random, self.aimed, self.victim
        self.steps.begin_block()
        self.sent += self.block
        for _ in range(self.block):
            domain, src, plain = kept[int(random() * len(kept))]
            for _ in range(ALTERATIONS[int(random() * len(ALTERATIONS))]):
                plain = altered(random, plain, self.known)
            try:
                data = encode(plain)
                if random() < 0.05:
                    data = spoilt(self.rng.random, data)
                message = self.decode(data)
            except (*UNREADABLE, OverflowError):
                self.refused += 1
                continue
            heard = self.said_to_victim(random(), domain, src, message)
            begun = time.perf_counter_ns()
            victim.handle(heard)
            self.steps.note(begun, message)

    def said_to_victim(self, draw: float, domain: int, src: int, message: Any) -> Received:
        """A hostile frame as it comes in: most often at the right place, in a member's name."""
        if draw < 0.02:
            domain = one_of(self.rng.random, tuple(self.victim_at))
        port, own = self.victim_at[domain]
        if src == own or draw < 0.2:
            others = self.beside[domain, own]
            at = int(self.rng.random() * (3 * len(others) + 1))
            src = others[at // 3][0] if at < 3 * len(others) else 9
        if draw > 0.9995:
            src = own
        whose = self.at.get((domain, src))
        known = whose is not None and draw < 0.999
        boot = self.processors[whose[0]].boot if known else self.rng.randrange(400)  # type: ignore[index]
        return Received(src, boot, message, port)


def union(sheet: Sheet) -> Any:
    """What the wire decodes into."""
    found: Any = sheet.messages[0]
    for each in sheet.messages[1:]:
        found = found | each
    return found


def weighed(root: object) -> tuple[int, int]:
    """How many objects hang together with a machine, and their bytes; AssertionError if many."""
    seen, todo, size = {id(root)}, [root], 0
    while todo:
        each = todo.pop()
        size += sys.getsizeof(each)
        held = gc.get_referents(each)
        if isinstance(each, msgspec.Struct):  # some are none of the collector's business
            held = [getattr(each, name) for name in each.__struct_fields__]
        for other in held:
            if id(other) not in seen and not isinstance(other, ELSEWHERE):
                seen.add(id(other))
                todo.append(other)
    assert len(seen) <= MOST_OBJECTS and size <= MOST_BYTES, f"{len(seen)} objects, {size} bytes"
    return len(seen), size
