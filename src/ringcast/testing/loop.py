"""SimLoop: an asyncio event loop in virtual time, whose order is drawn from a seed.

Time passes when nothing is left to do, and then at once to the next thing. What is ready is run
in turns, as asyncio does; the steps of tasks within a turn come in an order drawn from the seed,
because asyncio promises none. Callbacks keep the order in which they were registered, because it
does promise that.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, NoReturn, TypeVar

from ringcast.sim.scheduler import TIMER, WORLD, Scheduler
from ringcast.testing import sockets, streams
from ringcast.testing.errors import EscapeLog, Stuck
from ringcast.testing.handles import SimFuture, SimHandle, SimTask, SimTimer
from ringcast.testing.naming import task_name
from ringcast.testing.process import PROCESS, Process
from ringcast.testing.threads import Pool

T = TypeVar("T")

SPIN = 100_000
"""Turns without any time passing, after which nobody believes that it ever will."""

SLACK_US = 150
"""Timers are late by up to this much, as real ones are."""

WORKERS = 8
"""Threads that a process has for ``to_thread``."""

ROUNDING = 0.999
"""Seconds are floats: a timer is early for that by less than 1 ns, and one that waits for the rest
is not early again."""

NOBODY = Context()
"""Of no process: what runs in it runs whoever stands still."""


def runs(handle: Any) -> str:
    """Whose callback it is, and what it runs."""
    process = handle._context.get(PROCESS)
    task = getattr(handle._callback, "__self__", None)
    ran = task.get_coro() if isinstance(task, asyncio.Task) else handle._callback
    return f"{task_name(ran)} of {process.host.name if process else 'the test'}"


_Base: Any = asyncio.BaseEventLoop
"""Its signatures differ between versions of Python; ours take what all of them give."""


class SimLoop(_Base):  # type: ignore[misc]
    """One loop for all hosts of a world; each thing it runs knows its process."""

    def __init__(self, seed: str, escapes: EscapeLog) -> None:
        super().__init__()
        self.scheduler = Scheduler()
        self.escapes = escapes
        self.on_quiet: Callable[[], None] = lambda: None
        """Called when everything at one moment is done, before time passes, if ``watched``."""
        self.watched = False
        """Whether anybody has something to look at then."""
        self.on_error: Callable[[dict[str, Any]], None] = lambda context: None
        self.mixed: Callable[[int], bool] = lambda turn: True
        """Whether the order in a turn is drawn; else it is first come, first served."""
        self.turns = 0
        """Turns in which there was something to draw."""
        self._order = Random(f"{seed}/schedule")
        self._slack_us = self._order.choice((0, SLACK_US, SLACK_US))
        self._numbers = count(1)
        self._threads = Random(f"{seed}/threads")
        self.unheard: list[tuple[int, SimTask]] = []
        """Tasks that ended with an error, and when; those that somebody asked are taken out."""
        self.ending = False
        """The world ends: async generators that are left over are not run to their end."""

    get_debug = staticmethod(bool)
    """False, and no call of Python: every future asks."""

    # --- time ------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        """The world's time."""
        return self.scheduler.now_us

    def time(self) -> float:
        """The monotonic clock of who asks, in seconds."""
        process = PROCESS.get()
        now_us = self.scheduler.now_us
        return (process.clock.local_us(now_us) + process.job_us if process else now_us) / 1e6

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> SimTimer:
        """At a time of the caller's clock, or a little later."""
        timer = self.call_later(when - self.time(), callback, *args, context=context)
        timer._when = when
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> SimTimer:
        """After so many seconds of the caller's clock, or a little later."""
        scheduler = self.scheduler
        now_us = local_us = scheduler.now_us
        delay_us = (int(delay * 1e6 + ROUNDING) or 1) if delay > 0 else 0
        if (process := PROCESS.get()) is not None:
            clock = process.clock
            local_us = clock.local_us(now_us) if clock.ppm else now_us + clock.ahead_us
            local_us += process.job_us
            if clock.ppm:
                delay_us = clock.real_us(delay_us)
        if self._slack_us:
            delay_us += int(self._order.random() * self._slack_us)
        if context is None:
            context = copy_context()
        timer = SimTimer(callback, args, context, False, local_us / 1e6 + delay)
        entry = (now_us + delay_us, TIMER, next(scheduler.ticket), self._due, timer)
        heappush(scheduler.heap, entry)
        return timer

    def _due(self, timer: SimTimer) -> None:
        if not timer._cancelled:
            self._ready.append(timer)

    def later(
        self, delay_us: int, act: Callable[..., object], *args: Any, context: Context
    ) -> None:
        """After exactly so long of the world's time."""
        handle = SimHandle(act, args, context)
        scheduler = self.scheduler
        at_us = scheduler.now_us + delay_us
        entry = (at_us, WORLD, next(scheduler.ticket), self._ready.append, handle)
        heappush(scheduler.heap, entry)

    # --- turns -----------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        """In the next turn."""
        if context is None:
            context = copy_context()
        handle = SimHandle(callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def _run_once(self) -> None:
        """Turns, until the loop is stopped: all that is ready; if nothing is, time passes first.

        This is the path of every frame, so it is written in one piece.
        """
        ready, scheduler, process_of = self._ready, self.scheduler, PROCESS
        heap, popleft = scheduler.heap, ready.popleft
        spins = 0
        while not self._stopping:
            if not ready and self.watched:
                self.on_quiet()
            if not ready:
                spins = 0
                while not ready:
                    scheduler.now_us, _, _, action, argument = heappop(heap)
                    action(argument)
            batch: Any
            if len(ready) == 1:  # on an idle network it is one frame at a time
                batch = (popleft(),)
            else:
                batch = list(ready)
                ready.clear()
                self._mix(batch)
            for handle in batch:
                if handle._cancelled:
                    continue
                context = handle._context
                process = context.get(process_of)
                if process is not None and process.halted:
                    if process.alive:
                        process.held.append(handle)
                    continue
                try:
                    if args := handle._args:
                        context.run(handle._callback, *args)
                    else:
                        context.run(handle._callback)
                except BaseException as error:
                    self._failed(handle, process, error)
            spins += 1
            if spins > SPIN:
                raise Stuck(
                    f"{SPIN} turns of the event loop, and no time has passed: some task spins, for "
                    f"instance in a loop around asyncio.sleep(0); the last was {runs(handle)}"
                )

    def _failed(self, handle: SimHandle, process: Process | None, error: BaseException) -> None:
        """What becomes of the error of a callback. A process may exit; what else is no Exception
        is the test runner's: a timeout, a skip, Ctrl-C."""
        callback = handle._callback
        exits = isinstance(error, SystemExit) and process is not None
        if not isinstance(error, Exception) and not exits:
            raise error
        if exits and isinstance(getattr(callback, "__self__", None), asyncio.Task):
            return  # the task has ended with it, and who waits for it is told
        told = {"message": f"Exception in callback {getattr(callback, '__qualname__', '')}"}
        handle._context.run(self.on_error, {**told, "exception": error})

    def _mix(self, batch: list[Any]) -> None:
        """Put the steps of tasks in another order."""
        task = asyncio.Task
        spots = [
            at
            for at, handle in enumerate(batch)
            if isinstance(getattr(handle._callback, "__self__", None), task)
        ]
        if len(spots) < 2:
            return
        self.turns += 1
        drawn = self._order.sample(spots, len(spots))
        if self.mixed(self.turns):
            steps = [batch[at] for at in drawn]
            for at, step in zip(spots, steps, strict=True):
                batch[at] = step

    def resume(self, process: Process) -> None:
        """A process that stood still goes on with what became due meanwhile."""
        self._ready.extend(process.go_on())

    # --- tasks and futures -----------------------------------------------------------------

    def next_number(self) -> int:
        """For what would be ordered by its address."""
        return next(self._numbers)

    def create_future(self) -> SimFuture:
        """A future whose number, not its address, orders it in sets."""
        future = SimFuture(loop=self)
        future._number = next(self._numbers)
        return future

    def create_task(
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **kwargs: Any,
    ) -> SimTask:
        """A task with a number; its default name does not depend on earlier worlds."""
        self._check_closed()
        number = next(self._numbers)
        name = name or f"Task-{number}"
        task = SimTask(coro, loop=self, number=number, name=name, context=context, **kwargs)
        task.add_done_callback(self._task_ended, context=NOBODY)
        return task

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        """Keep one whose error nobody has seen: asyncio tells of it when the task is collected,
        which is at no certain moment."""
        if task._log_traceback:
            error = task._exception
            if error and not isinstance(error, Exception | SystemExit | BaseExceptionGroup):
                raise error  # it is the test runner's
            self.unheard.append((self.now_us, task))  # type: ignore[arg-type]
            self.watched = True

    def forget_heard(self) -> None:
        """Let go of tasks whose error somebody has seen."""
        self.unheard = [each for each in self.unheard if each[1]._log_traceback]

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Errors that nobody awaits are the world's to report."""
        self.on_error(context)

    def run_in_executor(
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """In virtual time: in threads of the process that calls, or as an executor's ``submit``,
        which is replaced, has it."""
        if executor is not None:
            return asyncio.wrap_future(executor.submit(func, *args), loop=self)
        process = PROCESS.get()
        if process is None:
            self.refuse_thread()
        if process.pool is None:
            process.pool = Pool(self, WORKERS)
        return process.pool.submit(partial(func, *args), self.create_future())

    def refuse_thread(self) -> NoReturn:
        """The test is in no process."""
        self._refuse("a thread of the test itself", "run it on a host")

    def draw_job_us(self, most_us: int) -> int:
        """How long a thread waits for its turn."""
        return int(self._threads.random() * most_us)

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        if not self.ending:
            super()._asyncgen_finalizer_hook(agen)

    # --- the network -----------------------------------------------------------------------

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        """Watch a simulated socket."""
        sockets.add_reader(self, fd, callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        """Stop watching it."""
        return sockets.remove_reader(self, fd)

    async def getaddrinfo(self, host: Any, port: Any, **kwargs: Any) -> Any:
        """Names of simulated hosts, found without a thread."""
        return socket.getaddrinfo(host, port, **kwargs)

    async def create_server(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **kwargs: Any
    ) -> streams.SimServer:
        """A listening server of the host that calls."""
        self._plain(kwargs)
        process = sockets.owner()
        place = (host or "0.0.0.0", port or 0)
        return streams.SimServer(self, process.host, place, protocol_factory)

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **kwargs: Any
    ) -> tuple[streams.Stream, Any]:
        """A simulated stream to another host, or one that a listener accepted."""
        opened = kwargs.pop("sock", None)
        if isinstance(opened, streams.Stream):
            self._plain(kwargs)
            stream = opened
        elif isinstance(opened, sockets.StreamSocket) and opened.stream:
            self._plain(kwargs)
            stream, opened.stream = opened.stream, None
        else:
            self._plain(kwargs | {"sock": opened})
            stream = await streams.connect(self, sockets.owner().host, host, port)
        protocol = protocol_factory()
        stream.begin(protocol)
        return stream, protocol

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """Connect a simulated TCP socket."""
        if not isinstance(sock, sockets.StreamSocket):
            self._refuse("a real socket", "give host and port to asyncio.open_connection()")
        sock.connected(await streams.connect(self, sockets.owner().host, *address[:2]))

    async def create_datagram_endpoint(
        self,
        protocol_factory: Callable[[], Any],
        local_addr: Any = None,
        remote_addr: Any = None,
        **kwargs: Any,
    ) -> tuple[sockets.DatagramTransport, Any]:
        """A simulated UDP socket with a protocol."""
        opened: Any = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if local_addr:
            opened.bind(local_addr)
        if remote_addr:
            opened.connect(remote_addr)
        protocol = protocol_factory()
        return sockets.DatagramTransport(self, opened, protocol), protocol

    def _plain(self, kwargs: dict[str, Any]) -> None:
        if kwargs.get("ssl"):
            self._refuse("TLS", "simulated streams carry plain bytes; leave ssl out in a test")
        if kwargs.get("sock"):
            self._refuse("a real socket", "give host and port instead of sock")

    # --- what is not simulated -------------------------------------------------------------

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        """Nobody sends signals here."""

    def remove_signal_handler(self, sig: int) -> bool:
        """As if there had been one."""
        return True

    def _refuse(self, what: str, instead: str) -> NoReturn:
        self.escapes.escape(what, instead)

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: it would leave virtual time."""
        self._refuse("a subprocess", "make it a host of its own with world.host()")

    subprocess_shell = subprocess_exec

    async def connect_read_pipe(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: it would leave virtual time."""
        self._refuse("a pipe", "hosts talk through sockets, streams and host.call()")

    connect_write_pipe = connect_read_pipe

    def _process_events(self, event_list: object) -> None:
        """There are none: no selector."""

    def _write_to_self(self) -> None:
        """Nobody waits in a selector."""
