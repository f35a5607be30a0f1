"""Host: an asyncio shell around one machine.

Frames, timers and submissions go in, one at a time; effects come out and are carried out in
order. ``Persist`` is on disk before the next effect, so no frame that depends on it can leave
earlier. Nothing here knows which protocol runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Protocol

import msgspec

from ringcast.core.effects import (
    Batch,
    Broadcast,
    CancelTimer,
    Deliver,
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
from ringcast.core.errors import NodeStopped, RingcastError, StorageError
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.inputs import Input, Leaving, Started, Submitted, Timer, TimerFired
from ringcast.core.scribe import Scribe
from ringcast.runtime.clock import TICK_US, ActiveClock
from ringcast.runtime.config import NodeConfig
from ringcast.runtime.discovery import NO_ADDRESS, Hello, PeerBook, Place
from ringcast.runtime.fault_injection import Shim
from ringcast.runtime.priority import Priority
from ringcast.runtime.send_batching import BURST, LAST, WITH_FRAMES, Letters, in_runs
from ringcast.runtime.store import Store
from ringcast.runtime.tracelog import TraceLog
from ringcast.runtime.udp import Udp
from ringcast.runtime.udp_offload import MOST_IN_RUN
from ringcast.wire import address
from ringcast.wire.address import Address
from ringcast.wire.codec import Codec, Lane
from ringcast.wire.keys import KeyFile

HELLO_S = 1.0
"""How often a node with seeds says where it is."""

EARLY_US = 1_000
"""Timers are due so much earlier: loops count milliseconds, and uvloop's may wake us before the
time, only to be asked for a fraction of one more. An idle ring takes a third less this way."""

STALL_SHARE = 0.5
"""How much of the patience with a silent member all may stall together for slow readers."""


class Listener(Protocol):
    """Who hears what the machine has for the application."""

    def on_deliver(self, view: ViewId, batch: Batch) -> None:
        """Messages in total order."""

    def on_view(self, change: InstallView) -> None:
        """A change of configuration, at its place in the order."""

    def on_uncertain(self, first: int, count: int) -> None:
        """Submissions ``first ..`` will not be delivered here, and whether elsewhere is unknown."""

    def on_quiet(self) -> None:
        """Everything at hand has been handled; the time to wake waiting tasks."""

    def on_stop(self, reason: str) -> None:
        """The node has ended."""


class Host:
    """One live processor."""

    def __init__(self, config: NodeConfig, listener: Listener) -> None:
        self.config = config.check()
        self._listener = listener
        self.keys = KeyFile(Path(config.key_file)) if config.key_file else None
        self._shim: Shim | None = None
        self._trace: TraceLog | None = None
        self._scribe: Scribe | None = None
        self._priority: Priority | None = None
        self._closed = False
        self.slow = False
        """Set by a listener that cannot keep up: the socket is read less often, which slows the
        token and with it the whole ring."""
        self.stopped: str | None = None
        """Why the machine ended, or None."""
        settings = config.protocol_config
        self._patience_us = settings.patience_us
        self._ejects = not config.sheet.fixed
        self._stall_s = 0.0
        with contextlib.ExitStack() as undo:
            self._store = Store(Path(config.state_dir))
            undo.callback(self._store.close)
            self._udp = Udp(config.bind_address, config.receive_buffer)
            undo.callback(self._udp.close)
            if config.multicast:
                group = address.parse(config.multicast, "multicast")
                self._udp.join_multicast(group, config.interface, config.receive_buffer)
            undo.pop_all()  # all is well: nothing to undo
        # Later incarnations have larger boot numbers even if the clock was set back.
        self.boot = max(self._store.values.get("boot", 0) + 1, time.time_ns() // 1000)
        self.machine = config.sheet.make(config.id, settings)
        self.clock = ActiveClock()
        self._env = Env(config.id, Random(f"{config.id}/{self.boot}"))
        messages: tuple[type[msgspec.Struct], ...] = (*config.sheet.messages, Hello)
        self._codec = Codec(messages, config.id, self.boot, self.keys)
        public = config.public_address
        where = self._udp.address if public == config.bind_address else public
        self._book = PeerBook(Place(config.id, self.boot, *where), config.peer_addresses)
        self._frames: list[bytes] = []
        self._deadlines: dict[Timer, int] = {}
        self._armed_us = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._housekeeping: asyncio.TimerHandle | None = None
        self._acts: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Letters: self._send_letters,
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
            Up: self._up,
        }

    # --- life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open everything and give the machine its first input; call ``close`` if it fails."""
        config = self.config
        stable = {k: v for k, v in self._store.values.items() if k != "boot"}
        incarnation = self._store.values.get("incarnation", 0) + 1
        self._store.persist("incarnation", incarnation)
        self._store.persist("boot", self.boot)
        if config.fault_file:
            self._shim = Shim(Path(config.fault_file), f"shim/{config.id}/{self.boot}")
        if config.trace_dir:
            self._trace = TraceLog(Path(config.trace_dir), config.id, self.boot)
            # Numbers of events go on rising over incarnations without being stored.
            self._scribe = Scribe(config.id, self._trace, incarnation << 40)
            self._scribe.started(self._wall_us(), incarnation)
        if config.realtime:
            self._priority = Priority()
        self._loop = loop = asyncio.get_running_loop()
        self._keep_house()
        self._udp.start(
            loop, self._codec, self._shim, self._wake, self._step, self._on_hello, self._quiet
        )
        self._handle(Started(self.boot, stable))
        if self.stopped is not None:
            raise NodeStopped(f"the node could not start: {self.stopped}")
        self._arm_next()
        self._quiet()

    def leave(self) -> None:
        """End the node, telling the others, so that they need not notice by its silence."""
        if self.stopped is None and self._loop is not None:
            self._handle(Leaving())
            self.stopped = "closed"
        self.close()

    def close(self, reason: str = "closed") -> None:
        """End the node at once; the others notice by its silence."""
        if self._closed:
            return
        self._closed = True
        if self.stopped is None:
            self.stopped = reason
        for handle in (self._alarm, self._housekeeping):
            if handle is not None:
                handle.cancel()
        self._udp.close()
        if self._priority:
            self._priority.restore()
        if self._scribe and self._trace:
            self._scribe.crashed(self._wall_us(), self.stopped)
            self._trace.close()
        self._store.close()
        self._listener.on_stop(self.stopped)

    def fail(self, reason: str) -> None:
        """End the node, which cannot go on for a reason outside the machine."""
        if self.stopped is None:
            self.stopped = reason
            assert self._loop is not None
            self._loop.call_soon(self.close)

    @property
    def address(self) -> Address:
        """Where this node listens."""
        return self._udp.address

    def addresses(self) -> dict[NodeId, Address]:
        """Where the others are."""
        return self._book.addresses()

    def _keep_house(self) -> None:
        """Once a second: keys and faults may have changed on disk, nodes may have appeared."""
        assert self._loop is not None
        try:
            if self.keys and self.keys.reload():
                self._codec.renew_keys()
            if self._shim:
                self._shim.reload()
        except RingcastError as error:
            self._codec.refuse(str(error))  # go on with what we have; metrics show it
        self._udp.connect(self._book.addresses())  # a name may have moved, a route appeared
        if self.config.seeds:
            hello = self._codec.encode(self._book.hello(wants=True), Lane.BROADCAST)
            for text in self.config.seeds:
                self._udp.send_to(address.parse(text, "seeds"), hello)
        if self.config.multicast:  # tokens are unicast, so addresses must be known here too
            hello = self._codec.encode(self._book.hello(wants=False), Lane.BROADCAST)
            self._udp.broadcast(hello)
        if self._trace:
            self._trace.flush()
        period_s = 0.05 if self._shim else HELLO_S
        self._housekeeping = self._loop.call_later(period_s, self._keep_house)

    # --- inputs ----------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the machine accepts a submission now."""
        return self.stopped is None and self.machine.ready

    def submit(self, bodies: tuple[bytes, ...], level: Level) -> None:
        """Give messages to the machine; check ``ready`` first."""
        if self.stopped is not None:
            raise NodeStopped(f"the node has stopped: {self.stopped}")
        level = Level(level)  # the others would refuse the frames of anything else
        if self._scribe:
            self._scribe.submitted(self._wall_us(), bodies, level)
        self._handle(Submitted(bodies, level))

    def _wake(self) -> bool:
        """We run again, and all that has arrived has arrived now. Whether we slept too long.

        After a long pause the others have gone on without us, and what waits in the socket is
        their parting words: taken for news, it would make us eject them all.
        """
        clock = self.clock
        paused_us = clock.paused_us
        self._env.now_us = clock.wake()
        if clock.paused_us - paused_us <= self._patience_us or not self._ejects:
            return False
        self._udp.forget()
        return True

    def _on_hello(self, hello: Hello) -> None:
        if self.config.public_address.unspecified:
            self._codec.refuse(NO_ADDRESS)  # we would hear a newcomer that cannot hear us
            return
        if self._book.learn(hello):
            self._udp.connect(self._book.addresses())
        if hello.wants:
            answer = self._codec.encode(self._book.hello(wants=False), Lane.BROADCAST)
            self._udp.unicast(hello.places[0].node, answer)

    def _handle(self, event: Input) -> None:
        """An input that comes now."""
        self._env.now_us = self.clock.now_us()
        self._step(event)

    def _step(self, event: Input) -> None:
        """An input, and what it leads to, at the time the machine was told last."""
        if self.stopped is not None:
            return
        env = self._env
        try:
            self.machine.handle(env, event)
            more = self._udp.more
            if env.effects:
                acts = self._acts
                effects = env.take()
                for effect in effects if len(effects) < BURST else in_runs(effects):
                    kind = type(effect)
                    if self._frames and kind not in WITH_FRAMES and (not more or kind in LAST):
                        self._broadcast_frames()
                    acts[kind](effect)
                    if self.stopped is not None:
                        return  # what follows depends on what failed
            if self._frames and (not more or len(self._frames) >= MOST_IN_RUN):
                self._broadcast_frames()
        except Exception as error:
            # A defect of ours: this processor must not go on with half a step done.
            self.stopped = f"a defect: {error!r}"
            assert self._loop is not None
            self._loop.call_soon(self.close)
            raise

    def _quiet(self) -> None:
        """The batch is done."""
        if self.stopped is not None and not self._closed:
            self.close()
            return
        self._listener.on_quiet()
        if self.slow:
            self._udp.rest(self._stall_s)

    # --- timers ----------------------------------------------------------------------------

    def _arm_next(self) -> None:
        """At the earliest deadline, or the next tick."""
        self._arm(min((self.clock.now_us() + TICK_US, *self._deadlines.values())))

    def _arm(self, at_us: int) -> None:
        """Ask the loop for one wake-up."""
        assert self._loop is not None
        if self._alarm is not None:
            self._alarm.cancel()
        self._armed_us = at_us
        self.clock.expect(at_us)
        delay_s = max(0, at_us - self.clock.now_us()) / 1e6
        self._alarm = self._loop.call_later(delay_s, self._on_alarm)

    def _on_alarm(self) -> None:
        self._wake()
        now_us = self._env.now_us + EARLY_US
        due = [(at, str(timer), timer) for timer, at in self._deadlines.items() if at <= now_us]
        for at, _, timer in sorted(due):
            if self._deadlines.get(timer) == at:
                del self._deadlines[timer]
                self._step(TimerFired(timer))
        if self.stopped is None:
            self._arm_next()
        self._quiet()

    def _set_timer(self, effect: SetTimer) -> None:
        at_us = self._env.now_us + effect.delay_us
        self._deadlines[effect.timer] = at_us
        if at_us < self._armed_us:
            self._arm(at_us)

    def _cancel_timer(self, effect: CancelTimer) -> None:
        self._deadlines.pop(effect.timer, None)

    # --- effects ---------------------------------------------------------------------------

    def _send(self, effect: Send) -> None:
        if self._trace:
            self._record()
        self._udp.unicast(effect.to, self._codec.encode(effect.message, Lane.UNICAST))

    def _send_letters(self, effect: Letters) -> None:
        if self._trace:
            self._record()
        encode = self._codec.encode
        self._udp.unicasts(effect.to, [encode(each, Lane.UNICAST) for each in effect.messages])

    def _broadcast(self, effect: Broadcast) -> None:
        self._frames.append(self._codec.encode(effect.message, Lane.BROADCAST))

    def _broadcast_frames(self) -> None:
        """Broadcasts in a row leave together, also those of inputs that came together."""
        if self._trace:
            self._record()
        frames, self._frames = self._frames, []
        self._udp.broadcast(*frames)

    def _record(self) -> None:
        """No frame leaves before the trace of what led to it: SIGKILL leaves no riddles."""
        assert self._trace
        self._trace.flush()

    def _persist(self, effect: Persist) -> None:
        try:
            self._store.persist(effect.key, effect.value)
        except StorageError as error:
            self.stopped = str(error)  # what depends on it never happens

    def _originate(self, effect: Originate) -> None:
        if self._scribe:
            self._scribe.originated(self._wall_us(), effect)

    def _deliver(self, effect: Deliver) -> None:
        if self._scribe:
            self._scribe.delivered(self._wall_us(), effect)
        self._listener.on_deliver(effect.view, effect.batch)

    def _install_view(self, effect: InstallView) -> None:
        if self._scribe:
            self._scribe.installed(self._wall_us(), effect)
        self._stall_s = STALL_SHARE * self._patience_us / len(effect.members) / 1e6
        self._listener.on_view(effect)

    def _stop(self, effect: Stop) -> None:
        self.stopped = effect.reason

    def _uncertain(self, effect: Uncertain) -> None:
        if self._scribe:
            self._scribe.uncertain(self._wall_us(), effect)
        self._listener.on_uncertain(effect.first, effect.count)

    def _up(self, effect: Up) -> None: ...
    def _note(self, effect: Note) -> None:
        if self._scribe:
            self._scribe.noted(self._wall_us(), effect)

    @staticmethod
    def _wall_us() -> int:
        """Traces of several processes are laid side by side by the wall clock."""
        return time.time_ns() // 1000

    # --- what an operator asks -------------------------------------------------------------

    def metrics(self) -> dict[str, object]:
        """Counters and state, for the metrics endpoint and the doctor."""
        return {
            "id": self.config.id,
            "boot": self.boot,
            "stopped": self.stopped,
            "frames_sent": self._udp.sent,
            "frames_received": self._udp.received,
            "frames_blocked": self._udp.blocked,
            "frames_outdated": self._udp.outdated,
            "send_failures": self._udp.send_failures,
            "frames_refused": dict(self._codec.refused),
            "inputs_dropped": dict(self._env.dropped),
            "frames_lost_on_purpose": self._shim.lost if self._shim else 0,
            "trace_failed": self._trace.failed if self._trace else "",
            "keys": list(self.keys.keys) if self.keys else [],
            "pauses": self.clock.pauses,
            "paused_us": self.clock.paused_us,
            "longest_pause_us": self.clock.longest_us,
            "peers": {str(n): str(a) for n, a in self._book.addresses().items()},
            "machine": self.machine.snapshot(),
        }
