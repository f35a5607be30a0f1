"""What a program finds in the standard library while it is in a simulated world.

Clocks, chance, sockets and thread pools work, deterministically. Threads, processes and blocking
waits are refused, with what to use instead. Only the thread of a world that runs is meant: the
threads of a test runner, for instance, find the real thing.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import errno
import os
import random as global_random
import select
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from random import Random
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ringcast.testing.copies import copies
from ringcast.testing.process import PROCESS
from ringcast.testing.sockets import SimPoll, SimSocket, StreamSocket, numeric, owner, text_of
from ringcast.testing.streams import SimListener
from ringcast.testing.threads import JobResult, Pool

if TYPE_CHECKING:
    from ringcast.testing.world import World

_world: World | None = None
"""The world that runs, in this process."""

_places: dict[tuple[Any, str], tuple[Any, Any]] = {}
"""By owner and name: the real thing and what takes its place."""

Fake = Callable[..., Any]

CPUS = 4
"""Of every host."""


def here() -> World | None:
    """The world whose code runs now, if any."""
    return _world if _world is not None and get_ident() == _world.thread else None


def replaces(owned: Any, *names: str) -> Callable[[Fake], Fake]:
    """Let ``fake(world, ...)`` take the place of these functions within a world."""

    def take(fake: Fake) -> Fake:
        for name in names:
            put(owned, name, lambda real: dispatch(real, fake))
        return fake

    return take


def dispatch(real: Fake, fake: Fake) -> Fake:
    """The fake in a world, the real one elsewhere; safe to be kept by whoever imports it."""

    def either(*args: Any, **kwargs: Any) -> Any:
        world = _world
        if world is None or get_ident() != world.thread:
            return real(*args, **kwargs)
        return fake(world, *args, **kwargs)

    return either


def put(owned: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace one name, where this Python has it."""
    if (real := getattr(owned, name, None)) is not None:
        _places[owned, name] = real, make(real)


# --- clocks --------------------------------------------------------------------------------


def monotonic_us(world: World) -> int:
    """The monotonic clock of the host that asks."""
    process = PROCESS.get()
    now_us: int = world.loop.scheduler.now_us
    return process.clock.local_us(now_us) + process.job_us if process else now_us


def wall_us(world: World) -> int:
    """Its wall clock."""
    process = PROCESS.get()
    now_us: int = world.loop.scheduler.now_us
    return (
        process.clock.wall_us(now_us) + process.job_us if process else world.clock.wall_us(now_us)
    )


@replaces(time, "time")
def _time(world: World) -> float:
    return wall_us(world) / 1e6


@replaces(time, "time_ns")
def _time_ns(world: World) -> int:
    return wall_us(world) * 1000


@replaces(time, "monotonic", "perf_counter", "process_time", "thread_time")
def _monotonic(world: World) -> float:
    return monotonic_us(world) / 1e6


@replaces(time, "perf_counter_ns", "process_time_ns", "thread_time_ns")
def _counter_ns(world: World) -> int:
    return monotonic_us(world) * 1000


@replaces(time, "clock_gettime")
def _clock(world: World, number: int) -> float:
    seconds: float = _clock_ns(world, number) / 1e9
    return seconds


@replaces(time, "clock_gettime_ns")
def _clock_ns(world: World, number: int) -> int:
    return (wall_us if number == time.CLOCK_REALTIME else monotonic_us)(world) * 1000


_real_monotonic_ns = time.monotonic_ns


def _monotonic_ns() -> int:
    """As the others, in one piece: a node asks several times for each frame."""
    world = _world
    if world is None or get_ident() != world.thread:
        return _real_monotonic_ns()
    process = PROCESS.get()
    now_us: int = world.loop.scheduler.now_us
    if process is None:
        return now_us * 1000
    clock = process.clock
    passed_us = clock.local_us(now_us) if clock.ppm else now_us + clock.ahead_us
    return (passed_us + process.job_us) * 1000


put(time, "monotonic_ns", lambda real: _monotonic_ns)


@replaces(time, "sleep")
def _sleep(world: World, seconds: float) -> None:
    process = PROCESS.get()
    if process is None or not process.in_job:
        world.escapes.escape(
            "time.sleep()", "it blocks the whole event loop; await asyncio.sleep() instead"
        )
    process.job_us += int(seconds * 1e6)


_gmtime, _strftime = time.gmtime, time.strftime


@replaces(time, "gmtime", "localtime")
def _moment(world: World, seconds: float | None = None) -> time.struct_time:
    """Every host lives in UTC."""
    return _gmtime(wall_us(world) / 1e6 if seconds is None else seconds)


@replaces(time, "strftime")
def _format(world: World, form: str, moment: Any = None) -> str:
    return _strftime(form, moment or _moment(world))


@replaces(time, "ctime")
def _ctime(world: World, seconds: float | None = None) -> str:
    return time.asctime(_moment(world, seconds))


_utc = datetime.UTC
_datetime: Any = datetime.datetime
_date: Any = datetime.date


class _Kind(type):
    """So that the real ones are instances of what takes their place."""

    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, cls.__mro__[1])

    def __subclasscheck__(cls, one: type) -> bool:
        return issubclass(one, cls.__mro__[1])


class _Datetime(datetime.datetime, metaclass=_Kind):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _datetime(*args, **kwargs)

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        world = here()
        if world is None:
            return _datetime.now(tz)
        moment = _datetime.fromtimestamp(wall_us(world) / 1e6, tz or _utc)
        return moment if tz else moment.replace(tzinfo=None)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(_utc).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return cls.now()


class _Date(datetime.date, metaclass=_Kind):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _date(*args, **kwargs)

    @classmethod
    def today(cls) -> Any:
        return _Datetime.now().date()


put(datetime, "datetime", lambda real: _Datetime)
put(datetime, "date", lambda real: _Date)


# --- chance --------------------------------------------------------------------------------


@replaces(os, "urandom", "getrandom")
@replaces(global_random, "_urandom")
def _urandom(world: World, size: int, flags: int = 0) -> bytes:
    return world.chance.randbytes(size)


_real_seed = global_random.Random.seed


def _seed(self: global_random.Random, a: Any = None, version: int = 2) -> None:
    world = here() if a is None else None
    _real_seed(self, world.chance.getrandbits(64) if world else a, version)


put(global_random.Random, "seed", lambda real: _seed)


@replaces(uuid, "_generate_time_safe")
def _uuid_time(world: World) -> tuple[bytes, None]:
    """uuid1 from the simulated clock, not the system's."""
    ticks = wall_us(world) * 10 + 0x01B21DD213814000
    return uuid.UUID(fields=(
        ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF | 0x1000,
        0x80 | world.chance.getrandbits(6), world.chance.getrandbits(8), _node(world),
    )).bytes, None  # fmt: skip


@replaces(uuid, "getnode")
def _node(world: World) -> int:
    process = PROCESS.get()
    return 0x0242AC110000 + (process.number & 0xFFFF if process else 1)


@replaces(os, "cpu_count", "process_cpu_count")
def _cpu_count(world: World) -> int:
    """The same wherever the test runs: thread pools have as many workers as this tells them."""
    return CPUS


@replaces(os, "getpid")
def _pid(world: World) -> int:
    process = PROCESS.get()
    return process.number if process else 1


# --- the network ---------------------------------------------------------------------------

_socket = socket.socket


def opened_stream(
    family: int = -1, type: int = -1, proto: int = 0, fileno: Any = None
) -> StreamSocket | None:
    """A TCP socket over IPv4, if that is asked for."""
    stream = type in (-1, socket.SOCK_STREAM) and family in (-1, socket.AF_INET)
    return StreamSocket(owner().host) if stream and fileno is None else None


class _Socket(SimSocket):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if here() is None:
            return _socket(*args, **kwargs)
        return opened_stream(*args, **kwargs) or super().__new__(cls)

    def __init__(self, family: int = -1, type: int = -1, proto: int = 0, fileno: Any = None):
        world = here()
        assert world is not None
        if type & 15 != socket.SOCK_DGRAM or family == socket.AF_UNIX:
            world.escapes.escape(
                "a real socket",
                "use asyncio.open_connection() and asyncio.start_server(), UDP, or host.call()",
            )
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "simulated hosts speak IPv4")
        process = owner()
        super().__init__(process.host, process)


put(socket, "socket", lambda real: _Socket)


@replaces(socket, "create_server")
def _create_server(world: World, address: Any, **_: Any) -> SimListener:
    process = owner()
    return SimListener(process.host, process, address[:2])


@replaces(select, "poll")
def _poll(world: World) -> SimPoll:
    return SimPoll()


@replaces(socket, "getaddrinfo")
def _getaddrinfo(
    world: World, name: Any, port: Any, family: int = 0, type: int = 0, *_: Any, **__: Any
) -> list[Any]:
    name = text_of(name or "0.0.0.0")
    found = world.find(name)
    if found is None and not numeric(name):
        raise socket.gaierror(socket.EAI_NONAME, f"no host is called {name!r}")
    place = (name if found is None or numeric(name) else found.address, int(port or 0))
    return [(socket.AF_INET, type or socket.SOCK_DGRAM, 0, "", place)]


@replaces(socket, "gethostbyname")
def _gethostbyname(world: World, name: str) -> str:
    place: tuple[str, int] = _getaddrinfo(world, name, 0)[0][4]
    return place[0]


@replaces(socket, "gethostname", "getfqdn")
def _gethostname(world: World, *_: Any) -> str:
    process = PROCESS.get()
    return process.host.name if process else "test"


# --- concurrency ---------------------------------------------------------------------------


def _pool_of(world: World, executor: Any) -> Pool:
    found: tuple[World, Pool] | None = getattr(executor, "_ringcast_pool", None)
    if found is None or found[0] is not world:
        executor._ringcast_pool = found = (world, Pool(world.loop, executor._max_workers))
    return found[1]


@replaces(concurrent.futures.ThreadPoolExecutor, "submit")
def _submit(world: World, executor: Any, work: Fake, /, *args: Any, **kwargs: Any) -> Any:
    if PROCESS.get() is None:
        world.loop.refuse_thread()
    if executor._shutdown:
        raise RuntimeError("cannot schedule new futures after shutdown")
    pool = _pool_of(world, executor)
    return pool.submit(partial(work, *args, **kwargs), JobResult(pool))


@replaces(concurrent.futures.ThreadPoolExecutor, "shutdown")
def _shutdown(
    world: World, executor: Any, wait: bool = True, *, cancel_futures: bool = False
) -> None:
    executor._shutdown = True
    if wait:
        _pool_of(world, executor).finish()


# --- putting it in place -------------------------------------------------------------------

_remembered = [
    (tempfile, "_name_sequence", None),
    *((uuid, f"_last_timestamp{version}", None) for version in ("", "_v6", "_v7")),
    (uuid, "_last_counter_v7", 0),
]
"""What modules keep from run to run: the last run's names and times would decide this one's."""


def forget() -> None:
    """Let the standard library be as it is when it has just been imported."""
    for owned, name, fresh in _remembered:
        if hasattr(owned, name):
            setattr(owned, name, fresh)


@contextmanager
def seeded(world: World) -> Iterator[None]:
    """Global sources of chance draw from the seed; afterwards they go on as if nothing was."""
    state = global_random.getstate()
    numpy: Any = import_module("numpy.random") if "numpy" in sys.modules else None
    array_state = numpy and numpy.get_state()
    try:
        global_random.seed(world.chance.getrandbits(64))
        if numpy is not None:
            numpy.seed(Random(f"{world.seed}/numpy").getrandbits(32))
        yield
    finally:
        global_random.setstate(state)
        if numpy is not None:
            numpy.set_state(array_state)


@contextmanager
def replaced(world: World) -> Iterator[None]:
    """Everything above, while the world runs."""
    global _world
    if _world is not None:
        raise RuntimeError("a simulated world runs already, and there is room for one")
    found = copies(_places)
    before = {place: getattr(*place) for place in _places}  # the test may have put its own there
    try:
        for (owned, name), (_, fake) in _places.items():
            setattr(owned, name, fake)
        for copy in found:
            copy.put(_places[copy.place][1])
        forget()
        with seeded(world):
            _world = world
            yield
    finally:
        _world = None
        forget()
        for (owned, name), thing in before.items():
            setattr(owned, name, thing)
        for copy in found:
            copy.put(_places[copy.place][0])
