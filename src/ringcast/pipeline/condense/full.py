"""Rows that are shown to the checks in full, as events, as long as there are not too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ringcast.core.ids import NodeId
from ringcast.pipeline.condense.columns import Ints, Rows

MOST_ROWS = 1 << 18
"""So many rows of a window, or of a run outside its windows, are shown at most."""

Make: TypeAlias = Callable[[NodeId, Rows], Iterator[Any]]
"""Makes the events of rows of one table."""


class Part:
    """Rows of one processor and table that belong to one gap between stretches."""

    def __init__(self, gap: int, make: Make, node: NodeId, rows: Rows) -> None:
        self.gap, self.make, self.node, self.rows = gap, make, node, rows

    def _before(self, stop_us: int | None) -> int:
        if stop_us is None:
            return len(self.rows)
        return int(np.searchsorted(self.times(), stop_us))

    def times(self) -> Ints:
        """When the first of these rows were written; time does not go back in them."""
        return self.rows.part(0, min(len(self.rows), MOST_ROWS + 1)).column("t_us")

    def whole(self, stop_us: int | None) -> bool:
        """Whether all of it is before that time."""
        return self._before(stop_us) == len(self.rows)

    def events(self, stop_us: int | None) -> Iterator[Any]:
        """The events before that time."""
        return self.make(self.node, self.rows.part(0, self._before(stop_us)))


def limit(parts: list[Part]) -> int | None:
    """The time from which on there is too much to be shown, if there is."""
    if sum(len(part.rows) for part in parts) <= MOST_ROWS:
        return None
    times = np.concatenate([part.times() for part in parts])
    return int(np.partition(times, MOST_ROWS)[MOST_ROWS])
