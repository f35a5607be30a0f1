"""Events that are shown to the checks in full, as long as there are not too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from ringcast.core.ids import NodeId
from ringcast.pipeline.verify.condense.columns import Ints, Rows
from ringcast.pipeline.verify.condense.event_rows import EventRows

MOST_EVENTS = 1 << 16
"""So many events of a window, or of a run outside its windows, are shown at most."""

MOST_ROWS = 1 << 20
"""So many rows of a processor that lie in no window are read at most."""

Make: TypeAlias = Callable[[EventRows, int, int], Iterator[Any]]
"""Makes events ``first .. last - 1`` of one kind."""


class Part:
    """Events ``first .. last - 1`` of one processor and kind, in one gap between stretches."""

    def __init__(self, gap: int, make: Make, told: EventRows, first: int, last: int) -> None:
        self.gap, self.make, self.told, self.first, self.last = gap, make, told, first, last
        self.more = False
        """Whether there is more that was not even read."""

    @classmethod
    def of(cls, gap: int, make: Make, node: NodeId, rows: Rows) -> Part:
        """The events of these rows, in no window."""
        told = EventRows(node, rows.part(0, min(len(rows), MOST_ROWS)))
        part = cls(gap, make, told, 0, len(told))
        part.more = len(rows) > MOST_ROWS
        return part

    def times(self) -> Ints:
        """When they happened."""
        return self.told.first("t_us")[self.first : self.last]

    def _end(self, stop_us: int | None) -> int:
        if stop_us is None:
            return self.last
        return self.first + int(np.searchsorted(self.times(), stop_us))

    def whole(self, stop_us: int | None) -> bool:
        """Whether all of it is before that time."""
        return self._end(stop_us) == self.last and not self.more

    def events(self, stop_us: int | None) -> Iterator[Any]:
        """The events before that time."""
        return self.make(self.told, self.first, self._end(stop_us))


def limit(parts: list[Part]) -> int | None:
    """The time from which on there is too much to be shown, if there is."""
    stops = [int(part.times()[-1]) for part in parts if part.more]
    if sum(part.last - part.first for part in parts) > MOST_EVENTS:
        times = np.concatenate([part.times() for part in parts])
        stops.append(int(np.partition(times, MOST_EVENTS)[MOST_EVENTS]))
    return min(stops, default=None)
