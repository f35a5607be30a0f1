"""What was originated and submitted in a window, laid beside what was delivered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Submit
from ringcast.pipeline.verify.condense.align import align
from ringcast.pipeline.verify.condense.columns import NOT_KNOWN, Flags, Ints, Rows, RunTable
from ringcast.pipeline.verify.condense.event_rows import EventRows, submitted
from ringcast.pipeline.verify.condense.plan import Stay
from ringcast.traces import TraceError

MOST_BESIDES = 1000
"""Submissions of one sender that are shown although their messages are not."""

SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


class Origins:
    """The originations of all members: arrays with one value each, member after member."""

    def __init__(self, tolds: list[EventRows], ring: ViewId) -> None:
        self.tolds = tolds
        self.ends = np.cumsum([len(told) for told in tolds])
        self.node = np.repeat([told.node for told in tolds], [len(told) for told in tolds])
        self.n, self.t_us, self.level, self.number, sender, seq = (
            _joined([told.first(name) for told in tolds])
            for name in ("n", "t_us", "level", "sequence", "sender", "seq")
        )
        self.size = _joined([told.sizes for told in tolds])
        self.sender = np.where(sender == 0, self.node, sender)
        rights = [told.in_ring(ring, "ring") for told in tolds]
        right = [np.ones(len(t), np.bool_) if r is None else r for t, r in zip(tolds, rights)]  # noqa: B905
        self.seq = np.where(np.concatenate(right), seq, -1) if right else seq
        self.digest = _joined([told.rows.column("digest") for told in tolds])
        offsets = np.cumsum([0, *(len(told.rows) for told in tolds)])
        self.start = _joined([told.starts[:-1] + at for told, at in zip(tolds, offsets)])  # noqa: B905
        self.frame: Ints = np.full(len(self.seq), -1, np.int64)
        """By origination: its frame, or -1."""
        self.begun_us: Ints = self.t_us.copy()
        """By origination: when it or the first delivery of its frame happened."""
        self.ahead: Flags = np.ones(len(self.seq), np.bool_)
        """By origination: whether it comes before every delivery of its frame."""
        self.follows: Ints = np.full(len(self.seq), -1, np.int64)
        """By origination without a frame: the one that it is put before."""

    def __len__(self) -> int:
        return len(self.seq)

    def match(self, seq: Ints) -> Ints:
        """For each delivered place its origination, or -1; ``frame`` says the reverse."""
        order = np.argsort(self.seq, kind="stable")
        found = align(seq, self.seq[order])
        origin = np.where(found >= 0, order[found], -1) if len(order) else found
        self.frame[origin[origin >= 0]] = np.flatnonzero(origin >= 0)
        return origin

    def disordered(self) -> Ints:
        """Frames that a member originated before one with a lower place, and those."""
        matched = np.flatnonzero(self.frame >= 0)
        node, frame = self.node[matched], self.frame[matched]
        falls = np.flatnonzero((frame[1:] < frame[:-1]) & (node[1:] == node[:-1]))
        return frame[np.concatenate((falls, falls + 1))]

    def next_matched(self, events: Ints, end: int) -> Ints:
        """The frame of the next origination of the same member that has one, or ``end``."""
        matched = np.flatnonzero(self.frame >= 0)
        at = np.searchsorted(matched, events)
        there = at < len(matched)
        found = np.full(len(events), end, np.int64)
        next_one = matched[at[there]]
        same = self.node[next_one] == self.node[events[there]]
        found[there] = np.where(same, self.frame[next_one], end)
        return found

    def whose(self, event: int) -> tuple[EventRows, int]:
        """The member that made an origination, and which of its own it is."""
        at = int(np.searchsorted(self.ends, event, "right"))
        return self.tolds[at], event - (int(self.ends[at - 1]) if at else 0)

    def rows(self, events: Ints) -> Ints:
        """Where the messages of these originations stand in ``digest``."""
        size = self.size[events]
        ends = np.cumsum(size)
        total = int(ends[-1]) if len(ends) else 0
        return np.repeat(self.start[events] - (ends - size), size) + np.arange(total)

    def check_times(self, deliveries: dict[NodeId, EventRows]) -> None:
        """Originations and deliveries of a member have their times in the order of its numbers."""
        for told in self.tolds:
            check_times(told.rows, told.first("n"), told.first("t_us"), deliveries[told.node])


class Submissions:
    """What the members submitted of the messages that were originated in a window."""

    def __init__(self, table: RunTable, stays: tuple[Stay, ...], origins: Origins) -> None:
        self._parts: dict[NodeId, tuple[Ints, Ints]] = {}  # by sender: numbers, rows of the file
        self._rows: dict[NodeId, Rows] = {}
        self._besides: dict[NodeId, set[int]] = {}  # by sender: rows that are shown in any case
        self._table = table
        self.origins = origins
        for stay in stays:
            self._find(stay)

    def _find(self, stay: Stay) -> None:
        """Read the rows of a member with the numbers that are wanted."""
        mine = np.flatnonzero(self.origins.sender == stay.node)
        wanted = _sorted(_numbers(self.origins, mine))
        rows = self._table.of(stay.node)
        if len(wanted) == 0 or len(rows) == 0:
            return
        low, high = self._table.bounds("sequence")
        numbers: list[Ints] = []
        places: list[Ints] = []
        for group in rows.groups().tolist():
            if np.searchsorted(wanted, low[group]) < np.searchsorted(wanted, high[group], "right"):
                part = rows.within(group)
                number = part.column("sequence")
                chosen = _index(wanted, number) >= 0
                chosen &= part.column("incarnation") == stay.incarnation
                numbers.append(number[chosen])
                places.append(part.first + np.flatnonzero(chosen))
        found = _joined(numbers), _joined(places)
        if len(found[1]):
            self._parts[stay.node] = found
            self._rows[stay.node] = Rows(self._table, int(found[1][0]), int(found[1][-1]) + 1)

    def check_times(self, deliveries: dict[NodeId, EventRows]) -> None:
        """Submissions of a member have their times in the order of its numbers."""
        for sender, rows in self._rows.items():
            at = self._parts[sender][1] - rows.first
            check_times(rows, rows.column("n")[at], rows.column("t_us")[at], deliveries[sender])

    def silent(self, sender: NodeId) -> bool:
        """Whether the trace has no word of what this processor submitted."""
        return len(self._table.of(sender)) == 0

    def doubtful(self, stay: Stay, events: Ints, in_ring: bool) -> Flags:
        """Which of these originations of a sender were not surely submitted just so before.

        With ``in_ring`` a submission from before the sender's stay is doubtful too. What was
        submitted next is shown as well: who submitted a later message has submitted this one.
        """
        origins = self.origins
        rows = self._rows.get(stay.node)
        if rows is None:
            return np.full(len(events), not self.silent(stay.node))
        numbers, places = self._parts[stay.node]
        at = places - rows.first
        wanted = _numbers(origins, events)
        if not _ascends(numbers):
            order = np.argsort(numbers, kind="stable")
            numbers, at = numbers[order], at[order]
            wanted = np.where(_twice(numbers, wanted), NOT_KNOWN, wanted)
        found = _index(numbers, wanted)
        right = found >= 0
        chosen = at[found]
        digest = rows.column("digest")[chosen]
        right &= digest == origins.digest[origins.rows(events)]
        n, t_us = rows.column("n")[chosen], rows.column("t_us")[chosen]
        each = np.repeat(events, origins.size[events])
        right &= rows.column("level")[chosen] <= origins.level[each]
        by_itself = origins.node[each] == stay.node
        earlier = (t_us < origins.t_us[each]) | (
            (t_us == origins.t_us[each]) & (stay.node < origins.node[each])
        )
        right &= np.where(by_itself, (n < origins.n[each]) & (t_us <= origins.t_us[each]), earlier)
        right &= origins.ahead[each] | (t_us < origins.begun_us[each])
        if in_ring:
            right &= n > stay.start_n
        if len(events) == 0:
            return np.empty(0, np.bool_)
        starts = np.cumsum(origins.size[events]) - origins.size[events]
        wrong = ~np.logical_and.reduceat(right, starts)
        starts = origins.number[events[wrong]]
        ends = np.setdiff1d(starts + origins.size[events[wrong]], starts)
        after = np.append(at + rows.first, rows.last)[np.searchsorted(numbers, ends)]
        self._beside(stay.node, after[after < self._table.of(stay.node).last])
        return wrong

    def show(self, stay: Stay, numbers: Ints) -> None:
        """Show how these messages of a sender were submitted, whoever originated them."""
        wanted = np.unique(numbers)[:MOST_BESIDES]
        rows = self._table.of(stay.node)
        low, high = self._table.bounds("sequence")
        for group in rows.groups().tolist() if len(wanted) else ():
            if np.searchsorted(wanted, low[group]) < np.searchsorted(wanted, high[group], "right"):
                part = rows.within(group)
                there = np.isin(part.column("sequence"), wanted)
                there &= part.column("incarnation") == stay.incarnation
                self._beside(stay.node, part.first + np.flatnonzero(there))

    def _beside(self, sender: NodeId, rows: Ints) -> None:
        self._besides.setdefault(sender, set()).update(rows[:MOST_BESIDES].tolist())

    def besides(self, sender: NodeId) -> Ints:
        """The numbers of a sender's submissions that are shown in any case, ascending."""
        rows = sorted(self._besides.get(sender, ()))
        parts = [Rows(self._table, *pair) for pair in _ranges(np.array(rows, np.int64))]
        return np.unique(_joined([part.column("sequence") for part in parts]))

    def covered(self) -> list[tuple[int, int]]:
        """The rows of the file that were looked at, as ranges."""
        return [pair for _, places in self._parts.values() for pair in _ranges(places)]

    def of(self, events: Ints, others: bool = False) -> Iterator[Submit]:
        """The submissions of the messages of these originations, or of all but these."""
        origins = self.origins
        for sender, (numbers, places) in self._parts.items():
            chosen = _sorted(_numbers(origins, events[origins.sender[events] == sender]))
            there = _index(chosen, numbers) >= 0
            rows = self._rows[sender]
            for name in ("sequence", "level"):
                rows.column(name)  # once for all parts
            for first, last in _ranges(places[there != others] - rows.first):
                yield from self._events(sender, rows.part(first, last))
        for sender, besides in self._besides.items() if others else ():
            for first, last in _ranges(np.array(sorted(besides), np.int64)):
                yield from self._events(sender, Rows(self._table, first, last))

    def _events(self, sender: NodeId, rows: Rows) -> Iterator[Submit]:
        told = EventRows(sender, rows)
        return submitted(told, 0, len(told))


def check_times(rows: Rows, n: Ints, t_us: Ints, own: EventRows) -> None:
    """Events with these numbers and times fit between a member's deliveries by both."""
    its_n, its_us = own.first("n"), own.first("t_us")
    again = (n[1:] == n[:-1]) & (t_us[1:] == t_us[:-1])  # many rows are of one event
    if again.any():
        each = np.flatnonzero(np.append(True, ~again))
        n, t_us = n[each], t_us[each]
    at = np.searchsorted(its_n, n)
    wrong = np.zeros(len(n), np.bool_)
    before, after = at > 0, at < len(its_n)
    wrong[before] = its_us[at[before] - 1] > t_us[before]
    wrong[after] |= (its_us[at[after]] < t_us[after]) | (its_n[at[after]] == n[after])
    if np.any(wrong):
        event = int(np.argmax(wrong))
        raise TraceError(
            f"{rows.table.file.path}: processor {own.node}'s event {n[event]} "
            f"({t_us[event]} us) does not fit between its deliveries"
        )


def _numbers(origins: Origins, events: Ints) -> Ints:
    """The senders' own numbers of all messages in these originations."""
    size = origins.size[events]
    starts = np.cumsum(size) - size
    return np.repeat(origins.number[events] - starts, size) + np.arange(int(size.sum()))


def _ascends(numbers: Ints) -> bool:
    return bool(np.all(numbers[1:] > numbers[:-1]))


def _sorted(numbers: Ints) -> Ints:
    return numbers if _ascends(numbers) else np.sort(numbers)


def _index(numbers: Ints, wanted: Ints) -> Ints:
    """Where each wanted number stands among ascending ones; -1 where it does not."""
    if len(numbers) == 0:
        return np.full(len(wanted), -1, np.int64)
    if int(numbers[-1] - numbers[0]) == len(numbers) - 1 and _ascends(numbers):  # without a gap
        at = wanted - numbers[0]
        return np.where((at >= 0) & (at < len(numbers)), at, -1)
    at = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    return np.where(numbers[at] == wanted, at, -1)


def _twice(numbers: Ints, wanted: Ints) -> Flags:
    """Which wanted numbers stand more than once among ascending ones."""
    first, last = (np.searchsorted(numbers, wanted, side) for side in SIDES)
    return last - first > 1


def _ranges(places: Ints) -> Iterator[tuple[int, int]]:
    """Ascending numbers as ranges, ends excluded."""
    if len(places):
        breaks = np.flatnonzero(np.diff(places) != 1) + 1
        for part in np.split(places, breaks):
            yield int(part[0]), int(part[-1]) + 1


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
