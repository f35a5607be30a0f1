"""The rows of one processor as events: arrays with one value an event, and the events proper."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.trace import Delivered, Originated, Submit
from ringcast.pipeline.verify.condense.columns import NOT_KNOWN, Flags, Ints, Rows
from ringcast.traces import TraceError
from ringcast.traces.parquet import clock_back


class EventRows:
    """Events of one processor and kind. ``starts`` has one more element: the end of the last."""

    def __init__(self, node: NodeId, rows: Rows, only_places_in: ViewId | None = None) -> None:
        """With a ring, neighbours that name the same place of the same ring are one event."""
        self.node = node
        self.rows = rows
        self._firsts: dict[str, Ints] = {}
        columns = ["n", "t_us"]
        if only_places_in is not None:
            columns = ["seq", *(name for name, _ in self._elsewhere("ring", only_places_in))]
        self._by = columns
        change = np.zeros(max(len(rows) - 1, 0), np.bool_)
        for name in columns:
            cells = rows.column(name)
            change |= cells[1:] != cells[:-1]
        inner = np.flatnonzero(change) + 1
        self.starts: Ints = np.concatenate(([0], inner, [len(rows)])) if len(rows) else inner
        if only_places_in is None:
            self._regular()
            if len(self) < len(rows):
                rows.forget(*columns)  # one value an event is enough

    def __len__(self) -> int:
        return max(len(self.starts) - 1, 0)

    def first(self, name: str) -> Ints:
        """A column's cell in the first row of each event, which tells those of the others."""
        if name not in self._firsts:
            single = len(self) == len(self.rows)
            self._firsts[name] = self.rows.column(name) if single else self._agreed(name)
        return self._firsts[name]

    def _agreed(self, name: str) -> Ints:
        """The same, if an event has several rows: they tell of messages in a row."""
        if name in self._by:
            return self.rows.take(name, self.starts[:-1])
        cells = self.rows.column(name)
        differs = cells[1:] != (cells[:-1] + 1 if name == "sequence" else cells[:-1])
        differs[self.starts[1:-1] - 1] = False  # there the next event begins
        if np.any(differs):
            event = int(np.searchsorted(self.starts, np.argmax(differs), "right")) - 1
            raise TraceError(
                f"{self.rows.table.file.path}: event {self.first('n')[event]} of processor "
                f"{self.node}: its rows contradict each other in {name}"
            )
        self.rows.forget(name)
        return cells[self.starts[:-1]]

    @property
    def sizes(self) -> Ints:
        """How many rows each event has."""
        return np.diff(self.starts)

    def _regular(self) -> None:
        n, t_us = self.first("n"), self.first("t_us")
        wrong = (n[1:] <= n[:-1]) | (t_us[1:] < t_us[:-1])
        if np.any(wrong):
            at = int(np.argmax(wrong)) + 1
            last = int(n[at - 1]), int(t_us[at - 1])
            told = clock_back(self.node, int(n[at]), int(t_us[at]), *last)
            raise TraceError(f"{self.rows.table.file.path}: {told}")

    def in_ring(self, ring: ViewId, *prefixes: str) -> Flags | None:
        """Which events name this configuration in all those columns; None: all of them."""
        found: Flags | None = None
        for prefix in prefixes:
            for name, value in self._elsewhere(prefix, ring):
                right = self.first(name) == value
                found = right if found is None else found & right
        return None if found is None or bool(np.all(found)) else found

    def _elsewhere(self, prefix: str, ring: ViewId) -> Iterator[tuple[str, int]]:
        """The columns of a configuration of which statistics do not show that it is always this."""
        for name, value in ((f"{prefix}_seq", ring.seq), (f"{prefix}_rep", ring.rep)):
            if not self.rows.is_all(name, value):
                yield name, value


def delivered(told: EventRows, first: int, last: int) -> Iterator[Delivered]:
    """The deliveries ``first .. last - 1``."""
    names = ("n", "t_us", "view_seq", "view_rep", "ring_seq", "ring_rep", "seq", "sender")
    firsts = _firsts(told, first, last, *names, "level", "sequence")
    for row, digests in zip(firsts, _lists(told, first, last, "digest"), strict=True):
        n, t_us, view_seq, view_rep, ring_seq, ring_rep, seq, sender, level, number = row
        view, ring = ViewId(view_seq, view_rep), ViewId(ring_seq, ring_rep)
        service = _level(told, level)
        yield Delivered(told.node, n, t_us, view, ring, seq, sender, service, number, digests)


def placed(told: EventRows, first: int, last: int) -> Iterator[Delivered]:
    """The same as far as only ring, place and time matter; sender and contents are made up."""
    for row in _firsts(told, first, last, "n", "t_us", "ring_seq", "ring_rep", "seq"):
        n, t_us, ring_seq, ring_rep, seq = row
        ring = ViewId(ring_seq, ring_rep)
        yield Delivered(told.node, n, t_us, ring, ring, seq, told.node, Level.AGREED, 1, (0,))


def originated(told: EventRows, first: int, last: int) -> Iterator[Originated]:
    """The originations ``first .. last - 1``."""
    names = ("n", "t_us", "ring_seq", "ring_rep", "seq", "level", "sequence", "sender")
    firsts = _firsts(told, first, last, *names)
    for row, digests in zip(firsts, _lists(told, first, last, "digest"), strict=True):
        n, t_us, ring_seq, ring_rep, seq, level, number, sender = row
        ring, service = ViewId(ring_seq, ring_rep), _level(told, level)
        yield Originated(told.node, n, t_us, ring, seq, service, number, digests, sender)


def submitted(told: EventRows, first: int, last: int) -> Iterator[Submit]:
    """The submissions ``first .. last - 1``; each may be but a part of one."""
    firsts = _firsts(told, first, last, "n", "t_us", "incarnation", "sequence", "level")
    sizes, sums = (_lists(told, first, last, name) for name in ("size", "digest"))
    for row, size, digests in zip(firsts, sizes, sums, strict=True):
        n, t_us, incarnation, number, level = row
        known = () if digests[0] == NOT_KNOWN else digests
        yield Submit(told.node, n, t_us, incarnation, number, _level(told, level), size, known)


def _firsts(told: EventRows, first: int, last: int, *names: str) -> Iterator[tuple[int, ...]]:
    """The cells of the first row of each event."""
    return zip(*(told.first(name)[first:last].tolist() for name in names), strict=True)


def _lists(told: EventRows, first: int, last: int, name: str) -> Iterator[tuple[int, ...]]:
    """The cells of a column, those of an event together."""
    starts = told.starts[first : last + 1].tolist()
    if starts:
        cells = told.rows.column(name)[starts[0] : starts[-1]].tolist()
        for start, end in pairwise(starts):
            yield tuple(cells[start - starts[0] : end - starts[0]])


def _level(told: EventRows, level: int) -> Level:
    try:
        return Level(level)
    except ValueError:
        raise TraceError(f"{told.rows.table.file.path}: there is no level {level}") from None
