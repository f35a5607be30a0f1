"""Makes ``trial`` importable for the tests beside it, and ends every process a test started."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from trial import Trial


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Callable[..., Trial]]:
    """Makes a trial: ``trial(3)`` is a band of three, not started yet."""
    with ExitStack() as stack:

        def make(count: int, settings: str = "", protocol: str = "totem") -> Trial:
            found = Trial(count, tmp_path, settings, protocol)
            stack.enter_context(found.band)
            return found

        yield make
