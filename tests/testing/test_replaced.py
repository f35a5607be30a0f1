"""The standard library in a world: what works, what is refused, and what other threads see."""

from __future__ import annotations

import _thread
import asyncio
import datetime
import multiprocessing
import os
import queue
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from time import monotonic as copied_monotonic
from typing import Any

import numpy
import pytest

from ringcast.testing import replaced
from ringcast.testing.errors import Escape
from ringcast.testing.run import Outcome, RunSetup, run
from ringcast.testing.world import World


class Holder:
    """Copies in all the places where programs keep them."""

    clock = staticmethod(time.monotonic)
    stamp = time.time_ns

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.now = now


def defaults(*, clock: Callable[[], float] = time.perf_counter) -> float:
    return clock()


Program = Callable[..., Coroutine[Any, Any, Any]]


def outcome(program: Program, seed: int = 0) -> tuple[Outcome, Any]:
    """How a test goes with one host, and what the program there returned."""
    results = []

    async def test(world: World) -> None:
        host = world.host("one", program)
        await world.until(lambda: host.done)
        results.append(host.result)

    found = run(test, RunSetup(seed=seed))
    return found, results[0] if results else None


async def clocks() -> list[object]:
    before = [time.time(), time.time_ns(), time.monotonic(), copied_monotonic()]
    await asyncio.sleep(10)
    now = datetime.datetime.now()
    assert isinstance(now, datetime.datetime)
    return [
        *before,
        time.time(),
        time.perf_counter_ns(),
        copied_monotonic(),
        now,
        datetime.datetime.now(datetime.UTC),
        datetime.date.today(),
        time.localtime(),
        time.strftime("%H:%M:%S"),
    ]


async def chances() -> list[object]:
    return [
        random.random(),
        random.Random().random(),
        random.SystemRandom().random(),
        os.urandom(8),
        secrets.token_hex(),
        secrets.randbelow(10**9),
        uuid.uuid4(),
        uuid.uuid1(),
        uuid.uuid1(node=1),
        os.getpid(),
        socket.gethostname(),
    ]


async def chances_of_numpy() -> list[object]:
    return [float(numpy.random.random()), float(numpy.random.default_rng().random())]


async def all_clocks() -> list[object]:
    return [time.clock_gettime(time.CLOCK_REALTIME), time.clock_gettime_ns(time.CLOCK_BOOTTIME)]


async def copied() -> list[object]:
    return [Holder.clock(), Holder().now(), Holder.stamp(), defaults(), copied_monotonic()]


@pytest.mark.parametrize("program", [clocks, all_clocks, chances, chances_of_numpy, copied])
def test_clocks_and_chance_are_the_same_in_every_run(program: Program) -> None:
    first, values = outcome(program)
    assert first.error is None
    assert outcome(program)[1] == values
    assert outcome(program, seed=1)[1] != values


def test_clocks_agree_with_each_other() -> None:
    _, values = outcome(clocks)
    assert 10 <= values[4] - values[0] < 10.01
    assert 10 <= values[6] - values[3] < 10.01
    moment = values[8]
    assert moment.timestamp() == pytest.approx(values[4])
    assert values[7] == moment.replace(tzinfo=None)
    assert values[9] == moment.date()


async def sleeps() -> None:
    time.sleep(1)  # noqa: ASYNC251  # on purpose


async def starts_a_thread() -> None:
    threading.Thread(target=print).start()


async def starts_a_timer() -> None:
    threading.Timer(1, print).start()


async def blocks() -> None:
    queue.Queue[int]().get()


async def opens_a_socket() -> None:
    socket.create_connection(("127.0.0.1", 80))


async def opens_a_pair() -> None:
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


async def runs_a_process() -> None:
    subprocess.run(["true"], check=False)  # noqa: ASYNC221  # on purpose


async def runs_a_process_by_asyncio() -> None:
    await asyncio.create_subprocess_exec("true")


async def forks() -> None:
    os.fork()


async def runs_another_program() -> None:
    os.posix_spawn("/bin/true", ["true"], {})  # noqa: ASYNC221  # on purpose


async def starts_a_thread_below() -> None:
    _thread.start_new_thread(print, ())


async def starts_a_process() -> None:
    multiprocessing.get_context("spawn").Process(target=print).start()


async def kills() -> None:
    os.kill(os.getpid(), 0)


async def sends_a_signal() -> None:
    signal.raise_signal(signal.SIGTERM)


async def stops_at_once() -> None:
    os._exit(0)


async def has_a_pool_of_processes() -> None:
    ProcessPoolExecutor(1).submit(print)


async def speaks_tls() -> None:
    await asyncio.open_connection("one", 443, ssl=True)


ESCAPES = {
    sleeps: "time.sleep() would leave the simulated world: it blocks .* await asyncio.sleep()",
    starts_a_thread: "a thread would leave .* asyncio.to_thread()",
    starts_a_timer: "a thread would leave",
    blocks: "a blocking wait would leave",
    opens_a_socket: "a socket that blocks would leave .* asyncio.open_connection()",
    opens_a_pair: "a real socket would leave",
    runs_a_process: "a subprocess would leave .* world.host()",
    runs_a_process_by_asyncio: "a subprocess would leave",
    forks: "os.fork() would leave",
    runs_another_program: "os.posix_spawn() would leave",
    starts_a_thread_below: "a thread would leave",
    starts_a_process: "a process would leave",
    kills: "os.kill() would leave .* real processes.* host.crash()",
    sends_a_signal: "signal.raise_signal() would leave",
    stops_at_once: "os._exit() would leave",
    has_a_pool_of_processes: "a process pool would leave",
    speaks_tls: "TLS would leave",
}


@pytest.mark.parametrize("program", ESCAPES, ids=lambda program: program.__name__)
def test_what_escapes_is_told_by_name(program: Program) -> None:
    found, _ = outcome(program)
    error = found.error
    assert error is not None
    with pytest.raises((Escape, AssertionError), match=ESCAPES[program].replace("()", r"\(\)")):
        raise error


def test_an_escape_that_the_program_swallows_is_told_all_the_same() -> None:
    async def careless() -> None:
        try:
            time.sleep(1)  # noqa: ASYNC251  # on purpose
        except Exception:
            await asyncio.sleep(1)

    found, _ = outcome(careless)
    assert isinstance(found.error, Escape)


def test_other_threads_find_the_real_thing() -> None:
    seen: list[float] = []
    go, done = threading.Event(), threading.Event()

    def watch() -> None:
        assert go.wait(10)
        seen.extend((time.time(), copied_monotonic()))
        threading.Thread(target=done.set).start()

    thread = threading.Thread(target=watch)
    thread.start()
    real_s = copied_monotonic()

    async def test(world: World) -> None:
        go.set()
        # The real thread runs while this one does not wait for it.
        while not done.is_set():  # noqa: ASYNC110
            await asyncio.sleep(1)

    found = run(test, RunSetup(seed=0, limit=10**9))
    thread.join()
    assert found.error is None
    assert abs(seen[1] - real_s) < 100
    assert seen[0] > 1_700_100_000


def test_everything_is_put_back() -> None:
    real = {place: getattr(*place) for place in replaced._places}
    state, numpys = random.getstate(), numpy.random.get_state()

    async def broken() -> None:
        random.random()
        raise ValueError

    found, _ = outcome(broken)
    assert found.error is not None
    assert {place: getattr(*place) for place in replaced._places} == real
    assert random.getstate() == state
    assert numpy.random.get_state()[1].tolist() == numpys[1].tolist()  # type: ignore[index]
    assert copied_monotonic is time.monotonic is Holder.clock
    assert isinstance(vars(Holder)["clock"], staticmethod)
    assert Holder().now is time.time
    assert Holder.stamp is time.time_ns
    assert abs(defaults() - time.perf_counter()) < 10


def test_so_is_what_the_test_put_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "the test's own")
    _, values = outcome(chances)
    assert values[-1] == "one"
    assert socket.gethostname() == "the test's own"


def test_so_is_the_event_loop_of_the_test_runner() -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        outcome(clocks)
        assert asyncio.get_event_loop() is loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_a_module_imported_in_a_world_works_outside(tmp_path: Any) -> None:
    (tmp_path / "imported_within.py").write_text("from time import time as now\n")
    sys.path.insert(0, str(tmp_path))

    async def imports() -> float:
        import imported_within  # type: ignore[import-not-found]

        moment: float = imported_within.now()
        return moment

    try:
        _, inside = outcome(imports)
        import imported_within

        assert inside < 1_700_000_100
        assert abs(imported_within.now() - time.time()) < 10
    finally:
        sys.path.remove(str(tmp_path))
