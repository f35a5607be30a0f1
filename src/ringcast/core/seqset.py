"""SeqSet: which sequence numbers are held, as disjoint intervals.

A ring receives mostly in order, so the set is one interval nearly always and a hole costs one
more; 1,500 holes cost 1,500 intervals however many numbers lie between them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import zip_longest

from ringcast.core.ids import LIMIT


class SeqSet:
    """A set of non-negative integers kept as sorted, disjoint, non-adjacent intervals."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # inclusive, parallel to _starts

    def add(self, number: int) -> bool:
        """Add ``number``; False if it was there already."""
        starts, ends = self._starts, self._ends
        if ends and number == ends[-1] + 1:  # the usual case: the next one
            ends[-1] = number
            return True
        at = bisect_right(starts, number) - 1
        if at >= 0 and number <= ends[at]:
            return False
        joins_left = at >= 0 and ends[at] == number - 1
        joins_right = at + 1 < len(starts) and starts[at + 1] == number + 1
        if joins_left and joins_right:
            ends[at] = ends.pop(at + 1)
            del starts[at + 1]
        elif joins_left:
            ends[at] = number
        elif joins_right:
            starts[at + 1] = number
        else:
            starts.insert(at + 1, number)
            ends.insert(at + 1, number)
        return True

    def add_range(self, low: int, high: int) -> None:
        """Add every number from ``low`` to ``high``, both included."""
        if low > high:
            return
        starts, ends = self._starts, self._ends
        if ends and low == ends[-1] + 1:  # the usual case: the next ones
            ends[-1] = high
            return
        first = bisect_right(ends, low - 2)
        last = bisect_right(starts, high + 1)
        if first < last:
            low = min(low, starts[first])
            high = max(high, ends[last - 1])
        starts[first:last] = [low]
        ends[first:last] = [high]

    def add_all(self, other: SeqSet) -> None:
        """Add every number of another set."""
        for low, high in other.intervals():
            self.add_range(low, high)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number <= self._ends[at]

    def __len__(self) -> int:
        return sum(e - s + 1 for s, e in zip(self._starts, self._ends, strict=True))

    def __iter__(self) -> Iterator[int]:
        for start, end in self.intervals():
            yield from range(start, end + 1)

    def intervals(self) -> Iterator[tuple[int, int]]:
        """The intervals in ascending order, ends included."""
        return zip(self._starts, self._ends, strict=True)

    def all_up_to(self, base: int = 0) -> int:
        """Largest n such that every number of ``base+1 .. n`` is in the set; ``base`` if none."""
        at = bisect_right(self._starts, base + 1) - 1
        return max(base, self._ends[at]) if at >= 0 else base

    def first_difference(self, other: SeqSet) -> int | None:
        """The lowest number that is in one of the two sets only, if any."""
        pairs = zip_longest(self.intervals(), other.intervals(), fillvalue=(LIMIT, LIMIT))
        for (start, end), (its_start, its_end) in pairs:
            if start != its_start:
                return min(start, its_start)
            if end != its_end:
                return min(end, its_end) + 1
        return None

    def lowest(self, low: int, high: int) -> int | None:
        """The lowest number of ``low .. high`` that is in the set, if any."""
        at = bisect_right(self._ends, low - 1)
        if at == len(self._starts) or max(low, self._starts[at]) > high:
            return None
        return max(low, self._starts[at])

    def missing(self, low: int, high: int, limit: int) -> list[int]:
        """The lowest ``limit`` numbers of ``low .. high`` that are not in the set."""
        found: list[int] = []
        at = bisect_right(self._starts, low) - 1
        number = low
        if at >= 0 and number <= self._ends[at]:
            number = self._ends[at] + 1
        at += 1
        while number <= high and len(found) < limit:
            stop = min(self._starts[at] - 1, high) if at < len(self._starts) else high
            found.extend(range(number, min(stop, number + limit - len(found) - 1) + 1))
            if at >= len(self._starts):
                break
            number = self._ends[at] + 1
            at += 1
        return found
