"""Replicas over simulated protocols: the engine on top of a real machine, with a disk that loses
what was not synced, and a judge who remembers everything that was ever confirmed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from random import Random
from typing import Any, ClassVar

import msgspec
from wrong_engines import RefusesInAMinority

import ringcast.protocols  # noqa: F401
from ringcast.core.effects import Deliver, InstallView, Stop
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId
from ringcast.core.inputs import Leaving, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Machine, Table
from ringcast.core.owned import Heard, Owned
from ringcast.core.registry import Sheet, protocol
from ringcast.replica import log as records
from ringcast.replica import words
from ringcast.replica.effects import (
    Apply,
    BarrierPassed,
    Became,
    Effect,
    Halt,
    Restore,
    Say,
    Sync,
    Write,
)
from ringcast.replica.engine import Engine
from ringcast.replica.log import Image, ReplicaLog
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import Fault, Heal, NetworkPartition, NodeCrash, Restart, schedule
from ringcast.sim.settle import heal_core
from ringcast.sim.swarm import draw

TICK_US = 200_000


class Up(StrEnum):
    ONLY = "up"


class Clock(StrEnum):
    DISK = "replica disk"
    TICK = "replica tick"


class Disk:
    """Records as bytes; a crash keeps those synced and some beginning of the others."""

    def __init__(self, rng: Random) -> None:
        self.records: list[bytes] = []
        self.synced = 0
        self._rng = rng

    def crash(self) -> None:
        keep = self._rng.randint(self.synced, len(self.records))
        del self.records[keep:]
        self.synced = keep

    def wipe(self) -> None:
        self.records.clear()
        self.synced = 0

    def load(self) -> ReplicaLog:
        return ReplicaLog.replay(map(records.decode, self.records))


class Wrong(AssertionError):
    """The promise is broken."""


class Judge:
    """What was ever applied at each place of the log, by anybody: there is one history."""

    def __init__(self) -> None:
        self.history: list[bytes] = []
        self.confirmed = 0
        """The last place whose result was returned to a client."""
        self.reads = 0

    def applied(self, node: NodeId, index: int, command: bytes, own: bool) -> None:
        if index > len(self.history) + 1:
            raise Wrong(f"p{node} applies {index} after {len(self.history)}")
        if index == len(self.history) + 1:
            self.history.append(command)
        elif self.history[index - 1] != command:
            raise Wrong(f"p{node} applies {command!r} at {index}, not {self.history[index - 1]!r}")
        if own:
            self.confirmed = max(self.confirmed, index)

    def restored(self, node: NodeId, at: int, state: bytes) -> None:
        if state != b" ".join(self.history[:at]):
            raise Wrong(f"p{node} restores another state at {at}")


class Replicated(Machine):
    """A protocol's machine with a replica on top; submissions are commands."""

    table: ClassVar[Table]

    def __init__(self, me: NodeId, inner: Machine, world: World) -> None:
        super().__init__()
        self.phase = Up.ONLY
        self.me, self._world = me, world
        self.below = Owned(inner, self.hear)
        self.parts = self
        self.disk = world.disks[me]
        self.disk.crash()
        self._words: deque[bytes] = deque()
        self._syncs: deque[int] = deque()
        self._reads: dict[words.Ticket, int] = {}
        self._applied = 0

    def start(self, env: Env, event: Started) -> None:
        world = self._world
        self.engine = world.engine(self.me, event.boot, world.members, self.disk.load(), piece=200)
        self.engine.start()
        self.below.handle(env, event)
        env.set_timer(Clock.TICK, TICK_US)
        self.go_on(env)

    def admit(self, env: Env, event: Received) -> bool:
        return True

    ports: Mapping[int, Any] = {}

    def route(self, env: Env, event: Any) -> bool:
        self.below.handle(env, event)
        self.go_on(env)
        return True

    @property
    def ready(self) -> bool:
        return len(self._words) < 20

    def snapshot(self) -> dict[str, object]:
        return {"replica": self.engine.phase, **self.below.machine.snapshot()}

    def hear(self, env: Env, heard: Heard) -> None:
        match heard:
            case Deliver(batch=batch):
                for body in batch.bodies:
                    self.engine.on_word(batch.sender, words.decode(body))
            case InstallView(view=view, members=members, transitional=transitional):
                if isinstance(self.engine, RefusesInAMinority):  # ours goes by words alone
                    self.engine.on_members(members)
                self.engine.on_view(view, transitional)
            case Stop(reason):
                env.stop(reason)

    def on_submitted(self, env: Env, event: Submitted) -> None:
        for body in event.bodies:
            if body == b"read":
                if (ticket := self.engine.read()) is not None:
                    self._reads[ticket] = self._world.judge.confirmed
            else:
                self.engine.submit(body)
        self.go_on(env)

    def on_leaving(self, env: Env, event: Leaving) -> None:
        self.below.handle(env, event)

    def on_disk(self, env: Env, event: TimerFired) -> None:
        """The oldest sync is done: everything written by then is safe."""
        ticket, upto = self._world.syncing[self.me].popleft()
        self.disk.synced = max(self.disk.synced, upto)
        self.engine.synced(ticket)
        if self._world.syncing[self.me]:
            env.set_timer(Clock.DISK, self._world.sync_us())
        self.go_on(env)

    def on_tick(self, env: Env, event: TimerFired) -> None:
        self.engine.tick()
        env.set_timer(Clock.TICK, TICK_US)
        self.go_on(env)

    def go_on(self, env: Env) -> None:
        """Carry out what the engine asks for, until it asks for nothing more."""
        engine, inner = self.engine, self.below.machine
        while True:
            for effect in engine.take():
                self.act(env, effect)
            if self._words and inner.ready:
                self.below.handle(env, Submitted((self._words.popleft(),), Level.AGREED))
            elif not engine.pending:
                break
        if engine.applied - engine.log.trimmed > self._world.compact_at:
            state = b" ".join(self._world.judge.history[: engine.applied])
            engine.compact(Image(engine.applied, state))
            for effect in engine.take():
                self.act(env, effect)

    def act(self, env: Env, effect: Effect) -> None:
        judge = self._world.judge
        match effect:
            case Say(word):
                self._words.append(words.encode(word))
            case Write(record):
                self.disk.records.append(records.encode(record))
                if type(record) is Image:
                    assert same(ReplicaLog.replay(self.engine.log.records()), self.engine.log)
            case Sync(ticket):
                waiting = self._world.syncing[self.me]
                waiting.append((ticket, len(self.disk.records)))
                if len(waiting) == 1:
                    env.set_timer(Clock.DISK, self._world.sync_us())
            case Apply(index, entry):
                own = entry.ticket.node == self.me and entry.ticket.boot == self.engine.boot
                if index != self._applied + 1:
                    raise Wrong(f"p{self.me} applies {index} to the state after {self._applied}")
                self._applied = index
                judge.applied(self.me, index, entry.command, own)
            case Restore(at, state):
                self._applied = at
                judge.restored(self.me, at, state)
            case BarrierPassed(ticket, index):
                judge.reads += 1
                if min(index, self._applied) < self._reads.pop(ticket):
                    raise Wrong(f"p{self.me}: a read at {index} misses what was confirmed")
            case Became(phase, why):
                env.note("replica", str(phase), why)
            case Halt(reason):
                env.stop(f"broken invariant: {reason}")


Replicated.table = Table(
    Up,
    (),
    Clock,
    {
        (Up.ONLY, Submitted): Replicated.on_submitted,
        (Up.ONLY, Leaving): Replicated.on_leaving,
        (Up.ONLY, Clock.DISK): Replicated.on_disk,
        (Up.ONLY, Clock.TICK): Replicated.on_tick,
    },
)


def same(one: ReplicaLog, other: ReplicaLog) -> bool:
    """Whether two logs say the same."""
    return vars(one) == vars(other)


class World:
    """One run, drawn from a seed as a swarm draws it, with replicas on top."""

    def __init__(
        self,
        seed: int,
        protocol_name: str = "totem",
        by_number: bool = False,
        engine: type[Engine] = Engine,
        moving: bool = False,
    ) -> None:
        self.engine = engine
        spec = draw(seed, protocol_name, 3 + 2 * (seed % 2) if moving else None)
        self.seed, self.spec = seed, spec
        self.rng = Random(f"{seed}/replica")
        sheet = protocol(protocol_name)
        config = sheet.for_group(
            msgspec.convert({**msgspec.to_builtins(sheet.default), **spec.config}, sheet.config),
            spec.ids,
        )
        self.members: int | frozenset[int] = spec.nodes if by_number else frozenset(spec.ids)
        self.judge = Judge()
        self.disks = {node: Disk(Random(f"{seed}/disk/{node}")) for node in spec.ids}
        self.syncing: dict[int, deque[tuple[int, int]]] = {n: deque() for n in spec.ids}
        self.compact_at = self.rng.choice((3, 10, 1000))
        self._sync_us = self.rng.choice((10, 300, 3_000))
        self.unit_us = sheet.progress_bound_us(config, spec.nodes) // 8 if moving else 0
        self.duration_us = 40 * self.unit_us if moving else spec.duration_us
        self.faults = self.moving() if moving else spec.faults
        if moving:
            self._sync_us = self.rng.choice((300, self.unit_us // 4))

        def make(me: NodeId, config: Any) -> Machine:
            self.syncing[me].clear()
            return Replicated(me, sheet.make(me, config), self)

        over: Sheet = msgspec.structs.replace(sheet, make=make, claims=lambda config: ())
        assert not isinstance(spec.network, str)
        self.cluster = Cluster(over, config, spec.ids, spec.network, seed, [lambda event: None])
        self.bound_us = sheet.progress_bound_us(config, spec.nodes)

    def sync_us(self) -> int:
        return self.rng.randint(1, self._sync_us)

    def valid(self, node: NodeId) -> bool:
        return self.disks[node].load().valid

    def lose_disk(self, node: NodeId) -> None:
        """Only while a majority of the disks, this one not among them, has what it promised."""
        others = [each for each in self.spec.ids if each != node and self.valid(each)]
        if len(others) > self.spec.nodes // 2 and self.cluster.nodes[node].machine is None:
            self.disks[node].wipe()

    def moving(self) -> tuple[Fault, ...]:
        """Cuts that move, and crashes of some or all, each lasting long enough for views to form:
        what tells a quorum of disks from less."""
        ids, rng = list(self.spec.ids), self.rng
        plan: list[Fault] = []
        at_us = 0
        while at_us < self.duration_us:
            at_us += rng.randint(self.unit_us // 2, 4 * self.unit_us)
            rng.shuffle(ids)
            some = ids[: rng.randint(1, len(ids))]
            kind = rng.random()
            if kind < 0.45:
                plan.append(NetworkPartition(at_us, (tuple(some), tuple(ids[len(some) :]))))
            elif kind < 0.6:
                plan.append(Heal(at_us))
            elif kind < 0.8:
                plan += [NodeCrash(at_us, node) for node in some]
            else:
                plan += [Restart(at_us, node) for node in some]
        return tuple(fault for fault in plan if fault.at_us <= self.duration_us)

    def run(self) -> None:
        """Clients that submit while things go wrong; then all is healed, and goes on."""
        cluster, spec = self.cluster, self.spec
        schedule(self.faults, cluster)
        for node in spec.ids:
            at_us = self.rng.randint(0, spec.stagger_us)
            cluster.scheduler.at(at_us, lambda node: cluster.start(node), node)
        times = [self.rng.randrange(1, self.duration_us) for _ in range(60)]
        for fault in self.faults if self.unit_us else ():  # bursts that a fault breaks off
            begin_us = max(1, fault.at_us - self.rng.randrange(1, 20_000))
            times += [begin_us + i for i in range(self.rng.randrange(12))]
        for number, at_us in enumerate(sorted(times), 1):
            node = self.rng.choice(spec.ids)
            body = b"read" if self.rng.random() < 0.2 else b"%d" % number
            cluster.scheduler.at(at_us, self.client, (node, body))
        if self.rng.random() < 0.5:
            for fault in self.faults:
                if isinstance(fault, Restart) and self.rng.random() < 0.5:
                    cluster.scheduler.at(max(0, fault.at_us - 1), self.lose_disk, fault.node)
        cluster.run_until(self.duration_us)
        self.check()

    def client(self, order: tuple[NodeId, bytes]) -> None:
        node, body = order
        self.cluster.submit(node, (body,))

    def check(self) -> None:
        if self.cluster.recorder.violations:
            raise Wrong(str(self.cluster.recorder.violations))

    def settle(self, core: tuple[NodeId, ...] | None = None) -> None:
        """Heal everybody; each commits something new, and all have the whole history."""
        cluster = self.cluster
        core = core or self.spec.ids
        heal_core(cluster, core, deaf=True)
        confirmed, deadline_us = self.judge.confirmed, cluster.now_us + 4 * self.bound_us
        fresh = {node: b"fresh %d" % node for node in core}
        waiting = dict(fresh)
        while cluster.now_us < deadline_us:
            waiting = {n: b for n, b in waiting.items() if not cluster.submit(n, (b,))}
            cluster.run_for(max(1, self.bound_us // 100))
            self.check()
            history = set(self.judge.history)
            if not waiting and history.issuperset(fresh.values()):
                engines = [cluster.machine(n).engine for n in core]  # type: ignore[attr-defined]
                if all(e.applied == len(self.judge.history) for e in engines):
                    assert len(self.judge.history) >= confirmed
                    return
        states = {n: cluster.machine(n).engine.phase for n in core}  # type: ignore[attr-defined]
        applied = {n: cluster.machine(n).engine.applied for n in core}  # type: ignore[attr-defined]
        raise Wrong(
            f"seed {self.seed}: no progress: {states} {applied} of {len(self.judge.history)}"
        )
