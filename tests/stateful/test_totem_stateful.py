"""The shortest bad sequence: Hypothesis plays network, clock and fate for a few real machines.

Frames lie in a bag and arrive, vanish or double as drawn; any processor's next timer may run out
at any moment, because an asynchronous system promises nothing about time. Every check watches
every step. In the end the world heals, and within the promised bound all share one ring.
"""

from __future__ import annotations

from collections import Counter, deque

from driver import Bench, Phase, stops
from hypothesis import HealthCheck, event, settings, target
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ringcast.checks import suite
from ringcast.core.effects import Deliver, Effect, InstallView, Note, Originate
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.inputs import Input, Received
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Installed,
    Noted,
    Originated,
    Restarted,
    Submit,
    TraceEvent,
    digests,
)
from ringcast.protocols.totem_single import SHEET, Config

CONFIG = Config(each_time=3, fail_rcv_const=3, max_fast_rounds=3)
BAG = 200
"""Frames on their way at most; the oldest are lost first."""

RAN: Counter[str] = Counter()
"""How often each rule ran: one that never does is silent otherwise."""


class World(Bench):
    """A bench that writes the trace of what happens, for the checks."""

    def __init__(self, n: int) -> None:
        super().__init__(n, CONFIG)
        self.suite = suite(SHEET.claims(SHEET.default))
        self.events = Counter[NodeId]()
        self.submitted = Counter[NodeId]()
        self.views: dict[NodeId, ViewId | None] = {}
        self.deliveries = 0
        self.flight: deque[tuple[int, NodeId, Received]] = deque()

    def emit(self, kind: type, node: NodeId, *fields: object) -> None:
        self.events[node] += 1
        happened: TraceEvent = kind(node, self.events[node], self.now_us, *fields)
        self.suite.feed(happened)

    def start(self, node: NodeId) -> list[Effect]:
        self.submitted[node] = 0
        self.views[node] = None
        self.emit(Restarted, node, self.boots[node] + 1)
        return super().start(node)

    def crash(self, node: NodeId) -> None:
        super().crash(node)
        self.emit(Crashed, node)

    def submit(self, node: NodeId, *bodies: bytes, level: Level = Level.AGREED) -> list[Effect]:
        first = self.submitted[node] + 1
        self.submitted[node] += len(bodies)
        sizes = tuple(map(len, bodies))
        self.emit(Submit, node, self.boots[node], first, level, sizes, digests(bodies))
        return super().submit(node, *bodies, level=level)

    def handle(self, node: NodeId, event: Input) -> list[Effect]:
        effects = super().handle(node, event)
        assert not stops(effects), stops(effects)
        for effect in effects:
            match effect:
                case Originate(batch):
                    place = (batch.ring, batch.seq, batch.level, batch.first)
                    self.emit(Originated, node, *place, digests(batch.bodies))
                case Deliver(view, batch):
                    told = (batch.ring, batch.seq, batch.sender, batch.level, batch.first)
                    self.emit(Delivered, node, view, *told, digests(batch.bodies))
                    self.deliveries += 1
                case InstallView(view, members, transitional, ring, seq, conf_id):
                    conf = (view, members, transitional, ring, seq, conf_id, self.views[node])
                    self.emit(Installed, node, *conf)
                    self.views[node] = view
                case Note(rule_, what, text, view_, members_):
                    self.emit(Noted, node, rule_, what, text, view_, members_)
        self.log[node].clear()
        del self.broadcasts[:-BAG]
        del self.unicasts[:-BAG]
        return effects

    def next_timer(self, *nodes: NodeId) -> tuple[int, NodeId, str] | None:
        """The timer that runs out first, at these processors or at all."""
        due = [(at, n, t) for n in nodes or self.machines for t, at in self.timers[n].items()]
        return min(due, default=None)

    def fire_next(self, *nodes: NodeId) -> None:
        """Let time pass until that timer runs out."""
        due = self.next_timer(*nodes)
        if due is not None:
            self.now_us = max(self.now_us, due[0])
            timer = next(t for t in self.timers[due[1]] if t == due[2])
            self.fire(due[1], timer)

    def tick(self) -> None:
        """The next thing in a world without faults: a frame takes 1 ms, timers are on time."""
        arrival_us = self.now_us + 1000
        self.flight += [(arrival_us, *sent) for sent in (*self.broadcasts, *self.unicasts)]
        self.lose()
        due = self.next_timer()
        if self.flight and (due is None or self.flight[0][0] <= due[0]):
            self.now_us, node, frame = self.flight.popleft()
            self.handle(node, frame)
        else:
            self.fire_next()

    def together(self) -> bool:
        """Whether all processors share one ring and nothing waits to be delivered."""
        machines = list(self.machines.values())
        return (
            set(self.phases()) == {Phase.OPERATIONAL}
            and len({m.my_ring_id for m in machines}) == 1
            and machines[0].my_memb == self.ids
            and {m.old.my_high_delivered for m in machines} == {max(m.old.my_aru for m in machines)}
            and not any(m.new_message_queue for m in machines)
        )


class Totem(RuleBasedStateMachine):
    """Three or four processors and everything that can happen to them."""

    world: World

    @initialize(n=st.integers(3, 4), settled=st.booleans())
    def begin(self, n: int, settled: bool) -> None:
        self.world = World(n)
        for node in self.world.ids:
            self.world.start(node)
        if settled:
            self.world.until_operational()

    def ran(self, name: str) -> None:
        RAN[name] += 1
        event(name)

    def lane(self, unicast: bool) -> list[tuple[NodeId, Received]]:
        """The frames to choose from; the other kind if there is none of this."""
        world = self.world
        first, second = world.broadcasts, world.unicasts
        return (second or first) if unicast else (first or second)

    def flying(self) -> bool:
        return bool(self.world.broadcasts or self.world.unicasts)

    def up(self) -> list[NodeId]:
        return sorted(self.world.machines)

    @rule(at=st.integers(0, 3), level=st.sampled_from(Level), size=st.sampled_from([1, 1, 1, 4000]))
    @precondition(lambda self: self.world.machines)
    def submit(self, at: int, level: Level, size: int) -> None:
        node = self.up()[at % len(self.up())]
        if self.world[node].ready:
            self.ran("submit")
            self.world.submit(node, bytes([node]) * size, level=level)

    @rule(frames=st.integers(1, 40))
    @precondition(flying)
    def deliver_in_order(self, frames: int) -> None:
        self.ran("deliver in order")
        for _ in range(frames):
            if self.flying():
                self.world.step()

    @rule(at=st.integers(0, BAG), unicast=st.booleans())
    @precondition(flying)
    def deliver_one(self, at: int, unicast: bool) -> None:
        self.ran("deliver one")
        lane = self.lane(unicast)
        node, frame = lane.pop(at % len(lane))
        if node in self.world.machines:
            self.world.handle(node, frame)

    @rule(at=st.integers(0, BAG), unicast=st.booleans())
    @precondition(flying)
    def drop(self, at: int, unicast: bool) -> None:
        self.ran("drop")
        lane = self.lane(unicast)
        lane.pop(at % len(lane))

    @rule(at=st.integers(0, BAG), unicast=st.booleans())
    @precondition(flying)
    def duplicate(self, at: int, unicast: bool) -> None:
        self.ran("duplicate")
        lane = self.lane(unicast)
        lane.append(lane[at % len(lane)])

    @rule()
    @precondition(lambda self: self.world.machines)
    def fire_earliest(self) -> None:
        self.ran("fire earliest")
        self.world.fire_next()

    @rule(at=st.integers(0, 3))
    @precondition(lambda self: self.world.machines)
    def fire_at_one(self, at: int) -> None:
        """One processor's clock is ahead, or the others stood still."""
        self.ran("fire at one")
        self.world.fire_next(self.up()[at % len(self.up())])

    @rule(at=st.integers(0, 3))
    @precondition(lambda self: len(self.world.machines) > 1)
    def crash(self, at: int) -> None:
        self.ran("crash")
        self.world.crash(self.up()[at % len(self.up())])

    @rule(at=st.integers(0, 3))
    @precondition(lambda self: len(self.world.machines) < len(self.world.ids))
    def restart(self, at: int) -> None:
        self.ran("restart")
        down = [node for node in self.world.ids if node not in self.world.machines]
        self.world.start(down[at % len(down)])

    @rule(sides=st.lists(st.booleans(), min_size=4, max_size=4), one_way=st.booleans())
    def partition(self, sides: list[bool], one_way: bool) -> None:
        self.ran("partition")
        for a in self.world.ids:
            for b in self.world.ids:
                if sides[a - 1] > sides[b - 1] or (not one_way and sides[a - 1] < sides[b - 1]):
                    self.world.cut.add((a, b))

    @rule()
    @precondition(lambda self: self.world.cut)
    def heal(self) -> None:
        self.ran("heal")
        self.world.cut.clear()

    @invariant()
    def every_property_holds(self) -> None:
        violations = self.world.suite.violations
        assert not violations, violations[0].explanation

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        target(float(min(world.deliveries, 20)), label="deliveries")
        world.cut.clear()
        for node in world.ids:
            if node not in world.machines:
                world.start(node)
        bound_us = world.now_us + SHEET.progress_bound_us(CONFIG, len(world.ids))
        while not world.together():
            assert world.now_us < bound_us, [m.snapshot() for m in world.machines.values()]
            world.tick()
            self.every_property_holds()
        world.suite.feed(Ended(world.now_us, world.ids))
        self.every_property_holds()
        bad = {tag: v for tag, v in world.suite.verdicts().items() if v == "invalid"}
        assert not bad


def test_every_property_holds_whatever_happens() -> None:
    RAN.clear()
    run_state_machine_as_test(
        Totem,
        settings=settings(
            max_examples=250,
            stateful_step_count=40,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    rules = {"submit", "deliver in order", "deliver one", "drop", "duplicate", "fire earliest",
             "fire at one", "crash", "restart", "partition", "heal"}  # fmt: skip
    assert RAN.keys() == rules
    assert min(RAN.values()) >= 20, RAN
