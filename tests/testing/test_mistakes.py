"""Mistakes of people who write simtests: each is told, and says what to write instead."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy
import pytest

from ringcast.testing import Crash, Cut, Host, Stuck, World, simtest
from ringcast.testing.faults import as_plan
from ringcast.testing.naming import name_of
from ringcast.testing.run import Outcome, RunSetup, Test, run
from ringcast.testing.story import cut_off


def outcome(test: Test, **setup: Any) -> Outcome:
    return run(test, RunSetup(**{"seed": 0} | setup))


def test_seeds_are_written_as_on_the_command_line() -> None:
    seen: list[int] = []

    async def test(world: World) -> None:
        seen.append(world.seed)

    simtest(seeds="5..8")(test)()
    assert seen == [5, 5, 6, 7]
    with pytest.raises(ValueError, match="'five' is not a seed such as 17 or a range"):
        simtest(seeds="five")


def test_a_plan_may_be_one_fault_and_nothing_else() -> None:
    crash = Crash(at=1, host="shop")
    cut = Cut(at=1, source="shop", target="bank")
    assert as_plan(crash) == (crash,)
    assert as_plan([crash, cut]) == (crash, cut)
    with pytest.raises(ValueError, match="faults = 'crash': give 'swarm', a Swarm, a plan or None"):
        simtest(faults=[crash, "crash"])  # type: ignore[list-item]


def test_what_a_crash_loses_is_one_of_three() -> None:
    told = "loss = 'everything': give one of 'unsynced', 'torn', 'nothing'"
    with pytest.raises(ValueError, match=told):
        Crash(at=1, host="shop", loss="everything")  # type: ignore[arg-type]

    async def test(world: World) -> None:
        host = world.host("shop", asyncio.sleep, 100)
        await world.sleep(1)
        host.crash("everything")  # type: ignore[arg-type]

    assert told in str(outcome(test).error)


def test_an_await_that_is_forgotten() -> None:
    async def until(world: World) -> None:
        world.until(lambda: False)  # type: ignore[unused-coroutine]

    async def sleep(world: World) -> None:
        world.sleep(3)  # type: ignore[unused-coroutine]

    for test, told in ((until, "world.until"), (sleep, "world.sleep")):
        error = outcome(test).error
        assert str(error) == f"{told}() was not awaited: write 'await {told}(...)'"


def test_a_check_that_would_have_to_be_awaited() -> None:
    """A coroutine is true: ``until`` would be over at once, and ``always`` would never fail."""

    async def check() -> bool:
        return False

    async def always(world: World) -> None:
        world.always(check)

    async def until(world: World) -> None:
        await world.until(lambda: check())

    async def sometimes(world: World) -> None:
        world.sometimes("never", check)

    told = ": checks are not awaited: write 'def', not 'async def'"
    for test, name in ((always, "check"), (until, "check()"), (sometimes, "check")):
        assert str(outcome(test).error) == f"{name}{told}"


def test_checks_of_one_name_are_all_made() -> None:
    """As in a loop over hosts: the lambdas say the same, of different things."""

    async def always(world: World) -> None:
        world.host("shop", asyncio.sleep, 100)
        for limit in (2, 5):
            world.always(lambda limit=limit: world.now < limit)  # type: ignore[misc]
        await world.sleep(3)

    async def sometimes(world: World) -> None:
        for wanted in (2, 5):
            world.sometimes("late", lambda wanted=wanted: world.now > wanted)  # type: ignore[misc]
        await world.sleep(3)

    assert str(outcome(always).error) == "world.now < limit does not hold"
    assert outcome(sometimes).met == {"late": True}


def test_numpy_says_no_as_python_does() -> None:
    async def test(world: World) -> None:
        world.always(lambda: (numpy.array([1, 2]) == 1).all())

    assert "does not hold" in str(outcome(test).error)


def test_a_program_that_is_cancelled_is_in_the_story() -> None:
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    async def test(world: World) -> None:
        host = world.host("shop", cancels_itself)
        await world.until(lambda: host.done, within=5)

    assert "its program was cancelled" in outcome(test).trace


def test_a_test_that_is_cancelled_has_a_story() -> None:
    async def test(world: World) -> None:
        given_up = asyncio.create_task(asyncio.sleep(1))
        given_up.cancel()
        await given_up

    assert outcome(test).kind.startswith("CancelledError at test_mistakes.py:")


def test_a_program_with_a_parameter_that_nobody_gives() -> None:
    async def program(nod: Any, seats: int, *more: int, price: int = 3) -> None: ...

    async def test(world: World) -> None:
        world.host("shop", program, 7)

    error = outcome(test).error
    assert str(error).startswith("shop: nobody gives its program seats: host, node and world are")


def test_a_program_that_is_no_coroutine() -> None:
    def program(host: Host) -> None: ...

    async def test(world: World) -> None:
        world.host("shop", program)  # type: ignore[arg-type]

    assert str(outcome(test).error) == "shop: write 'async def program'"


def test_a_run_that_does_not_end_says_where_it_is() -> None:
    async def test(world: World) -> None:
        sold = 0
        await world.until(lambda: sold > 3, within=1000)

    error = outcome(test, limit=5).error
    assert isinstance(error, Stuck)
    at = test.__code__.co_firstlineno + 2
    assert str(error) == (
        f"the run is not over after 5 s of its time: the test is at test_mistakes.py:{at}; "
        "awaited: sold > 3; @simtest(limit=...) gives it more"
    )


def test_who_spins_is_named() -> None:
    async def spinning() -> None:
        while True:  # noqa: ASYNC110  # on purpose
            await asyncio.sleep(0)

    async def test(world: World) -> None:
        world.host("shop", spinning)
        await world.sleep(1)

    assert "the last was test_who_spins_is_named.<locals>.spinning of shop" in str(
        outcome(test).error
    )


def test_lambdas_are_called_what_they_say() -> None:
    left, right = [1], (2, 3)
    one, other = lambda: (left[0]) or all(right), lambda: len(left) == 7
    several = lambda: (  # noqa: E731
        left
        and right
    )  # fmt: skip
    outer = lambda: [(lambda: x + 1)() for x in right]  # noqa: E731
    assert [name_of(each) for each in (one, other, several, outer)] == [
        "(left[0]) or all(right)",
        "len(left) == 7",
        "left and right",
        "[(lambda: x + 1)() for x in right]",
    ]
    assert name_of(eval("lambda: 1")) == "<lambda>"


def test_a_long_line_of_a_story_is_cut_visibly() -> None:
    assert cut_off("abc", 5) == "abc  "
    assert cut_off("abcdef", 5) == "abcd…"
