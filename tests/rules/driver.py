"""A bench for protocol machines: real machines, wired by hand, where nothing moves by itself.

A test starts a few processors, lets frames travel until the state it needs, then gives one input
and compares the effects. Broadcast frames travel before unicast ones (totem R3), both first in,
first out; timers are only recorded, and fire when a test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Generic, Self, TypeVar

import msgspec

from ringcast.blocks.packing import Contents
from ringcast.core.effects import (
    Broadcast,
    CancelTimer,
    Deliver,
    Effect,
    InstallView,
    Note,
    Persist,
    Send,
    SetTimer,
    Stop,
)
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId
from ringcast.core.inputs import Input, Message, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Machine
from ringcast.protocols.totem_single import Config, TotemSingle
from ringcast.protocols.totem_single.messages import (
    Entry,
    Join,
    Regular,
    RingId,
    Token,
)
from ringcast.protocols.totem_single.ring import Ring
from ringcast.protocols.totem_single.state import Phase as Phase
from ringcast.protocols.totem_single.state import Timer as Timer

PAPER = Config(adaptive=False, mutual=False, hold_us=0, miss_visits=0)
"""The dissertation's protocol: fixed window, literal consensus timeout, no rest for the token."""

RING = RingId(8, 1)
"""The first ring of processors that start together."""

E = TypeVar("E")
M = TypeVar("M", bound=Machine)


class Wires(Generic[M]):
    """Processors ``1 .. n`` of any protocol and the frames between them."""

    def __init__(self, n: int, make: Callable[[NodeId], M]) -> None:
        self.ids = tuple(range(1, n + 1))
        self.make = make
        self.machines: dict[NodeId, M] = {}
        self.envs: dict[NodeId, Env] = {}
        self.boots = dict.fromkeys(self.ids, 0)
        self.stable: dict[NodeId, dict[str, int]] = {node: {} for node in self.ids}
        self.timers: dict[NodeId, dict[str, int]] = {node: {} for node in self.ids}
        self.log: dict[NodeId, list[Effect]] = {node: [] for node in self.ids}
        self.broadcasts: list[tuple[NodeId, Received]] = []
        self.unicasts: list[tuple[NodeId, Received]] = []
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.now_us = 0

    def __getitem__(self, node: NodeId) -> M:
        return self.machines[node]

    # --- inputs: each returns the effects, which have been carried out ------------------------

    def start(self, node: NodeId) -> list[Effect]:
        """Start or restart a processor with what it has in stable storage."""
        self.boots[node] += 1
        self.machines[node] = self.make(node)
        self.envs[node] = Env(node, Random(f"bench/{node}"))
        self.timers[node] = {}
        return self.handle(node, Started(self.boots[node], dict(self.stable[node])))

    def crash(self, node: NodeId) -> None:
        """The processor is gone; its storage stays."""
        del self.machines[node]
        self.timers[node] = {}

    def receive(self, node: NodeId, message: Message, src: NodeId) -> list[Effect]:
        """Let a frame from ``src`` arrive at ``node``, whatever else is on its way."""
        return self.handle(node, Received(src, self.boots.get(src, 1), message))

    def fire(self, node: NodeId, timer: str) -> list[Effect]:
        """Let a timer that is set run out."""
        assert timer in self.timers[node], f"{timer} is not set at {node}"
        del self.timers[node][timer]
        return self.handle(node, TimerFired(timer))

    def submit(self, node: NodeId, *bodies: bytes, level: Level = Level.AGREED) -> list[Effect]:
        """Let the application of ``node`` send."""
        return self.handle(node, Submitted(bodies, level))

    def handle(self, node: NodeId, event: Input) -> list[Effect]:
        """Give one input to a machine and put what it sends on its way."""
        return self.do(node, lambda env: self.machines[node].handle(env, event))

    def do(self, node: NodeId, step: Callable[[Env], None]) -> list[Effect]:
        """Let a machine do something and put what it sends on its way."""
        env = self.envs[node]
        env.now_us = self.now_us
        step(env)
        effects = env.take()
        self.log[node] += effects
        for effect in effects:
            match effect:
                case Send(to, message):
                    if (node, to) not in self.cut:
                        self.unicasts.append((to, Received(node, self.boots[node], message)))
                case Broadcast(message):
                    frame = Received(node, self.boots[node], message)
                    others = [o for o in self.ids if o != node and (node, o) not in self.cut]
                    self.broadcasts += [(other, frame) for other in others]
                case SetTimer(timer, delay_us):
                    self.timers[node][timer] = self.now_us + delay_us
                case CancelTimer(timer):
                    self.timers[node].pop(timer, None)
                case Persist(key, value):
                    self.stable[node][key] = value
        return effects

    # --- frames on their way ------------------------------------------------------------------

    def step(self) -> tuple[NodeId, list[Effect]]:
        """Let the next frame arrive: where, and the effects there."""
        lane = self.broadcasts or self.unicasts
        node, frame = lane.pop(0)
        return node, self.handle(node, frame) if node in self.machines else []

    def run(self, until: Callable[[], bool], steps: int = 5000) -> None:
        """Let frames arrive until the condition holds."""
        for _ in range(steps):
            if until():
                return
            assert self.broadcasts or self.unicasts, "nothing is on its way any more"
            self.step()
        raise AssertionError("the condition was never met")

    def quiet(self) -> None:
        """Let all broadcast frames arrive, and no other."""
        while self.broadcasts:
            self.step()

    def lose(self) -> None:
        """Everything on its way is lost."""
        self.broadcasts.clear()
        self.unicasts.clear()


class Bench(Wires[TotemSingle]):
    """Processors ``1 .. n`` of Totem and the frames between them."""

    def __init__(self, n: int = 3, config: Config = PAPER, **settings: Any) -> None:
        self.config = msgspec.structs.replace(config, **settings)
        super().__init__(n, lambda node: TotemSingle(node, self.config))

    def visit(self, node: NodeId) -> list[Effect]:
        """Let the regular token travel on until ``node`` has accepted it; the effects there."""
        for _ in range(1000):
            self.quiet()
            at, effects = self.step()
            if at == node and sent(effects, Token):
                return effects
        raise AssertionError(f"no token came to {node}")

    def rotate(self, rotations: int = 1) -> None:
        """So many visits to processor 1, from one to the next."""
        for _ in range(rotations):
            self.visit(min(self.machines))

    # --- known states -------------------------------------------------------------------------

    def phase(self, node: NodeId) -> Phase:
        """The phase of a processor."""
        return self.machines[node].phase

    def phases(self) -> list[Phase]:
        """The phase of each processor that is up."""
        return [self.machines[node].phase for node in sorted(self.machines)]

    def to_ring(self) -> Self:
        """All start together and share ring (8,1); the token is on its way to processor 1."""
        for node in self.ids:
            self.start(node)
        self.until_operational()
        return self

    def until_operational(self) -> None:
        """Run until every processor is Operational and the token is due at the lowest one."""
        lowest = min(self.machines)
        self.run(
            until=lambda: (
                set(self.phases()) == {Phase.OPERATIONAL}
                and not self.broadcasts
                and [to for to, _ in self.unicasts] == [lowest]
            )
        )

    def to_gather(self, *nodes: NodeId) -> Bench:
        """These processors (or all) lose the token; nothing of what they say has arrived."""
        self.lose()
        for node in nodes or tuple(self.machines):
            self.fire(node, Timer.TOKEN_LOSS)
        return self

    def to_phase(self, node: NodeId, phase: Phase) -> Bench:
        """Run until ``node`` is in ``phase``."""
        self.run(until=lambda: self.machines[node].phase is phase)
        return self

    def reform(self, *nodes: NodeId) -> Bench:
        """The survivors agree, after a Consensus timeout, on a ring of their own."""
        self.to_gather(*nodes)
        self.quiet()
        for node in nodes:
            if Timer.CONSENSUS in self.timers[node]:
                self.fire(node, Timer.CONSENSUS)
        return self

    # --- frames that a peer would send --------------------------------------------------------

    def token(self, node: NodeId, **changes: object) -> Token:
        """The next regular token as ``node`` would get it on an idle ring, with changes."""
        machine = self.machines[node]
        arrives = machine.token.my_token_seq + len(machine.my_memb) - 1
        idle = Token(machine.my_ring_id, arrives, 0, 0, None, (), 0, False)
        return msgspec.structs.replace(idle, **changes)

    def message(
        self,
        seq: int,
        sender: NodeId = 3,
        level: Level = Level.AGREED,
        ring: RingId | None = None,
        body: bytes = b"x",
    ) -> Regular:
        """A message on the ring, as ``sender`` would number it."""
        ring_id = ring or next(iter(self.machines.values())).my_ring_id
        return Regular(sender, ring_id, seq, level, Contents(seq, (body,)))

    def join(
        self,
        sender: NodeId,
        proc: Iterable[NodeId],
        fail: Iterable[NodeId] = (),
        ring_seq: int = 8,
        rotation_count: int = 0,
    ) -> Join:
        """A Join with the bench's window."""
        window = self.config.window_size
        return Join(sender, ring_seq, tuple(proc), tuple(fail), rotation_count, window)


def entry(
    aru: int = 0,
    delivered: int = 0,
    ring: RingId = RING,
    done: RingId | None = None,
    memb: tuple[NodeId, ...] = (1, 2, 3),
) -> Entry:
    """What a member says of its old ring; ``done`` is the ring that completed the exchange."""
    return Entry(
        my_old_ring_id=ring,
        old_memb_crc=Ring(memb[0], ring, dict.fromkeys(memb, 1), 0).memb_crc,
        old_ring_my_aru=aru,
        my_received_flg=done is not None,
        my_high_delivered=delivered,
        received_in=done,
        boot=1,
    )


# --- reading effect lists ---------------------------------------------------------------------


def only(effects: Iterable[Effect], kind: type[E]) -> list[E]:
    """The effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(effects: Iterable[Effect], kind: type[E]) -> list[E]:
    """The messages of one kind that were sent or broadcast."""
    frames = (e.message for e in effects if isinstance(e, Send | Broadcast))
    return [message for message in frames if isinstance(message, kind)]


def set_timers(effects: Iterable[Effect]) -> dict[str, int]:
    """Timers that are set after the list, with their delays."""
    timers: dict[str, int] = {}
    for effect in effects:
        if isinstance(effect, SetTimer):
            timers[effect.timer] = effect.delay_us
        elif isinstance(effect, CancelTimer):
            timers.pop(effect.timer, None)
    return timers


def cancelled(effects: Iterable[Effect]) -> set[str]:
    """Timers the list cancels."""
    return {str(effect.timer) for effect in effects if isinstance(effect, CancelTimer)}


def drops(effects: Iterable[Effect]) -> list[str]:
    """Why inputs were dropped."""
    return [note.text for note in only(effects, Note) if note.what == "drop"]


def stops(effects: Iterable[Effect]) -> list[str]:
    """Why the processor stopped."""
    return [stop.reason for stop in only(effects, Stop)]


def only_dropped(effects: list[Effect]) -> bool:
    """Whether the input had no effect but to be counted."""
    return len(effects) == 1 and bool(drops(effects))


def deliveries(effects: Iterable[Effect]) -> list[tuple[RingId, int]]:
    """What was delivered: the configuration and the number on the ring."""
    return [(d.view, d.batch.seq) for d in only(effects, Deliver)]


def upcalls(effects: Iterable[Effect]) -> list[object]:
    """What the application saw, in order: numbers of messages, and views with a ``T`` or ``R``."""
    seen: list[object] = []
    for effect in effects:
        if isinstance(effect, Deliver):
            seen.append(effect.batch.seq)
        elif isinstance(effect, InstallView):
            kind = "T" if effect.transitional else "R"
            seen.append((kind, effect.view.seq, effect.view.rep, effect.members))
    return seen
