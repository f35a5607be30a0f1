"""SimNode: one processor. A machine, and all that a machine takes for granted.

Frames wait in two lanes, broadcast and unicast, and the broadcast lane is emptied first. A node
that is neither paused nor busy has empty lanes: a frame is then handled the moment it arrives.
Effects are carried out in list order; on a processor whose work takes time (``CpuModel``), each at
the moment the work before it is done.
"""

from __future__ import annotations

import traceback
from collections import Counter, deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from ringcast.checks import Violation
from ringcast.core.effects import (
    Broadcast,
    CancelTimer,
    Deliver,
    Effect,
    InstallView,
    Note,
    Originate,
    Persist,
    Send,
    SetTimer,
    Stop,
    Uncertain,
    Up,
)
from ringcast.core.env import Env
from ringcast.core.errors import STORAGE_LOST
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Input, Leaving, Received, Started, Submitted, Timer, TimerFired
from ringcast.core.machine import Machine, name
from ringcast.core.scribe import Scribe
from ringcast.sim.network import Network, wire_bytes
from ringcast.sim.record import Recorder
from ringcast.sim.scheduler import TIMER, Scheduler
from ringcast.sim.storage import Storage, StorageFailed
from ringcast.sim.view_contract import ViewContract

DEFECTS = ("impossible input", "broken invariant")
"""A machine that stops with such a reason has found a defect of its own."""

TORN = Stop("torn")
"""Stands in for the effects that a torn crash prevents."""


class Jack:
    """Where frames come in at a port of a processor other than its first."""

    def __init__(self, node: SimNode, port: int) -> None:
        self.node, self._port = node, port

    def hear(self, frame: Received) -> None:
        """A broadcast frame arrives."""
        self.node.hear(Received(frame.src, frame.boot, frame.message, self._port))

    def hear_unicast(self, frame: Received) -> None:
        """A unicast frame arrives."""
        self.node.hear_unicast(Received(frame.src, frame.boot, frame.message, self._port))


class SimNode:
    """A processor over all its incarnations."""

    def __init__(
        self,
        node: NodeId,
        make: Callable[[], Machine],
        seed: str,
        scheduler: Scheduler,
        recorder: Recorder,
        ports: Sequence[tuple[Network, NodeId]],
    ) -> None:
        self.id = node
        self.incarnation = 0
        self.machine: Machine | None = None
        """None while the processor is down."""
        self.storage = Storage()
        self.paused = False
        self.leaving = False
        """Whether its application has said that it leaves; it stops when the protocol lets it."""
        self.visits: Counter[str] = Counter()
        """Cells of the dispatch table reached by earlier incarnations."""
        self._make = make
        self._seed = seed
        self._scheduler = scheduler
        self._ports = tuple(ports)
        """The broadcast domain at each port, and this processor's id in it."""
        self._network = network = ports[0][0]
        self._recorder = recorder
        self._counts = recorder.counts
        self._cpu = network.model.cpu
        self._chance = Random(f"{seed}/world/{node}")
        self._scribe = Scribe(node, recorder.emit)
        self._views = ViewContract()
        self._env = Env(node, self._chance)
        self.boot = 0
        self._idle = False
        self._at_us = 0
        """When the effect being carried out happens; later than now while work takes time."""
        self._broadcasts: deque[Received] = deque()
        self._unicasts: deque[Received] = deque()
        self._deadlines: dict[Timer, int] = {}
        self._armed: dict[Timer, int] = {}
        """When the agenda will next look at a timer, never later than its deadline."""
        self._tear: type | None = None
        self._ppm = 0
        self._drifts = False
        self._clock = (0, 0)
        """A moment of virtual time and what this processor's clock showed then."""
        self._acts: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Broadcast: self._broadcast,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            Persist: self._persist,
            Originate: self._originate,
            Deliver: self._deliver,
            InstallView: self._install_view,
            Stop: self._stop,
            Note: self._note,
            Uncertain: self._uncertain,
            Up: self._ignore,
        }

    # What the world does to a processor: each says whether it had an effect.
    def start(self, storage_kept: bool = True) -> bool:
        """Start, or start again."""
        if self.machine is not None:
            return False
        if not storage_kept:
            self.storage.wipe()
        self.incarnation += 1
        self.machine = self._make()
        self._views = ViewContract()
        self._env = Env(self.id, Random(f"{self._seed}/node/{self.id}/{self.incarnation}"))
        self.boot = self.incarnation - 1 << 20 | self._chance.getrandbits(20)  # rises, as live
        self._idle = True
        self._at_us = max(self._at_us, self._scheduler.now_us)
        self._scribe.started(self._at_us, self.incarnation, storage_kept)
        ports = tuple(me for _, me in self._ports) if len(self._ports) > 1 else ()
        self._handle(Started(self.boot, self.storage.read(), ports), 0)
        return True

    def crash(self, reason: str = "") -> bool:
        """Lose everything but stable storage."""
        if self.machine is None:
            return False
        for (phase, key), times in self.machine.visits.items():
            self.visits[f"{phase}/{name(key)}"] += times
        self.machine = None
        self.paused = self.leaving = self._idle = False
        self._tear = None
        for waiting in (self._broadcasts, self._unicasts, self._deadlines, self._armed):
            waiting.clear()
        self._at_us = max(self._at_us, self._scheduler.now_us)
        self._scribe.crashed(self._at_us, reason)
        return True

    def pause(self) -> bool:
        """Stand still, as after SIGSTOP: frames wait, timers run out unheard."""
        if self.machine is None or self.paused:
            return False
        self.paused = True
        self._idle = False
        return True

    def resume(self) -> bool:
        """Go on: what waits in the lanes first, then the timers that ran out."""
        if not self.paused:
            return False
        self.paused = False
        self._scheduler.at(max(self._scheduler.now_us, self._at_us), self._wake)
        return True

    def tear(self, within: type) -> bool:
        """Crash inside the next effect list that holds an effect of type ``within``."""
        if self.machine is None:
            return False
        self._tear = within
        return True

    def expire(self, timer: str) -> bool:
        """Let a timer that is set run out now, as if the clock had jumped."""
        for each in self._deadlines:
            if each == timer:
                now_us = max(self._scheduler.now_us, self._at_us)
                self._deadlines[each] = now_us
                self._arm(each, now_us)
                return True
        return False

    def disarm(self) -> None:
        """Take back a tear or a storage failure that has not happened yet."""
        self._tear = None
        self.storage.work()

    def drift(self, ppm: int) -> bool:
        """Let the clock gain ``ppm`` microseconds a second from now on."""
        now_us = self._scheduler.now_us
        self._clock = (now_us, self.clock_us(now_us))
        self._ppm = ppm
        self._drifts = True
        return True

    def clock_us(self, t_us: int) -> int:
        """What this processor's clock shows at ``t_us``."""
        since_us, shown_us = self._clock
        return shown_us + (t_us - since_us) * (1_000_000 + self._ppm) // 1_000_000

    @property
    def ready(self) -> bool:
        """Whether a submission would be accepted now."""
        return self.machine is not None and not self.paused and self.machine.ready

    def submit(self, event: Submitted) -> bool:
        """Hand the application's messages to the machine, unless it is not ready for them."""
        if not self.ready:
            return False
        if self._recorder.observers and event.wants is None:
            at_us = max(self._at_us, self._scheduler.now_us)
            self._scribe.submitted(at_us, event.bodies, event.level, event.to, event.group)
        self._counts.submitted += len(event.bodies)
        self._handle(event, 0)
        return True

    def leave(self) -> bool:
        """Let the application leave for good, as the protocol does that."""
        if self.machine is None or self.paused:
            return False
        self.leaving = True
        self._handle(Leaving(), 0)
        return True

    # Frames and timers come in.

    def hear(self, frame: Received) -> None:
        """A broadcast frame arrives."""
        if self._idle:
            self._receive(frame)
        else:
            self._wait(self._broadcasts, frame)

    def hear_unicast(self, frame: Received) -> None:
        """A unicast frame arrives."""
        if self._idle:
            self._receive_unicast(frame)
        else:
            self._wait(self._unicasts, frame)

    def _wait(self, lane: deque[Received], frame: Received) -> None:
        if self.machine is None:
            self._counts.lost["down"] += 1
        elif len(lane) >= self._network.model.receive_buffer:
            self._counts.lost["buffer full"] += 1
        else:
            lane.append(frame)

    def _receive(self, frame: Received) -> None:
        self._counts.handled += 1
        cpu = self._cpu
        if cpu is None:
            self._handle(frame, 0)
        else:
            cost = cpu.receive_us + cpu.receive_us_per_byte * wire_bytes(frame.message)
            self._handle(frame, round(cost))

    def _receive_unicast(self, frame: Received) -> None:
        self._counts.handled += 1
        self._handle(frame, 0 if self._cpu is None else round(self._cpu.unicast_receive_us))

    def _timer_due(self, timer: Timer) -> None:
        """Look at a timer. Protocols set timers again far more often than these run out."""
        now_us = self._scheduler.now_us
        if self._armed.get(timer) != now_us:
            return  # an earlier deadline replaced this one, or another incarnation set it
        del self._armed[timer]
        deadline_us = self._deadlines.get(timer)
        if deadline_us is None:
            return
        if deadline_us > now_us:
            self._arm(timer, deadline_us)
        elif self._idle:
            self._fire(timer)

    def _fire(self, timer: Timer) -> None:
        del self._deadlines[timer]
        self._handle(TimerFired(timer), 0)

    def _wake(self, _: None) -> None:
        """Catch up after a pause or after work, until there is work again or nothing is left."""
        if self.machine is None or self.paused or self._at_us > self._scheduler.now_us:
            return  # not meant for now: something else has happened since
        self._idle = True
        while self._idle:
            if self._broadcasts:
                self._receive(self._broadcasts.popleft())
            elif self._unicasts:
                self._receive_unicast(self._unicasts.popleft())
            else:
                now_us = self._scheduler.now_us
                over = [
                    (at, str(timer), timer)
                    for timer, at in self._deadlines.items()
                    if at <= now_us and timer not in self._armed  # else the agenda has it
                ]
                due = min(over, default=None)
                if due is None:
                    return
                self._fire(due[2])

    # The machine acts.

    def _handle(self, event: Input, work_us: int) -> None:
        """Let the machine handle one input, after ``work_us`` of work, and do as it says."""
        machine, env, now_us = self.machine, self._env, self._scheduler.now_us
        assert machine is not None
        if self._at_us < now_us:
            self._at_us = now_us
        self._at_us += work_us
        env.now_us = self.clock_us(self._at_us) if self._drifts else self._at_us
        try:
            machine.handle(env, event)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(event).__name__} at {last.name}, line {last.lineno} of {last.filename}"
            self._break(f"exception: {type(error).__name__}: {error} (handling {where})")
            return
        if env.effects:
            effects = env.take()
            if self._network.model.burst_tail is not None:
                effects = self._network.trim_burst(effects)
            if self._tear is not None:
                effects = self._torn(effects)
            acts = self._acts
            for effect in effects:
                acts[type(effect)](effect)
                if self.machine is None:
                    return
        if self._at_us > now_us:
            self._idle = False
            if not self.paused:
                self._scheduler.at(self._at_us, self._wake)

    def _torn(self, effects: list[Effect]) -> list[Effect]:
        """What is carried out of ``effects`` before the crash that has been waiting for them."""
        if not any(isinstance(effect, self._tear) for effect in effects):  # type: ignore[arg-type]
            return effects
        return [*effects[: self._chance.randrange(len(effects))], TORN]

    def _break(self, reason: str) -> None:
        """The machine is defective: say so and end the processor."""
        t_us = self._scheduler.now_us
        explanation = f"p{self.id} at {t_us} us: {reason}"
        violation = Violation("no-crash", explanation, (self.id,), (), t_us)
        self._recorder.violations.append(violation)
        self._scheduler.halted = True
        self.crash(reason)

    def _send(self, effect: Send) -> None:
        network, me = self._ports[effect.port]
        frame = Received(me, self.boot, effect.message)
        cpu = self._cpu
        if cpu is None:
            network.send(effect.to, frame)
            return
        self._at_us += round(cpu.unicast_send_us)
        self._scheduler.at(self._at_us, self._put_unicast, (network, effect.to, frame))

    def _put_unicast(self, addressed: tuple[Network, NodeId, Received]) -> None:
        network, to, frame = addressed
        network.send(to, frame)

    def _broadcast(self, effect: Broadcast) -> None:
        network, me = self._ports[effect.port]
        frame = Received(me, self.boot, effect.message)
        cpu = self._cpu
        if cpu is None:
            network.broadcast(frame)
            return
        cost = cpu.send_us + cpu.send_us_per_byte * wire_bytes(frame.message)
        self._scheduler.at(self._at_us, network.broadcast, frame)
        self._at_us += round(cost)

    def _set_timer(self, effect: SetTimer) -> None:
        delay_us = effect.delay_us
        if self._ppm:
            delay_us = delay_us * 1_000_000 // (1_000_000 + self._ppm)
        deadline_us = self._at_us + delay_us
        timer = effect.timer
        self._deadlines[timer] = deadline_us
        armed_us = self._armed.get(timer)
        if armed_us is None or armed_us > deadline_us:
            self._arm(timer, deadline_us)

    def _arm(self, timer: Timer, at_us: int) -> None:
        self._armed[timer] = at_us
        self._scheduler.at(at_us, self._timer_due, timer, TIMER)

    def _cancel_timer(self, effect: CancelTimer) -> None:
        self._deadlines.pop(effect.timer, None)

    def _persist(self, effect: Persist) -> None:
        try:
            self.storage.persist(effect.key, effect.value)
        except StorageFailed as failure:
            self._counts.faults["storage failure"] += 1
            self.crash(str(failure))

    def _originate(self, effect: Originate) -> None:
        if self._recorder.observers:
            self._scribe.originated(self._at_us, effect)

    def _deliver(self, effect: Deliver) -> None:
        self._counts.deliveries += len(effect.batch.bodies)
        if self._recorder.observers:
            self._scribe.delivered(self._at_us, effect)

    def _install_view(self, effect: InstallView) -> None:
        self._counts.views += 1
        self._scribe.installed(self._at_us, effect)
        if broken := self._views.broken_by(effect):
            self._break(f"broken invariant: {broken}")

    def _stop(self, effect: Stop) -> None:
        if effect is TORN:
            self._counts.faults["torn crash"] += 1
            self.crash()
        elif effect.reason.startswith(DEFECTS):
            self._break(effect.reason)
        elif self.incarnation == 1 and effect.reason.startswith(STORAGE_LOST):
            self._break(f"broken invariant: {effect.reason}; but it never took part before")
        else:
            self.crash(effect.reason)

    def _uncertain(self, effect: Uncertain) -> None:
        if self._recorder.observers:
            self._scribe.uncertain(self._at_us, effect)

    def _ignore(self, effect: Up) -> None:
        """The machine has no owner here."""

    def _note(self, effect: Note) -> None:
        if self._recorder.observers:
            self._scribe.noted(self._at_us, effect)
