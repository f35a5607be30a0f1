"""Host: the life of one machine in an event loop.

Frames, timers and submissions go in, one at a time; an effect runner carries out what comes of
them. A host starts, keeps house once a second, and ends. Nothing here knows which protocol runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from ringcast.core.env import Env
from ringcast.core.errors import CLOSED, KeyFileError, StorageError, node_stopped
from ringcast.core.ids import LIMIT, Level, NodeId
from ringcast.core.inputs import Input, Leaving, Started, Submitted, TimerFired
from ringcast.core.scribe import Scribe
from ringcast.runtime.clock import ActiveClock
from ringcast.runtime.config import NodeConfig
from ringcast.runtime.effect_runner import EffectRunner, Listener
from ringcast.runtime.platform import LIVE, Platform, TraceSink
from ringcast.runtime.port import LOG, Port, check_keys
from ringcast.runtime.priority import Priority
from ringcast.runtime.timers import Timers
from ringcast.traces import Claims

HOUSEKEEPING_S = 1.0
"""How often a node looks after its files, and says where it is if it has seeds …"""
FAULTS_S = 0.05
"""… and with faults on purpose, which a test changes often."""

BOOT_STEPS = 2**20
"""How far the boot number may jump where the clock does not decide it."""

STALL_SHARE = 0.5
"""How much of the patience with a silent member all may stall together for slow readers."""


class LiveHost:
    """One live processor."""

    def __init__(self, config: NodeConfig, listener: Listener, platform: Platform = LIVE) -> None:
        self.config = config.check()
        self._listener = listener
        self._platform = platform
        self._trace: TraceSink | None = None
        self._scribe: Scribe | None = None
        self._priority: Priority | None = None
        self._closed = self._started = False
        self._blocked_us: int | None = None
        """Since when the machine says that it is blocked."""
        self.slow = False
        """Set by a listener that cannot keep up: the sockets are read less often, which slows the
        token and with it the whole ring."""
        settings = config.protocol_config
        self._patience_us = settings.patience_us
        self._ejects = not config.sheet.fixed
        with contextlib.ExitStack() as undo:
            self._store = platform.store(Path(config.state_dir))
            undo.callback(self._store.close)
            # Later incarnations have larger boot numbers even if the clock was set back, and
            # other ones than before if the state directory was.
            last = self._store.values.get("boot", 0)
            if not 0 <= last < LIMIT - BOOT_STEPS:
                raise StorageError(
                    f"stable.json in {config.state_dir} says boot = {last}, which is no number of "
                    "a start; restore it, or remove it if this processor may be taken for a new one"
                )
            self.boot = max(last + 1 + secrets.randbelow(BOOT_STEPS), self._wall_us())
            ports: list[Port] = []
            for number in range(len(config.domains)):
                ports.append(Port(number, config, self.boot, platform))
                undo.callback(ports[-1].close)
            self.ports = tuple(ports)
            check_keys(self.ports)
            self.machine = config.sheet.make(config.id, settings)
            undo.pop_all()  # all is well: nothing to undo
        self.clock = ActiveClock(platform.monotonic_ns)
        self._env = Env(config.id, Random(f"{config.id}/{self.boot}"))
        self._timers = Timers(self.clock, self._env)
        self._runner = EffectRunner(
            self.machine,
            self._env,
            self.ports,
            self._timers,
            self._store,
            listener,
            self._wall_us,
            self._close_soon,
        )
        self.step = self._runner.step
        self._loop: asyncio.AbstractEventLoop | None = None
        self._housekeeping: asyncio.TimerHandle | None = None

    # --- life ------------------------------------------------------------------------------

    @property
    def stopped(self) -> str | None:
        """Why the node ended, or None."""
        return self._runner.stopped

    @property
    def blocked(self) -> str:
        """Why nothing is ordered here, for people: the node has stopped, or waits for others. It
        says so from ``patience_us`` on: ordinary changes of a group are over by then."""
        if self.stopped is not None:
            return "" if self.stopped == CLOSED else f"the node has stopped: {self.stopped}"
        since_us = self._blocked_us
        if since_us is None or self.clock.now_us() - since_us < self._patience_us:
            return ""
        return self.machine.blocked

    async def start(self) -> None:
        """Open everything and give the machine its first input; call ``close`` if it fails."""
        config = self.config
        stable = {k: v for k, v in self._store.values.items() if k != "boot"}
        incarnation = self._store.values.get("incarnation", 0) + 1
        self._store.persist("incarnation", incarnation)
        self._store.persist("boot", self.boot)
        if config.trace_dir:
            claims = Claims(config.sheet.claims(config.protocol_config))
            folder = Path(config.trace_dir)
            self._trace = self._platform.trace(folder, config.id, self.boot, claims)
            # Numbers of events go on rising over incarnations without being stored.
            self._scribe = Scribe(config.id, self._trace, incarnation << 40)
            self._scribe.started(self._wall_us(), incarnation)
            self._runner.record(self._trace, self._scribe)
        if config.realtime:
            self._priority = Priority()
        self._loop = loop = asyncio.get_running_loop()
        self._timers.start(loop, self._on_alarm)
        await asyncio.gather(*(port.welcome() for port in self.ports))
        if self.stopped is not None:
            raise node_stopped(self.stopped, "the node could not start")
        for port in self.ports:
            port.start(loop, self)
        self._plan_housekeeping(loop)
        several = len(self.ports) > 1
        ids = tuple(port.id for port in self.ports) if several else ()
        self._handle(Started(self.boot, stable, ids))
        if self.stopped is not None:
            raise node_stopped(self.stopped, "the node could not start")
        self._started = True
        self._timers.arm_next(self.clock.now_us())
        self.quiet()

    def leave(self) -> None:
        """End the node, telling the others, so that they need not notice by its silence."""
        if self.stopped is None and self._loop is not None:
            self._handle(Leaving())
            self._runner.stopped = CLOSED
        self.close()

    def close(self, reason: str = CLOSED) -> None:
        """End the node at once; the others notice by its silence."""
        if self._closed:
            return
        self._closed = True
        if self.stopped is not None:
            reason = self.stopped
        self._runner.stopped = reason
        if self._started and reason != CLOSED:  # whoever starts a node is told by an error
            LOG.error("node %d has stopped: %s", self.config.id, reason)
        self._timers.close()
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        for port in self.ports:
            port.close()
        if self._priority:
            self._priority.restore()
        if self._scribe and self._trace:
            self._scribe.crashed(self._wall_us(), reason)
            self._trace.close()
        self._store.close()
        self._listener.on_stop(reason)

    def fail(self, reason: str) -> None:
        """End the node, which cannot go on for a reason outside the machine."""
        if self.stopped is None:
            self._runner.stopped = reason
            self._close_soon()

    def _close_soon(self) -> None:
        """Not now: somebody is in the middle of something."""
        assert self._loop is not None
        self._loop.call_soon(self.close)

    def _plan_housekeeping(self, loop: asyncio.AbstractEventLoop) -> None:
        period_s = FAULTS_S if self.config.fault_file else HOUSEKEEPING_S
        self._housekeeping = loop.call_later(period_s, self._keep_house)

    def _keep_house(self) -> None:
        """Let each port look after its files and its peers, and save the trace."""
        for port in self.ports:
            port.keep_house()
            if port.twin:
                self.fail(port.twin)
        if self._trace:
            self._trace.flush()
        assert self._loop is not None
        self._plan_housekeeping(self._loop)
        try:
            check_keys(self.ports)
        except KeyFileError as error:
            self.fail(str(error))

    # --- inputs ----------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the machine accepts a submission now."""
        return self._runner.stopped is None and self.machine.ready

    def submit(
        self, bodies: tuple[bytes, ...], level: Level, to: tuple[NodeId, ...] = (), group: int = 0
    ) -> None:
        """Give messages to the machine; check ``ready`` first."""
        if self.stopped is not None:
            raise node_stopped(self.stopped)
        if type(level) is not Level:
            level = Level(level)  # the others would refuse the frames of anything else
        if to or not self.machine.filters:
            group = 0
        if self._scribe:
            self._scribe.submitted(self._wall_us(), bodies, level, to, group)
        self._handle(Submitted(bodies, level, to, group))

    def enter(self, groups: tuple[int, ...]) -> None:
        """Tell the machine which groups the application is in, if it is one that asks."""
        if self.config.sheet.groups and self.stopped is None:
            self._handle(Submitted((), wants=groups))

    def _handle(self, event: Input) -> None:
        """An input that comes now."""
        self._env.now_us = self.clock.now_us()
        self.step(event)

    def woken(self) -> bool:
        """We run again, and all that has arrived has arrived now. Whether we slept too long.

        After a long pause the others have gone on without us, and what waits in the sockets is
        their parting words: taken for news, it would make us eject them all.
        """
        clock = self.clock
        paused_us = clock.paused_us
        self._env.now_us = clock.wake()
        if clock.paused_us - paused_us <= self._patience_us or not self._ejects:
            return False
        for port in self.ports:
            port.forget()
        return True

    def quiet(self) -> None:
        """The batch is done."""
        if self._runner.stopped is not None and not self._closed:
            self.close()
            return
        for port in self.ports:
            if port.unmet:
                port.greet_unmet()
        self._listener.on_quiet()
        if not self.machine.blocked:
            self._blocked_us = None
        elif self._blocked_us is None:
            self._blocked_us = self._env.now_us
        if self.slow:
            members = self._runner.members
            stall_s = STALL_SHARE * self._patience_us / members / 1e6 if members else 0.0
            for port in self.ports:
                port.rest(stall_s)

    def _on_alarm(self) -> None:
        """Most alarms are ticks of the clock, or for timers that were set anew meanwhile."""
        self.woken()
        fired = False
        for timer in self._timers.due():
            self.step(TimerFired(timer))
            fired = True
        if self.stopped is None:
            if not fired:  # nothing has changed, and hardly any time has passed
                self._timers.arm_next(self._env.now_us)
                return
            self._timers.arm_next(self.clock.now_us())
        self.quiet()

    def _wall_us(self) -> int:
        """Traces of several processes are laid side by side by the wall clock."""
        return self._platform.time_ns() // 1000

    # --- what an operator asks -------------------------------------------------------------

    def metrics(self) -> dict[str, object]:
        """Counters and state."""
        return {
            **together([{"id": port.id, **port.metrics()} for port in self.ports]),
            "id": self.config.id,
            "boot": self.boot,
            "stopped": self.stopped,
            "inputs_dropped": dict(self._env.dropped),
            "trace_failed": self._trace.failed if self._trace else "",
            "pauses": self.clock.pauses,
            "paused_us": self.clock.paused_us,
            "longest_pause_us": self.clock.longest_us,
            "longest_write_us": self._runner.longest_write_us,
            "blocked": self.blocked,
            "machine": self.machine.snapshot(),
        }


def together(ports: list[dict[str, Any]]) -> dict[str, object]:
    """The metrics of one port; of several, the sums, and those of each under ``ports``."""
    if len(ports) == 1:
        return ports[0]
    found: dict[str, object] = {"ports": ports}
    for name, value in ports[0].items():
        if isinstance(value, int):
            found[name] = sum(port[name] for port in ports)
    refused: Counter[str] = Counter()
    for port in ports:
        refused.update(port["frames_refused"])
    return found | {"frames_refused": dict(refused)}
