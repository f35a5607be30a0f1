"""Effect runner: gives a machine one input at a time and carries out what it asks for, in order.

``Persist`` is on disk before the next effect, so no frame that depends on it can leave earlier.
Nothing here knows which protocol runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ringcast.core.effects import (
    Broadcast,
    CancelTimer,
    Deliver,
    InstallView,
    Note,
    Originate,
    PackedMessages,
    Persist,
    Send,
    SetTimer,
    Stop,
    Uncertain,
    Up,
)
from ringcast.core.env import Env
from ringcast.core.errors import StorageError
from ringcast.core.ids import ViewId
from ringcast.core.inputs import Input
from ringcast.core.machine import Machine
from ringcast.core.scribe import Scribe
from ringcast.runtime.platform import StableStore, TraceSink
from ringcast.runtime.port import Port
from ringcast.runtime.send_batching import BURST, LAST, WITH_FRAMES, SendRun, in_runs
from ringcast.runtime.timers import Timers
from ringcast.runtime.udp_offload import MOST_IN_RUN


class Listener(Protocol):
    """Who hears what the machine has for the application."""

    def on_deliver(self, view: ViewId, batch: PackedMessages) -> None:
        """Messages in total order."""

    def on_view(self, change: InstallView) -> None:
        """A change of configuration, at its place in the order."""

    def on_uncertain(self, first: int, count: int) -> None:
        """Submissions ``first ..`` will not be delivered here, and whether elsewhere is unknown."""

    def on_quiet(self) -> None:
        """Everything at hand has been handled; the time to wake waiting tasks."""

    def on_stop(self, reason: str) -> None:
        """The node has ended."""


class EffectRunner:
    """The machine, and the hands that do as it says."""

    def __init__(
        self,
        machine: Machine,
        env: Env,
        ports: tuple[Port, ...],
        timers: Timers,
        store: StableStore,
        listener: Listener,
        wall_us: Callable[[], int],
        broken: Callable[[], None],
    ) -> None:
        self._machine, self._env, self._ports, self._store = machine, env, ports, store
        self._listener, self._wall_us, self._broken = listener, wall_us, broken
        self._waiting = 0
        """Broadcast frames that have not left yet, at all ports."""
        self._trace: TraceSink | None = None
        self._scribe: Scribe | None = None
        self.stopped: str | None = None
        """Why the machine ended, or None."""
        self.longest_write_us = 0
        """The slowest write to stable storage: nothing else happened here meanwhile."""
        self.members = 0
        """How many the present configuration has."""
        self._acts: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            SendRun: self._send_run,
            Broadcast: self._broadcast,
            SetTimer: timers.set,
            CancelTimer: timers.cancel,
            Persist: self._persist,
            Originate: self._originate,
            Deliver: self._deliver,
            InstallView: self._install_view,
            Stop: self._stop,
            Note: self._note,
            Uncertain: self._uncertain,
            Up: self._up,
        }

    def record(self, trace: TraceSink, scribe: Scribe) -> None:
        """Write a trace from now on."""
        self._trace, self._scribe = trace, scribe

    def step(self, event: Input, more: bool = False) -> None:
        """Let the machine handle an input, at the time its Env shows, and carry out its effects.

        With ``more``, another frame of the same wake-up follows, and broadcasts wait for those that
        it leads to.
        """
        if self.stopped is not None:
            return
        env = self._env
        try:
            self._machine.handle(env, event)
            if env.effects:
                acts = self._acts
                effects = env.take()
                for effect in effects if len(effects) < BURST else in_runs(effects):
                    kind = type(effect)
                    if self._waiting and kind not in WITH_FRAMES and (not more or kind in LAST):
                        self._flush()
                    acts[kind](effect)
                    if self.stopped is not None:
                        return  # what follows depends on what failed
            if self._waiting and (not more or self._waiting >= MOST_IN_RUN):
                self._flush()
        except Exception as error:
            # A defect of ours: this processor must not go on with half a step done.
            self.stopped = f"a defect: {error!r}"
            self._broken()
            raise

    # --- frames ----------------------------------------------------------------------------

    def _send(self, effect: Send) -> None:
        if self._trace:
            self._trace.flush()
        self._ports[effect.port].send(effect.to, effect.message)

    def _send_run(self, effect: SendRun) -> None:
        if self._trace:
            self._trace.flush()
        self._ports[effect.port].send_run(effect.to, effect.messages)

    def _broadcast(self, effect: Broadcast) -> None:
        self._waiting += 1
        self._ports[effect.port].broadcast(effect.message)

    def _flush(self) -> None:
        """Broadcasts in a row leave together, also those of inputs that came together.

        No frame leaves before the trace of what led to it: SIGKILL leaves no riddles.
        """
        if self._trace:
            self._trace.flush()
        self._waiting = 0
        for port in self._ports:
            port.flush()

    # --- the rest --------------------------------------------------------------------------

    def _persist(self, effect: Persist) -> None:
        began_us = self._wall_us()
        try:
            self._store.persist(effect.key, effect.value)
        except StorageError as error:
            self.stopped = str(error)  # what depends on it never happens
        self.longest_write_us = max(self.longest_write_us, self._wall_us() - began_us)

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
        self.members = len(effect.members)
        self._listener.on_view(effect)

    def _stop(self, effect: Stop) -> None:
        self.stopped = effect.reason

    def _uncertain(self, effect: Uncertain) -> None:
        if self._scribe:
            self._scribe.uncertain(self._wall_us(), effect)
        self._listener.on_uncertain(effect.first, effect.count)

    def _up(self, effect: Up) -> None:
        """Words to an owner of the machine; it has none here."""

    def _note(self, effect: Note) -> None:
        if self._scribe:
            self._scribe.noted(self._wall_us(), effect)
