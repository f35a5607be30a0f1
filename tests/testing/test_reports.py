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


@pytest.fixture
def pytest_says(tmp_path: Path) -> Says:
    """Run pytest on a module; what it says."""

    def says(module: str, *options: str, **environment: str) -> str:
        (tmp_path / "test_it.py").write_text(module)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "ringcast.testing.plugin"]
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
        done = subprocess.run(
            [*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False,
            env=inherited | {"COLUMNS": "200"} | environment,
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
