"""The rows of one processor as events: arrays with one value an event, and the events proper."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.trace import Delivered, Originated, Submit
from ringcast.pipeline.condense.columns import NOT_KNOWN, Flags, Ints, Rows
from ringcast.traces import TraceError


class Irregular(Exception):
    """Rows whose order is not that of their numbers and times: they cannot be compared."""


class Told:
    """Events of one processor and kind. ``starts`` has one more element: the end of the last."""

    def __init__(self, node: NodeId, rows: Rows, places_only: bool = False) -> None:
        self.node = node
        self.rows = rows
        self._firsts: dict[str, Ints] = {}
        columns = ("seq",) if places_only else ("n", "t_us")
        change = np.zeros(max(len(rows) - 1, 0), np.bool_)
        for name in columns:
            cells = rows.column(name)
            change |= cells[1:] != cells[:-1]
        inner = np.flatnonzero(change) + 1
        self.starts: Ints = np.concatenate(([0], inner, [len(rows)])) if len(rows) else inner
        if not places_only:
            self._regular()

    def __len__(self) -> int:
        return max(len(self.starts) - 1, 0)

    def first(self, name: str) -> Ints:
        """A column's cell in the first row of each event, which is what counts."""
        if name not in self._firsts:
            single = len(self) == len(self.rows)
            self._firsts[name] = (
                self.rows.column(name) if single else self.rows.take(name, self.starts[:-1])
            )
        return self._firsts[name]

    @property
    def sizes(self) -> Ints:
        """How many rows each event has."""
        return np.diff(self.starts)

    def _regular(self) -> None:
        n, t_us = self.first("n"), self.first("t_us")
        wrong = (n[1:] <= n[:-1]) | (t_us[1:] < t_us[:-1])
        if np.any(wrong):
            at = int(np.argmax(wrong)) + 1
            raise Irregular(
                f"{self.rows.table.file.path}: processor {self.node}'s event {n[at]} "
                f"({t_us[at]} us) stands after its event {n[at - 1]} ({t_us[at - 1]} us)"
            )

    def in_ring(self, ring: ViewId, *prefixes: str) -> Flags | None:
        """Which events name this configuration in all those columns; None: all of them."""
        found: Flags | None = None
        for prefix in prefixes:
            for name, value in ((f"{prefix}_seq", ring.seq), (f"{prefix}_rep", ring.rep)):
                if not self.rows.is_all(name, value):
                    right = self.first(name) == value
                    found = right if found is None else found & right
        return None if found is None or bool(np.all(found)) else found


def delivered(node: NodeId, rows: Rows) -> Iterator[Delivered]:
    """The deliveries that these rows are."""
    told = Told(node, rows)
    names = ("n", "t_us", "view_seq", "view_rep", "ring_seq", "ring_rep", "seq", "sender")
    firsts = [told.first(name).tolist() for name in (*names, "level", "sequence")]
    for row, digests in zip(zip(*firsts, strict=True), _lists(told, "digest"), strict=True):
        n, t_us, view_seq, view_rep, ring_seq, ring_rep, seq, sender, level, first = row
        view, ring = ViewId(view_seq, view_rep), ViewId(ring_seq, ring_rep)
        service = _level(told, level)
        yield Delivered(node, n, t_us, view, ring, seq, sender, service, first, digests)


def originated(node: NodeId, rows: Rows) -> Iterator[Originated]:
    """The originations that these rows are."""
    told = Told(node, rows)
    names = ("n", "t_us", "ring_seq", "ring_rep", "seq", "level", "sequence", "sender")
    firsts = [told.first(name).tolist() for name in names]
    for row, digests in zip(zip(*firsts, strict=True), _lists(told, "digest"), strict=True):
        n, t_us, ring_seq, ring_rep, seq, level, first, sender = row
        ring, service = ViewId(ring_seq, ring_rep), _level(told, level)
        yield Originated(node, n, t_us, ring, seq, service, first, digests, sender)


def submitted(node: NodeId, rows: Rows) -> Iterator[Submit]:
    """The submissions that these rows are; part of one may be missing."""
    told = Told(node, rows)
    names = ("n", "t_us", "incarnation", "sequence", "level")
    firsts = [told.first(name).tolist() for name in names]
    sizes, sums = _lists(told, "size"), _lists(told, "digest")
    for row, size, digests in zip(zip(*firsts, strict=True), sizes, sums, strict=True):
        n, t_us, incarnation, first, level = row
        known = () if digests[0] == NOT_KNOWN else digests
        yield Submit(node, n, t_us, incarnation, first, _level(told, level), size, known)


def _lists(told: Told, name: str) -> Iterator[tuple[int, ...]]:
    """The cells of a column, those of an event together."""
    cells, starts = told.rows.column(name).tolist(), told.starts.tolist()
    for at in range(len(told)):
        yield tuple(cells[starts[at] : starts[at + 1]])


def _level(told: Told, level: int) -> Level:
    try:
        return Level(level)
    except ValueError:
        raise TraceError(f"{told.rows.table.file.path}: there is no level {level}") from None
