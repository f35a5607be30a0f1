"""Errors of tasks that nobody awaits: they fail the seed, and at the same moment each time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from ringcast.testing import Host, HostFailed, Outcome, World
from ringcast.testing.run import RunSetup, run


def on_host(main: Callable[..., Coroutine[Any, Any, Any]]) -> Outcome:
    async def test(world: World) -> None:
        world.host("shop", main)
        await world.sleep(5)

    return run(test, RunSetup(seed=0))


async def breaks() -> None:
    await asyncio.sleep(1)
    raise AssertionError("three seats, four sold\nand more")


async def keeps_the_task() -> None:
    working = asyncio.create_task(breaks())
    await asyncio.sleep(1000)
    await working


async def forgets_the_task() -> None:
    asyncio.create_task(breaks())  # noqa: RUF006
    await asyncio.sleep(2)
    gc.collect()
    await asyncio.sleep(1000)


async def returns_before() -> None:
    asyncio.create_task(breaks())  # noqa: RUF006


async def has_a_node(node: Any) -> None:
    await forgets_the_task()


@pytest.mark.parametrize("main", [keeps_the_task, forgets_the_task, returns_before, has_a_node])
def test_an_error_that_nobody_sees_fails_the_seed(
    main: Callable[..., Coroutine[Any, Any, Any]],
) -> None:
    outcome = on_host(main)
    assert isinstance(outcome.error, HostFailed)
    assert str(outcome.error).startswith(
        "shop, in its task breaks that nobody awaits: AssertionError: three seats, four sold"
    )
    assert outcome.kind.startswith("AssertionError at test_background_tasks.py:")
    assert "task breaks fails: AssertionError: three seats, four sold\n" in outcome.trace + "\n"
    assert on_host(main).trace == outcome.trace


def test_so_does_one_of_the_test_itself() -> None:
    async def test(world: World) -> None:
        asyncio.create_task(breaks())  # noqa: RUF006
        await world.sleep(2)

    error = run(test, RunSetup(seed=0)).error
    assert str(error).startswith("the test, in its task breaks that nobody awaits: AssertionError")


def test_it_is_in_the_story_of_another_failure() -> None:
    async def test(world: World) -> None:
        asyncio.create_task(breaks())  # noqa: RUF006
        await world.until(lambda: False, within=3, what="all are served")

    outcome = run(test, RunSetup(seed=0))
    assert outcome.kind == "NotReached: all are served"
    assert "task breaks fails" in outcome.trace


async def sees_it_late() -> None:
    working = asyncio.create_task(breaks())
    await asyncio.sleep(3)
    with suppress(AssertionError):
        await working


async def sees_it_by_a_callback() -> None:
    working = asyncio.create_task(breaks())
    working.add_done_callback(lambda task: task.exception())
    await asyncio.sleep(1000)


async def gathers() -> None:
    await asyncio.gather(breaks(), breaks(), return_exceptions=True)


async def cancels() -> None:
    working = asyncio.create_task(breaks())
    await asyncio.sleep(0.5)
    working.cancel()


async def crashes(host: Host) -> None:
    if host.lives == 1:
        working = asyncio.create_task(breaks())
        host.loop.call_later(2, host.restart)
        await asyncio.sleep(1000)
        await working


@pytest.mark.parametrize("main", [sees_it_late, sees_it_by_a_callback, gathers, cancels, crashes])
def test_an_error_that_somebody_sees_does_not(
    main: Callable[..., Coroutine[Any, Any, Any]],
) -> None:
    assert on_host(main).error is None
