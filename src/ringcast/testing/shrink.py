"""Shrinking: the smallest run that fails in the same way, and the nearest one that passes."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ringcast.sim.shrink import minimise
from ringcast.testing.faults import told
from ringcast.testing.run import Outcome, Ranges, Test, run

CHUNKS = 8
"""Turns and messages are left alone by the eighth, then by smaller and smaller parts."""


class ShrunkTest(msgspec.Struct, frozen=True):
    """The smallest failing run found, and one that differs from it in one thing and passes."""

    best: Outcome
    passing: Outcome | None
    differs: str
    """What was changed in the passing one."""
    runs: int


class _Spent(Exception):
    """The budget is used up."""


class _Search:
    def __init__(self, test: Test, outcome: Outcome, budget: int) -> None:
        self._test, self._budget = test, budget
        self.best = outcome
        self.passing: Outcome | None = None
        self.differs = ""
        self.runs = 0

    def accept(self, differs: str, **changes: Any) -> bool:
        """Whether it still fails in the same way with these changes."""
        if self.runs >= self._budget:
            raise _Spent
        self.runs += 1
        found = run(self._test, replace(self.best.setup, **changes))
        if found.kind == self.best.kind:
            self.best = found
            return True
        if found.error is None:
            self.passing, self.differs = found, differs
        return False


def shrink(test: Test, outcome: Outcome, budget: int) -> ShrunkTest:
    """Take away faults, then surprises of the schedule, then those of the network."""
    search = _Search(test, outcome, budget)
    with suppress(_Spent):
        pinned = {"faults": outcome.plan, "network": outcome.network}
        if search.accept("", **pinned):
            _shrink(search)
    return ShrunkTest(search.best, search.passing, search.differs, search.runs)


def _shrink(search: _Search) -> None:
    search.accept("without any fault", faults=())
    minimise(search.best.plan, lambda plan: _without(search, plan))
    for field, total, differs in (
        ("mixed", search.best.turns, "with tasks in the order in which they became ready"),
        ("odd", search.best.messages, "with every message taking its usual time"),
    ):
        if not search.accept(differs, **{field: ()}):
            _narrow(search, field, total, differs)  # type: ignore[arg-type]
    minimise(search.best.plan, lambda plan: _without(search, plan))


def _without(search: _Search, plan: list[Any]) -> bool:
    gone = [fault for fault in search.best.plan if fault not in plan]
    differs = f"without: {told(gone[0])}" if len(gone) == 1 else f"without {len(gone)} faults"
    return search.accept(differs, faults=tuple(plan))


def _narrow(search: _Search, field: Literal["mixed", "odd"], total: int, differs: str) -> None:
    """Find the few numbers that matter, in parts that become smaller."""
    parts = cut(((0, total + 1),), CHUNKS)

    def fails(kept: list[tuple[int, int]]) -> bool:
        return search.accept(differs, **{field: tuple(kept)})

    while True:
        parts = minimise(parts, fails)
        if all(high - low <= 1 for low, high in parts) or len(parts) > 2 * CHUNKS:
            return
        parts = cut(tuple(parts), 2)


def cut(ranges: tuple[tuple[int, int], ...], pieces: int) -> list[tuple[int, int]]:
    """Each range in so many pieces, of the same size as far as possible."""
    found: list[tuple[int, int]] = []
    for low, high in ranges:
        edges = sorted({low + (high - low) * at // pieces for at in range(pieces + 1)})
        found += pairwise(edges)
    return found


def size(ranges: Ranges, total: int) -> int:
    """How many numbers ranges hold."""
    return total if ranges is None else sum(high - low for low, high in ranges)
