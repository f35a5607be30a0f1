"""World: hosts on a network, in virtual time, and what must be true of them."""

from __future__ import annotations

import asyncio
import inspect
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextvars import copy_context
from itertools import combinations
from random import Random
from typing import Any, TypeAlias

from ringcast.sim.model import NetworkModel
from ringcast.testing import faults as faults_of
from ringcast.testing.disk import Loss, WorldDisk
from ringcast.testing.errors import EscapeLog, HostFailed, NotReached, Stuck, Violated, described
from ringcast.testing.faults import Plan
from ringcast.testing.handles import SimTask
from ringcast.testing.host import LOOPBACK, Host, Main, OnError
from ringcast.testing.loop import SimLoop
from ringcast.testing.naming import first_line, name_of, task_name, where
from ringcast.testing.network import SimNetwork, Ways
from ringcast.testing.process import MILLION, PROCESS, Clock, Process

Check: TypeAlias = Callable[[], object]
Event: TypeAlias = tuple[int, str, str] | tuple[int, int, int, int, int]
"""A line of the story; or a datagram: when, from whom, to whom, its length and checksum."""

STAGGER_S = 0.2
"""Hosts start within so long of each other."""

MOST_CLOSES = 100
"""How often a coroutine may await something while it is being closed."""


class WorldEnds(BaseException):
    """Thrown into what is left when a world ends, so that it closes what it has opened."""


class World:
    """Made by ``simtest``; one for each seed."""

    def __init__(
        self,
        seed: int,
        network: NetworkModel,
        plan: Plan | Callable[[Random, World], Plan],
        settings: dict[str, Any],
        limit_s: float,
    ) -> None:
        self.seed = seed
        self.escapes = EscapeLog(self._watch)
        self.loop = SimLoop(str(seed), self.escapes)
        self.network = SimNetwork(network, self.loop.scheduler, Random(f"{seed}/network"))
        self.network.pieces = Random(f"{seed}/pieces")
        self.hosts: list[Host] = []
        self.found: dict[str, Host] = {}
        """By name and by address."""
        self.settings = settings
        """Of every node that a host opens."""
        self.restarts = self.crashes = 0
        self.met: dict[str, bool] = {}
        """By name: whether what is to be seen sometimes was seen."""
        self.plan: Plan = ()
        self.lost: Counter[str] = Counter()
        """Datagrams that went no further, by reason."""
        self.events: list[Event] = []
        self.clock = Clock()
        self.chance = Random(f"{seed}/chance")
        """What programs draw from."""
        self.draw = Random(f"{seed}/world")
        """What hosts draw from."""
        self.thread = threading.get_ident()
        self.context = copy_context()
        self.files: dict[int, int] = {}
        """Descriptors that programs have opened and not closed, with their inodes."""
        self._draw_plan = plan
        self._disk: WorldDisk | None = None
        self._begun = self._started = False
        self._always: list[tuple[str, Check]] = []
        self._sometimes: list[tuple[str, Check]] = []
        self._waiting: list[tuple[Check, asyncio.Future[None]]] = []
        self._failure: BaseException | None = None
        self._promised: list[tuple[str, Coroutine[Any, Any, None]]] = []
        self._buried: list[SimTask] = []
        self.loop.on_quiet = self._look
        self.loop.on_error = self._on_error
        self.later(limit_s, self._too_long, limit_s)

    # --- hosts -----------------------------------------------------------------------------

    def host(
        self,
        name: str,
        main: Main,
        *args: Any,
        steady: bool = False,
        on_error: OnError = "fail",
    ) -> Host:
        """A machine that runs ``main``, from its beginning after each crash.

        ``main`` may have parameters called ``host``, ``node`` and ``world``: they are given this
        host, an open node on it, and the world. ``args`` are for the others, in their order. No
        drawn fault crashes a ``steady`` host or lets it stand still. ``on_error`` says whether an
        error of the program fails the test or restarts the host.
        """
        if name in self.found:
            raise ValueError(f"there is a host called {name!r} already")
        host = Host(self, name, main, args, steady, on_error)
        self.hosts.append(host)
        self.found[host.name] = self.found[host.address] = host
        self.network.add(host.number, host)
        if not self._begun:
            self._begun = True
            self.loop.call_soon(self._begin, context=self.context)
        elif self._started:
            self.loop.call_soon(host.start, context=self.context)
        return host

    def __getitem__(self, name: str) -> Host:
        if (host := self.found.get(name)) is not None:
            return host
        raise LookupError(f"no host is called {name!r}; there are {[h.name for h in self.hosts]}")

    def find(self, name: str) -> Host | None:
        """The host of this name or address."""
        if name in LOOPBACK:
            process = PROCESS.get()
            return process.host if process else None
        return self.found.get(name)

    def by_number(self, number: int) -> Host:
        """The host of this number."""
        return self.hosts[number - 1]

    def _begin(self) -> None:
        """All hosts that are there from the beginning are known now."""
        plan = self._draw_plan
        self.plan = plan(Random(f"{self.seed}/faults"), self) if callable(plan) else plan
        self._started = True
        faults_of.schedule(self, self.plan)
        stagger_s = self.draw.choice((0.0, STAGGER_S))
        for host in self.hosts:
            self.later(self.draw.random() * stagger_s, host.start)

    @property
    def disk(self) -> WorldDisk:
        """The files of all hosts; there is none before somebody asks."""
        if self._disk is None:
            self._disk = WorldDisk()
        return self._disk

    def lose_files(self, host: str, loss: Loss) -> None:
        """A host has crashed."""
        if self._disk is not None:
            self._disk.crash(host, loss, self.draw)

    # --- time ------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.loop.now_us / 1e6

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Let time pass."""
        return self._to_await("world.sleep()", asyncio.sleep(seconds))

    def _to_await(self, what: str, coro: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """What the test must not forget to await: it would test nothing, and pass."""
        self._promised = [each for each in self._promised if unbegun(each[1])]
        self._promised.append((what, coro))
        return coro

    def later(self, seconds: float, act: Callable[..., object], *args: Any) -> None:
        """Something that the world does, in no process."""
        self.loop.later(round(seconds * 1e6), act, *args, context=self.context)

    def _too_long(self, limit_s: float) -> None:
        tests = [task.get_coro() for task in self._tasks() if task.context.get(PROCESS) is None]
        places = ", ".join(where(coro) for coro in tests)
        awaited = "".join(f"; awaited: {name_of(check)}" for check, _ in self._waiting)
        self.fail(Stuck(
            f"the run is not over after {limit_s:g} s of its time: the test is at {places}{awaited}"
            "; @simtest(limit=...) gives it more"
        ))  # fmt: skip

    # --- the network -----------------------------------------------------------------------

    def cut(self, source: str | Host, target: str | Host, both: bool = False) -> None:
        """Let nothing from ``source`` reach ``target``; nor the other way round, with ``both``."""
        for ways in self._ways([source], [target], both):
            self.network.sever(ways)
        also = ", nor the other way round" if both else ""
        self.record("", f"nothing from {name(source)} reaches {name(target)}{also}")

    def mend(self, source: str | Host, target: str | Host, both: bool = False) -> None:
        """Undo a ``cut``."""
        for ways in self._ways([source], [target], both):
            self.network.mend_ways(ways)
        self.record("", f"{name(source)} and {name(target)} are connected again")

    def partition(self, *sides: Iterable[str | Host]) -> None:
        """Cut hosts of different sides off from each other."""
        apart = [list(side) for side in sides]
        for one, other in combinations(apart, 2):
            for ways in self._ways(one, other, True):
                self.network.sever(ways)
        self.record("", f"the network falls apart: {sides_of(apart)}")

    def unite(self, *sides: Iterable[str | Host]) -> None:
        """Undo a ``partition``."""
        apart = [list(side) for side in sides]
        for one, other in combinations(apart, 2):
            for ways in self._ways(one, other, True):
                self.network.mend_ways(ways)
        self.record("", f"the network is whole again: {sides_of(apart)}")

    def _ways(self, sources: list[str | Host], targets: list[str | Host], both: bool) -> list[Ways]:
        """From each source to each target, by their numbers."""
        ones = frozenset(self[name(each)].number for each in sources)
        others = frozenset(self[name(each)].number for each in targets)
        return [(ones, others), (others, ones)] if both else [(ones, others)]

    # --- what must be true -----------------------------------------------------------------

    def always(self, check: Check, name: str = "") -> None:
        """``check`` must hold now and from now on: whenever something has happened it is called,
        and must neither return False nor raise AssertionError."""
        name = name or name_of(check)
        self._assert(name, check)
        self._always.append((name, check))
        self._watch()

    def sometimes(self, name: str, check: Check | None = None) -> None:
        """``check`` must hold at some moment of some seed; without one, this moment counts."""
        self.met.setdefault(name, False)
        if check is None or said(check):
            self.met[name] = True
        elif not self.met[name]:
            self._sometimes.append((name, check))
            self._watch()

    def until(
        self, check: Check, within: float = 60.0, what: str = ""
    ) -> Coroutine[Any, Any, None]:
        """Wait until ``check`` holds; the test fails if it does not within so many seconds."""
        return self._to_await("world.until()", self._until(check, within, what))

    async def _until(self, check: Check, within: float, what: str) -> None:
        if said(check):
            return
        done: asyncio.Future[None] = self.loop.create_future()
        entry = (check, done)
        self._waiting.append(entry)
        self._watch()
        try:
            async with asyncio.timeout(within):
                await done
        except TimeoutError:
            what = what or name_of(check)
            raise NotReached(what, f"{what}: not so within {within:g} s") from None
        finally:
            self._waiting.remove(entry)

    def fail(self, error: BaseException, cause: BaseException | None = None) -> None:
        """End the run as failed, at the next opportunity."""
        if self._failure is None:
            error.__cause__ = cause
            self._failure = error
            self._watch()

    def _assert(self, name: str, check: Check) -> None:
        try:
            holds = check()
        except AssertionError as error:
            raise Violated(name, str(error)) from error
        if holds is not None and holds is not True and denies(awaited(holds, check)):
            raise Violated(name)

    def _watch(self) -> None:
        """There is something to look at, from now on."""
        self.loop.watched = True

    def _look(self) -> None:
        """Everything at one moment has been done."""
        if self.loop.unheard:
            self.loop.forget_heard()
        if self._failure is not None:
            raise self._failure
        if self.escapes.first is not None:
            raise self.escapes.first
        for name, check in self._always:
            self._assert(name, check)
        if self._sometimes:
            self.met |= {name: True for name, check in self._sometimes if said(check)}
            self._sometimes = [each for each in self._sometimes if not self.met[each[0]]]
        for check, done in self._waiting:
            if not done.done() and said(check):
                done.set_result(None)

    def check(self) -> None:
        """Everything once more, at the end."""
        self._look()
        for what, coro in self._promised:
            if unbegun(coro):
                coro.close()
                raise TypeError(f"{what} was not awaited: write 'await {what[:-2]}(...)'")

    def unheard(self) -> HostFailed | None:
        """The first error of a task that nobody asked about, at the end; each gets its line. A
        process that has crashed cannot ask any more, so its tasks do not count."""
        self.loop.forget_heard()
        first: HostFailed | None = None
        for at_us, task in self.loop.unheard:
            process, error = task.context.get(PROCESS), task.exception()
            if error is None or (process is not None and not process.alive):
                continue
            host = process.host.name if process else ""
            ran, what = task_name(task.get_coro()), described(error)
            place = bisect_right(self.events, at_us, key=lambda event: event[0])
            self.events.insert(place, (at_us, host, f"task {ran} fails: {first_line(what)}"))
            if first is None:
                first = HostFailed(
                    f"{host or 'the test'}, in its task {ran} that nobody awaits: {what}"
                )
                first.__cause__ = error
        return first

    def _on_error(self, context: dict[str, Any]) -> None:
        """A callback failed, or a task nobody asked about."""
        error, message = context.get("exception"), context.get("message", "an error")
        if self.loop.ending:
            return
        text = f"{first_line(message)}: {described(error)}" if error else message
        self.record(self._who(), text)
        if "never retrieved" not in message:
            self.fail(HostFailed(f"{self._who() or 'the test'}: {text}"), error)

    def _who(self) -> str:
        process = PROCESS.get()
        return process.host.name if process else ""

    # --- what happened ---------------------------------------------------------------------

    def note(self, text: str) -> None:
        """A line in the story of this run."""
        self.record(self._who(), text)

    def record(self, host: str, text: str) -> None:
        """Something happened to a host, or to no one of them."""
        if self._disk is not None and self._disk.root in text:
            text = text.replace(self._disk.root, "")
        self.events.append((self.loop.now_us, host, text))

    # --- the end ---------------------------------------------------------------------------

    def bury(self, process: Process) -> None:
        """A process has died: none of its tasks runs again, not even to clean up. They are kept,
        because Python would clean up after them now."""
        for task in self._tasks():
            if task.context.get(PROCESS) is process:
                self._buried.append(task)
        process.end()  # which may have held a task that nobody else knows

    def _tasks(self) -> list[SimTask]:
        """All that are not done."""
        return [task for task in asyncio.all_tasks(self.loop) if isinstance(task, SimTask)]

    def end(self) -> None:
        """Close what is left, unheard."""
        self.loop.ending = True
        left = {*self._buried, *self._tasks()}
        for host in self.hosts:
            if host.process is not None:
                host.process.end()
            for stream in list(host.streams):
                stream.reset()  # or asyncio complains that nobody closed it
        asyncio._set_running_loop(self.loop)
        for task in sorted(left, key=hash):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if not task.done():
                task.context.run(self._close, task.get_coro())
        asyncio._set_running_loop(None)
        self.loop._ready.clear()
        self.loop.close()

    def _close(self, coro: Any) -> None:
        """End a coroutine where it is. What it awaits on the way out never comes, but time passes,
        or who waits until a deadline would wait for ever."""
        for _ in range(MOST_CLOSES):
            try:
                coro.throw(WorldEnds())
            except BaseException:  # it has ended, with this or with anything else
                return
            self.loop.scheduler.now_us += MILLION

    def remove_files(self) -> None:
        """The world has ended."""
        if self._disk is not None:
            self._disk.remove()


def awaited(found: object, check: Check) -> object:
    """What a check said; TypeError if somebody would have to await it, who does not exist."""
    if inspect.iscoroutine(found):
        found.close()
        raise TypeError(f"{name_of(check)}: checks are not awaited: write 'def', not 'async def'")
    return found


def said(check: Check) -> object:
    """What a check says now."""
    found = check()
    return found and awaited(found, check)


def denies(found: object) -> bool:
    """Whether it is False, Python's or numpy's. Other things that are false are not."""
    return not found if type(found).__name__ in ("bool", "bool_") else False


def unbegun(coro: Coroutine[Any, Any, None]) -> bool:
    """Whether nobody has awaited it."""
    return inspect.getcoroutinestate(coro) == inspect.CORO_CREATED


def name(host: str | Host) -> str:
    """Of a host that may be given by its name."""
    return host if isinstance(host, str) else host.name


def sides_of(sides: list[list[str | Host]]) -> str:
    """The sides of a partition, in a line."""
    return " | ".join(", ".join(map(name, side)) for side in sides)[:200]
