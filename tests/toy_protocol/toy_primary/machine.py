"""The toy's machine."""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import Any, ClassVar

from ringcast.blocks.packing import Assembler, Contents, Outbox
from ringcast.core.effects import Departure, InstallView, PackedMessages, Reason
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.inputs import Leaving, Received, Started, Submitted
from ringcast.core.machine import Cell, Discard, Key, Machine, Table
from toy_primary.messages import Ack, Knock, Leads, Order, Prepare, Promise, Request
from toy_primary.settings import Config

MESSAGES = (Prepare, Promise, Leads, Knock, Request, Order, Ack)
PROMISED = "promised"
REPEATED = 8
"""Orders sent once more to a member at a time."""


class Phase(StrEnum):
    """Where a member is."""

    SEEKING = "seeking"
    FORMING = "forming"
    FOLLOWING = "following"
    LEADING = "leading"


class Timer(StrEnum):
    """The only one."""

    TICK = "toy tick"


class Toy(Machine):
    """One member."""

    table: ClassVar[Table]

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__()
        self.me, self.config = me, config
        self.rank = config.members.index(me)
        self.phase = Phase.SEEKING
        self.promised = self.floor = self.high = 0
        self.since_us = 0
        """When this phase began."""
        self.leader: NodeId = me
        self.boot = 0
        """Of whom I promised to follow: one that lost its memory may take the epoch again."""
        self.leader_us = -1
        """When a coordinator was last heard; -1 = never."""
        self.outside = False
        """Whether it leads a view that I am not in."""
        self.outbox: Outbox[Level] = Outbox(
            config.max_queue, config.min_queue, config.max_queue_bytes, config.packing
        )
        self.own: deque[tuple[Request, int]] = deque()
        """What I asked for and have not delivered, and how many messages end with it."""
        self.heard_us: dict[NodeId, int] = {}
        self.knocks: set[NodeId] = set()
        self.installed: tuple[NodeId, ...] = ()
        """The members of the view that the application knows."""
        self.forget_view()

    def forget_view(self) -> None:
        """Nothing of a view is carried over to the next."""
        self.members: tuple[NodeId, ...] = ()
        self.orders: dict[int, Order] = {}
        self.got = self.commit = self.delivered = self.requests = 0
        self.acked: dict[NodeId, int] = {}
        self.asked: dict[NodeId, int] = {}
        self.numbering = Assembler(self.config.max_message)
        self.assembler = Assembler(self.config.max_message)

    @property
    def view(self) -> ViewId:
        """The view of the epoch I promised to follow."""
        return ViewId(self.promised, self.leader)

    @property
    def ready(self) -> bool:
        """Whether a submission is accepted."""
        return self.outbox.ready

    def snapshot(self) -> dict[str, object]:
        """What a person would ask for."""
        return {
            "phase": self.phase,
            "promised": self.promised,
            "members": self.members,
            "got": self.got,
            "commit": self.commit,
            "delivered": self.delivered,
        }

    def start(self, env: Env, event: Started) -> None:
        """Nothing of an earlier life is followed: its epochs are behind the floor."""
        self.promised = self.floor = self.high = event.stable.get(PROMISED, 0)
        self.since_us = env.now_us
        env.set_timer(Timer.TICK, self.config.beat_us)

    def admit(self, env: Env, event: Received) -> bool:
        """Frames of other members."""
        if event.src == self.me or event.src not in self.config.members:
            env.drop("toy", "not from another member")
            return False
        return True

    # Epochs.

    def enter(self, env: Env, phase: Phase) -> None:
        env.note("toy", "phase", f"{self.phase} -> {phase}")
        self.phase = phase
        self.since_us = env.now_us

    def promise(self, env: Env, epoch: int) -> None:
        """Leave the view, and follow nothing older than ``epoch``."""
        for request, count in self.own:
            if count:
                env.uncertain(request.contents.first, count)
        self.own.clear()
        self.outbox.rewind()
        self.forget_view()
        self.outside = False
        self.promised = epoch
        self.high = max(self.high, epoch)
        env.persist(PROMISED, epoch)

    def form(self, env: Env) -> None:
        """Ask for promises for an epoch of my own."""
        n = self.config.n
        self.promise(env, (self.high // n + 1) * n + self.rank)
        self.leader = self.me
        self.knocks.clear()
        self.heard_us = {}
        self.enter(env, Phase.FORMING)
        self.offer(env)

    def offer(self, env: Env) -> None:
        """Ask, and lead if enough have answered."""
        waited_us = env.now_us - self.since_us
        found = len(self.heard_us) + 1
        n = self.config.n
        if found == n or (2 * found > n and waited_us >= self.config.form_us):
            self.lead(env)
        elif waited_us > self.config.silence_us:
            self.leader_us = -1
            self.enter(env, Phase.SEEKING)
        else:
            env.broadcast(Prepare(self.promised))

    def lead(self, env: Env) -> None:
        """Those who promised are the view."""
        self.members = tuple(sorted((self.me, *self.heard_us)))
        self.knocks -= set(self.members)
        self.acked = dict.fromkeys(self.heard_us, 0)
        self.heard_us = dict.fromkeys(self.heard_us, env.now_us)
        self.enter(env, Phase.LEADING)
        env.note("toy", "formed", "", self.view, self.members, (self.config.n,))
        self.install(env)
        env.broadcast(Leads(self.promised, self.members, 0, True))
        self.pump(env)

    def install(self, env: Env) -> None:
        what = f"{self.leader} leads without it"
        gone = tuple(
            Departure(q, Reason.SILENT, what) for q in self.installed if q not in self.members
        )
        self.installed = self.members
        env.install_view(InstallView(self.view, self.members, False, self.view, 0, None, gone))

    def on_prepare(self, env: Env, event: Received) -> None:
        epoch = event.message.epoch  # type: ignore[attr-defined]
        if epoch > self.promised:
            self.promise(env, epoch)
            self.leader, self.leader_us, self.boot = event.src, env.now_us, event.boot
            self.enter(env, Phase.SEEKING)
        if epoch == self.promised and event.boot == self.boot:
            env.send(event.src, Promise(epoch))
        else:
            env.send(event.src, Knock(self.promised))

    def on_promise(self, env: Env, event: Received) -> None:
        if event.message.epoch == self.promised:  # type: ignore[attr-defined]
            self.heard_us[event.src] = env.now_us
            if len(self.heard_us) + 1 == self.config.n:
                self.offer(env)

    def on_knock(self, env: Env, event: Received) -> None:
        self.high = max(self.high, event.message.high)  # type: ignore[attr-defined]
        self.knocks.add(event.src)

    def on_leads(self, env: Env, event: Received) -> None:
        word: Any = event.message
        self.high = max(self.high, word.epoch)
        if word.epoch < self.promised:
            return
        if word.epoch > self.promised and self.phase in (Phase.FOLLOWING, Phase.LEADING):
            self.enter(env, Phase.SEEKING)
        mine = word.epoch == self.promised > self.floor and event.boot == self.boot
        mine = mine and self.me in word.members
        if self.phase is Phase.SEEKING:
            self.leader_us = env.now_us
            self.outside = not mine or bool(self.members)  # I left this one
            if self.outside:
                self.leader = event.src
                return
            self.leader, self.members = event.src, word.members
            self.enter(env, Phase.FOLLOWING)
            self.install(env)
            self.pump(env)
        if self.phase is Phase.FOLLOWING and mine:
            self.leader_us = env.now_us
            self.advance(env, word.commit)
            if word.beat:
                env.send(self.leader, Ack(self.promised, self.got))

    def on_tick(self, env: Env, event: object) -> None:
        """Everything that takes time."""
        config = self.config
        env.set_timer(Timer.TICK, config.beat_us)
        quiet_us = env.now_us - max(self.leader_us, self.since_us)
        match self.phase:
            case Phase.SEEKING if 0 <= self.leader_us > env.now_us - config.silence_us:
                if self.outside:
                    env.send(self.leader, Knock(self.promised))
            case Phase.SEEKING:
                if quiet_us > config.form_us + self.rank * config.silence_us // 2:
                    self.form(env)
            case Phase.FORMING:
                self.offer(env)
            case Phase.FOLLOWING:
                if env.now_us - self.leader_us > config.silence_us:
                    self.leader_us = -1
                    self.enter(env, Phase.SEEKING)
                for request, _ in list(self.own)[:REPEATED]:
                    env.send(self.leader, request)
            case Phase.LEADING:
                self.preside(env)

    def preside(self, env: Env) -> None:
        """Form a new view if somebody is missing or wants to come, else say that this one is."""
        config = self.config
        missing = [q for q, at in self.heard_us.items() if env.now_us - at > config.silence_us]
        wanted = self.knocks and env.now_us - self.since_us > config.silence_us // 2
        if missing or wanted:
            self.form(env)
            return
        env.broadcast(Leads(self.promised, self.members, self.commit, True))
        for q, got in self.acked.items():
            for seq in range(got + 1, min(self.got, got + REPEATED) + 1):
                env.send(q, self.orders[seq])

    # Messages.

    def on_submitted(self, env: Env, event: Submitted) -> None:
        if not self.outbox.takes(event.bodies, self.config.max_message):
            env.drop("toy", "a submission over the bounds")
            return
        self.outbox.put(event.bodies, event.level)
        if self.phase in (Phase.FOLLOWING, Phase.LEADING):
            self.pump(env)

    def pump(self, env: Env) -> None:
        """Ask for numbers, or give them out."""
        while len(self.own) < self.config.window:
            taken = self.outbox.take(self.config.frame_budget)
            if taken is None:
                break
            level, contents, whole = taken
            self.requests += 1
            request = Request(self.promised, self.requests, level, contents)
            self.own.append((request, len(whole)))
            if self.phase is Phase.LEADING:
                self.number(env, self.me, level, contents)
            else:
                env.send(self.leader, request)

    def number(self, env: Env, sender: NodeId, level: Level, contents: Contents) -> None:
        """The next number is this frame's."""
        self.got += 1
        order = Order(self.promised, self.got, self.commit, sender, level, contents)
        self.orders[self.got] = order
        bodies = self.numbering.add(sender, contents)
        if bodies is not None:
            env.originate(self.batch(order, bodies))
        env.broadcast(order)
        self.settle(env)

    def batch(self, order: Order, bodies: tuple[bytes, ...]) -> PackedMessages:
        first = order.contents.first
        return PackedMessages(self.view, order.seq, order.sender, order.level, first, bodies)

    def on_request(self, env: Env, event: Received) -> None:
        request: Any = event.message
        if request.epoch != self.promised or event.src not in self.acked:
            return
        self.heard_us[event.src] = env.now_us
        if request.number == self.asked.get(event.src, 0) + 1:
            self.asked[event.src] = request.number
            self.number(env, event.src, request.level, request.contents)

    def on_order(self, env: Env, event: Received) -> None:
        order: Any = event.message
        if order.epoch != self.promised:
            return
        self.leader_us = env.now_us
        if order.seq > self.delivered:
            self.orders[order.seq] = order
        while self.got + 1 in self.orders:
            self.got += 1
        env.send(self.leader, Ack(self.promised, self.got))
        self.advance(env, order.commit)

    def on_ack(self, env: Env, event: Received) -> None:
        word: Any = event.message
        if word.epoch != self.promised or event.src not in self.acked:
            return
        self.heard_us[event.src] = env.now_us
        self.acked[event.src] = max(self.acked[event.src], word.got)
        self.settle(env)

    def settle(self, env: Env) -> None:
        """What all of the view have is committed."""
        commit = min([self.got, *self.acked.values()])
        if commit > self.commit:
            self.advance(env, commit)
            env.broadcast(Leads(self.promised, self.members, commit, False))

    def advance(self, env: Env, commit: int) -> None:
        """Deliver what is committed."""
        self.commit = max(self.commit, commit)
        while self.delivered < min(self.commit, self.got):
            self.delivered += 1
            order = self.orders[self.delivered]
            if self.phase is Phase.FOLLOWING or all(
                got >= self.delivered for got in self.acked.values()
            ):
                del self.orders[self.delivered]
            bodies = self.assembler.add(order.sender, order.contents)
            if bodies is not None:
                env.deliver(self.view, self.batch(order, bodies))
            if order.sender == self.me:
                self.own.popleft()
        if self.phase in (Phase.FOLLOWING, Phase.LEADING):
            self.pump(env)

    def on_leaving(self, env: Env, event: object) -> None:
        env.stop("left")


LATE = Discard("toy", "of a view that is not mine")
CELLS: dict[tuple[StrEnum, Key], Cell] = {
    **{(phase, key): LATE for phase in Phase for key in MESSAGES},
    **{(phase, Submitted): Toy.on_submitted for phase in Phase},
    **{(phase, Leaving): Toy.on_leaving for phase in Phase},
    **{(phase, Timer.TICK): Toy.on_tick for phase in Phase},
    **{(phase, Prepare): Toy.on_prepare for phase in Phase},
    **{(phase, Leads): Toy.on_leads for phase in Phase},
    **{(phase, Knock): Toy.on_knock for phase in Phase},
    (Phase.FORMING, Promise): Toy.on_promise,
    (Phase.FOLLOWING, Order): Toy.on_order,
    (Phase.LEADING, Request): Toy.on_request,
    (Phase.LEADING, Ack): Toy.on_ack,
}

Toy.table = Table(Phase, MESSAGES, Timer, CELLS)
