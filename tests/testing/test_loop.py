"""The event loop: virtual time, and an order that the seed decides."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from ringcast.testing.errors import Stuck
from ringcast.testing.process import Clock
from ringcast.testing.run import Outcome, RunSetup, run
from ringcast.testing.world import World


def outcome(test: Callable[[World], Coroutine[Any, Any, None]], seed: int = 0) -> Outcome:
    return run(test, RunSetup(seed=seed))


def passed(test: Callable[[World], Coroutine[Any, Any, None]], seed: int = 0) -> Outcome:
    found = outcome(test, seed)
    if found.error is not None:
        raise found.error
    return found


def on_host(main: Callable[..., Coroutine[Any, Any, Any]], seed: int = 0) -> Any:
    """What a program returns that runs on a host of its own."""
    results = []

    async def test(world: World) -> None:
        host = world.host("one", main)
        await world.until(lambda: host.done)
        results.append(host.result)

    passed(test, seed)
    return results[0]


def test_time_passes_at_once() -> None:
    async def test(world: World) -> None:
        await asyncio.sleep(100_000)
        assert 100_000 <= world.now < 100_001

    began_s = time.perf_counter()
    found = run(test, RunSetup(seed=0, limit=1_000_000))
    assert found.error is None
    assert time.perf_counter() - began_s < 10


async def steps(order: list[int]) -> None:
    async def work(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            order.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(work(number))


def test_tasks_run_in_an_order_of_the_seed() -> None:
    def order(seed: int) -> tuple[int, ...]:
        found: list[int] = []

        async def test(world: World) -> None:
            await steps(found)

        passed(test, seed)
        return tuple(found)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(20)}) > 10


def test_callbacks_keep_their_order() -> None:
    """asyncio promises that of ``call_soon``, and programs rely on it."""

    async def test(world: World) -> None:
        seen: list[int] = []
        for number in range(50):
            asyncio.get_running_loop().call_soon(seen.append, number)
        await asyncio.sleep(0.1)
        assert seen == [*range(50)]

    for seed in range(10):
        passed(test, seed)


def test_handles_are_those_of_asyncio_to_whoever_asks() -> None:
    async def main() -> list[object]:
        loop = asyncio.get_running_loop()
        ran: list[object] = []
        soon, later = loop.call_soon(ran.append, 1), loop.call_later(2.0, ran.append, 2)
        assert isinstance(soon, asyncio.Handle)
        assert not isinstance(soon, asyncio.TimerHandle)
        assert isinstance(later, asyncio.TimerHandle)
        assert later.when() == pytest.approx(loop.time() + 2.0, abs=1e-3)
        never = loop.call_at(loop.time() + 1.0, ran.append, 3)
        never.cancel()
        assert (never.cancelled(), later.cancelled()) == (True, False)
        await asyncio.sleep(3.0)
        return ran

    assert on_host(main) == [1, 2]


def test_timers_fire_in_time_and_not_early() -> None:
    async def test(world: World) -> None:
        loop = asyncio.get_running_loop()
        fired: list[float] = []
        for delay_s in (0.3, 0.1, 0.2):
            loop.call_later(delay_s, lambda: fired.append(loop.time()))
        cancelled = loop.call_later(0.15, fired.append, 0.0)
        cancelled.cancel()
        await asyncio.sleep(1)
        assert [round(at, 1) for at in fired] == [0.1, 0.2, 0.3]
        assert fired[0] >= 0.1

    for seed in range(10):
        passed(test, seed)


def test_whoever_waits_until_a_time_does_not_wait_for_ever() -> None:
    """3.810076 + 2.0 is a little more than 5.810076, at which the timer fires."""

    async def main() -> int:
        clock, rounds = asyncio.get_running_loop().time, 0
        await asyncio.sleep(3.810076 - clock())
        deadline = clock() + 2.0
        while clock() < deadline:
            rounds += 1
            assert rounds < 10
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await asyncio.Event().wait()
        return rounds

    assert {on_host(main, seed) for seed in range(6)} <= {1, 2}


@pytest.mark.parametrize("ppm", [50_000, 1_000, -50_000])
def test_timers_of_a_clock_that_drifts_are_not_early(ppm: int) -> None:
    """A program that waits until a time of its clock would wait again and again, and no time would
    pass: not even ``Stuck`` would tell, for each timer is one of the world's events."""
    clock = Clock()
    clock.drift(7, ppm)
    for now_us in range(1_000_000, 1_000_030):
        for delay_us in range(60):
            then_us = now_us + clock.real_us(delay_us)
            assert delay_us <= clock.local_us(then_us) - clock.local_us(now_us) <= delay_us + 2


def test_primitives_work() -> None:
    async def test(world: World) -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        lock, inside = asyncio.Lock(), []

        async def put() -> None:
            for number in range(5):
                await queue.put(number)

        async def hold(number: int) -> None:
            async with lock:
                inside.append(number)
                await asyncio.sleep(0.01)
                assert inside == [number]
                inside.clear()

        task = asyncio.create_task(put())
        assert [await queue.get() for _ in range(5)] == [0, 1, 2, 3, 4]
        await task
        await asyncio.gather(*(hold(number) for number in range(5)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 3)
        done, pending = await asyncio.wait(
            [asyncio.create_task(asyncio.sleep(s)) for s in (1, 2)], return_when="FIRST_COMPLETED"
        )
        assert (len(done), len(pending)) == (1, 1)

    for seed in range(10):
        passed(test, seed)


def test_a_world_in_which_nothing_can_happen_is_told() -> None:
    async def test(world: World) -> None:
        await asyncio.Event().wait()

    found = run(test, RunSetup(seed=0, limit=5))
    assert isinstance(found.error, Stuck)
    assert "not over after 5 s" in str(found.error)


def test_a_task_that_spins_is_told() -> None:
    async def test(world: World) -> None:
        while True:  # noqa: ASYNC110  # on purpose
            await asyncio.sleep(0)

    found = outcome(test)
    assert isinstance(found.error, Stuck)
    assert "no time has passed" in str(found.error)


def test_threads_of_pools_run_in_virtual_time() -> None:
    async def program() -> tuple[float, list[int]]:
        began = time.monotonic()
        await asyncio.to_thread(time.sleep, 30)
        took = time.monotonic() - began
        with ThreadPoolExecutor(2) as pool:
            squares = list(pool.map(lambda n: n * n, range(4)))
        return took, squares

    took, squares = on_host(program)
    assert 30 <= took < 31
    assert squares == [0, 1, 4, 9]


def test_jobs_of_several_threads_come_back_in_an_order_of_the_seed() -> None:
    async def program() -> tuple[int, ...]:
        order: list[int] = []

        async def ask(number: int) -> None:
            await asyncio.to_thread(lambda: None)
            order.append(number)

        await asyncio.gather(*(ask(number) for number in range(4)))
        return tuple(order)

    assert on_host(program, 3) == on_host(program, 3)
    assert len({on_host(program, seed) for seed in range(20)}) > 5


def test_one_thread_works_in_the_order_of_submission() -> None:
    async def program() -> list[int]:
        done: list[int] = []
        pool = ThreadPoolExecutor(1)
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(pool, done.append, n) for n in range(10)))
        assert pool.submit(lambda: "now").result() == "now"  # who blocks makes it happen
        failed = pool.submit(lambda: 1 // 0)
        assert isinstance(failed.exception(), ZeroDivisionError)
        pool.shutdown()
        return done

    for seed in range(5):
        assert on_host(program, seed) == [*range(10)]


def test_sets_of_tasks_have_one_order() -> None:
    """``TaskGroup`` and others go through a set of tasks, which would lie where memory was free."""

    def order() -> list[str]:
        found: list[str] = []

        async def test(world: World) -> None:
            tasks = {asyncio.create_task(asyncio.sleep(1), name=f"t{n}") for n in range(30)}
            found.extend(task.get_name() for task in tasks)
            await asyncio.wait(tasks)

        passed(test)
        return found

    first = order()
    litter = [object() for _ in range(1000)]
    assert order() == first
    assert litter


def test_what_asyncio_itself_puts_into_sets_has_one_order() -> None:
    async def program() -> list[int]:
        async def work(number: int) -> int:
            await asyncio.sleep(1)
            return number

        found: list[int] = []
        given, litter = [], []
        for number in range(30):  # which would lie where memory was free
            given.append(work(number))
            litter.append([work] * number)
        for each in asyncio.as_completed(given):
            found.append(await each)
        done, _ = await asyncio.wait([asyncio.gather(work(number)) for number in range(30)])
        return [*found, *(number for each in done for number in each.result())]

    first = on_host(program)
    assert sorted(first[:30]) == sorted(first[30:]) == [*range(30)]
    litter = [object() for _ in range(1000)]
    assert on_host(program) == first
    assert litter


def test_who_gives_as_completed_no_list_is_told() -> None:
    async def program() -> list[Any]:
        coroutine = asyncio.sleep(1)
        try:
            return list(asyncio.as_completed(coroutine))  # type: ignore[arg-type]
        finally:
            coroutine.close()

    with pytest.raises(AssertionError, match="TypeError: expect an iterable of futures"):
        on_host(program)


def test_every_host_has_as_many_processors_wherever_it_runs() -> None:
    async def program() -> tuple[int | None, int]:
        with ThreadPoolExecutor() as pool:
            return os.cpu_count(), pool._max_workers

    assert on_host(program) == (4, 8)
