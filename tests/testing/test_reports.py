"""What pytest prints of a simtest, seen from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

Says: TypeAlias = Callable[..., str]

NOT_INHERITED = ("PYTHONHASHSEED", "CI", "BUILD_NUMBER")
"""The two last make pytest tell each failure in full a second time, in its summary."""


@pytest.fixture
def pytest_says(tmp_path: Path) -> Says:
    """Run pytest on a module; what it says."""

    def says(module: str, *options: str, **environment: str) -> str:
        (tmp_path / "test_it.py").write_text(module)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "ringcast.testing.plugin"]
        inherited = {k: v for k, v in os.environ.items() if k not in NOT_INHERITED}
        done = subprocess.run(
            [*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False,
            timeout=100, env=inherited | {"COLUMNS": "200"} | environment,
        )  # fmt: skip
        return done.stdout + done.stderr

    return says


SET_OF_STRINGS = """
import asyncio
from ringcast.testing import simtest

async def scheduler(host):
    waiting, done = {"backup", "invoice", "mail", "report"}, []
    while waiting:
        done.append(waiting.pop())
        await asyncio.sleep(0.1)
    assert done[0] == "nothing", done

@simtest(seeds=5)
async def test_order(world):
    host = world.host("office", scheduler)
    await world.until(lambda: host.done, within=10)
"""


def test_the_line_that_repeats_has_the_hash_seed(pytest_says: Says) -> None:
    def order(said: str) -> str:
        found = re.search(r"seed 0: .*AssertionError: (\[.*\])", said)
        assert found, said
        return found[1]

    said = pytest_says(SET_OF_STRINGS, PYTHONHASHSEED="3")
    line = "repeat: PYTHONHASHSEED=3 pytest test_it.py::test_order --simtest-seed 0"
    assert line in said
    assert "PYTHONHASHSEED is not set" not in said
    again = pytest_says(SET_OF_STRINGS, "--simtest-seed", "0", PYTHONHASHSEED="3")
    other = pytest_says(SET_OF_STRINGS, PYTHONHASHSEED="4")
    assert order(said) == order(again) != order(other)


def test_hashes_that_cannot_be_repeated_are_told(pytest_says: Says) -> None:
    said = pytest_says(SET_OF_STRINGS)
    assert "repeat: pytest test_it.py::test_order --simtest-seed 0" in said
    assert "PYTHONHASHSEED is not set: if this line passes" in said


HYPOTHESIS = """
import asyncio
from hypothesis import given, settings, strategies as st
from ringcast.testing import simtest

runs = []

@settings(max_examples=3, database=None)
@simtest(seeds=2)
@given(orders=st.lists(st.integers(1, 5), max_size=8))
async def test_slow(world, orders):
    runs.append(world.seed)
    assert len(runs) <= 6, "settings above count, too"
    for _ in range(10_000_000):
        pass

@simtest(seeds=5)
@settings(database=None)
@given(orders=st.lists(st.integers(1, 5), max_size=8))
async def test_broken(world, orders):
    async def shop(host):
        await asyncio.sleep(1)
        assert sum(orders) < 10, "too many"
    world.host("shop", shop)
    await world.sleep(2)

@simtest(seeds=2)
@settings(max_examples=3, database=None)
@given(orders=st.lists(st.integers(1, 5), max_size=8))
async def test_never(world, orders):
    world.sometimes("something was sold", lambda: False)
    world.sometimes("something was asked for", lambda: True)

@given(orders=st.lists(st.integers(1, 5), max_size=8))
@simtest(seeds=5)
async def test_wrong_way(world, orders): ...
"""


def test_hypothesis_knows_nothing_of_virtual_time(pytest_says: Says) -> None:
    said = pytest_says(HYPOTHESIS, "-k", "slow")
    assert "1 passed" in said, said


def test_hypothesis_and_we_tell_one_story(pytest_says: Says) -> None:
    said = pytest_says(HYPOTHESIS, "-k", "broken")
    assert said.count("repeat: ") == 1
    assert "seed 0: shop: AssertionError: too many" in said
    assert "orders=[5, 5]" in said or "orders=[1, " in said
    assert "Flaky" not in said
    assert "Traceback" not in said


def test_with_hypothesis_what_is_seen_sometimes_is_asked_for(pytest_says: Says) -> None:
    said = pytest_says(HYPOTHESIS, "-k", "never")
    assert "NeverMet: in 2 seeds never: something was sold. Run more" in said, said


def test_hypothesis_goes_below(pytest_says: Says) -> None:
    assert "test_wrong_way: put @simtest above @given" in pytest_says(HYPOTHESIS, "-k", "wrong_way")


RUNNER = """
import asyncio, signal, sys
import pytest
from ringcast.testing import simtest

def of_host(main):
    async def test(world):
        world.host("shop", main)
        await world.sleep(3)
    return simtest(seeds=3)(test)

def late(*_):
    pytest.fail("Timeout")

async def busy():
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    while True:
        pass

async def busy_elsewhere():
    asyncio.create_task(busy())
    await asyncio.sleep(1000)

async def busy_in_a_callback():
    asyncio.get_running_loop().call_soon(lambda: busy().send(None))
    await asyncio.sleep(1000)

async def skips():
    pytest.skip("not today")

async def exits():
    sys.exit(3)

async def exits_in_a_callback():
    asyncio.get_running_loop().call_soon(sys.exit, 3)
    await asyncio.sleep(1000)

test_busy, test_busy_task = of_host(busy), of_host(busy_elsewhere)
test_busy_callback, test_skips = of_host(busy_in_a_callback), of_host(skips)
test_exits, test_exits_callback = of_host(exits), of_host(exits_in_a_callback)

@simtest(seeds=3)
async def test_exits_itself(world):
    sys.exit(3)
"""


@pytest.mark.parametrize("which", ["test_busy", "test_busy_task", "test_busy_callback"])
def test_a_timeout_of_the_test_runner_passes(pytest_says: Says, which: str) -> None:
    said = pytest_says(RUNNER, f"test_it.py::{which}")
    assert "E       Failed: Timeout" in said.replace("E   Failed", "E       Failed"), said
    assert "in seed 0; repeat: " in said
    assert "SimFailure" not in said


def test_so_does_a_skip(pytest_says: Says) -> None:
    assert "1 skipped" in pytest_says(RUNNER, "test_it.py::test_skips")


def test_a_program_that_exits_has_a_story(pytest_says: Says) -> None:
    said = pytest_says(RUNNER, "-k", "exits")
    assert "SimFailure: seed 0: shop: SystemExit: 3" in said
    assert "SimFailure: seed 0: SystemExit: 3" in said
    assert "SimFailure: seed 0: shop: Exception in callback exit: SystemExit: 3" in said
    assert "3 failed" in said


TRACEBACK = """
import asyncio
from ringcast.testing import Crash, World, simtest

async def idle():
    await asyncio.sleep(1000)

@simtest(seeds=1, faults=tuple(Crash(at=at, lasts=0.1, host="shop") for at in range(1, 5)))
async def test_shrunk(world):
    world.host("shop", idle)
    await world.sleep(9)
    assert world.restarts == 0, f"restarted {world.restarts} times"

@simtest(seeds=1)
async def test_without_a_frame(world):
    world.always(lambda: world.now < 3)
    await world.sleep(9)

@simtest(seeds=1)
async def test_error_of_the_test(world):
    await world.sleep(1)
    {}["seat"]
"""


def test_the_error_shown_is_that_of_the_story(pytest_says: Says) -> None:
    said = pytest_says(TRACEBACK)
    assert "seed 0: AssertionError: restarted 1 times" in said
    assert "restarted 4 times" not in said
    assert "entries are hidden" not in said
    assert "ringcast/testing" not in said
    assert "seed 0: KeyError: 'seat'" in said
    assert '>       {}["seat"]' in said
