"""Columns of a trace file as arrays: any range of the rows of one processor.

A file is sorted by processor and by each processor's own order, so what one processor did between
two of its events is a range of rows. Where it begins is found by the statistics of the groups of
rows, and by looking into one group.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ringcast.core.ids import NodeId
from ringcast.traces import TraceError, TraceFile
from ringcast.traces.parquet import NOT_SORTED

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

NOT_KNOWN = -1
"""Stands for an empty cell; no digest is negative."""

OPEN_FILES = 12


class RunTable:
    """One table of a run, with the statistics of its groups."""

    def __init__(self, path: Path, name: str) -> None:
        self.file = TraceFile(path, name)
        metadata = self.file.file.metadata
        counts = [metadata.row_group(group).num_rows for group in self.file.groups()]
        self.starts: Ints = np.cumsum([0, *counts], dtype=np.int64)
        self._bounds: dict[str, tuple[Ints, Ints]] = {}
        self._nodes: dict[NodeId, tuple[int, int]] = {}

    def __len__(self) -> int:
        return int(self.starts[-1])

    def bounds(self, name: str) -> tuple[Ints, Ints]:
        """The least and the largest value of a column in each group."""
        if name not in self._bounds:
            found = np.array(self.file.bounds(name), np.int64).reshape(-1, 2)
            self._bounds[name] = found[:, 0], found[:, 1]
        return self._bounds[name]

    def cells(self, group: int, name: str) -> Ints:
        """One column of one group."""
        if name != "digest":  # where cells may be empty
            low, high = (int(bound[group]) for bound in self.bounds(name))
            if low == high:
                count = int(self.starts[group + 1] - self.starts[group])
                return np.broadcast_to(np.int64(low), count)
        column: Any = self.file.read(group, [name])[name].combine_chunks()
        if column.null_count:
            column = column.fill_null(NOT_KNOWN)
        return column.to_numpy()  # type: ignore[no-any-return]

    def nodes(self) -> list[NodeId]:
        """The processors in this table, ascending."""
        low, high = self.bounds("node")
        found = set(low[low == high].tolist())
        for group in np.flatnonzero(low != high):
            found.update(np.unique(self.cells(int(group), "node")).tolist())
        return sorted(found)

    def of(self, node: NodeId) -> Rows:
        """All rows of a processor."""
        if node not in self._nodes:
            low, high = self.bounds("node")
            groups = np.flatnonzero((low <= node) & (node <= high))
            if len(groups) == 0:
                return Rows(self, 0, 0)
            ends = []
            sides: tuple[Literal["left", "right"], ...] = ("left", "right")
            for group, side in zip((groups[0], groups[-1]), sides, strict=True):
                cells = self.cells(int(group), "node")
                if np.any(np.diff(cells) < 0):
                    raise TraceError(f"{self.file.path}: {NOT_SORTED}")
                ends.append(int(self.starts[group] + np.searchsorted(cells, node, side)))
            inner = groups[1:-1]
            if np.any(np.diff(groups) != 1) or np.any(low[inner] != high[inner]):
                raise TraceError(f"{self.file.path}: {NOT_SORTED}")
            self._nodes[node] = ends[0], ends[1]
        return Rows(self, *self._nodes[node])

    def between(self, node: NodeId, low: int, high: int) -> Rows:
        """The rows of a processor's events with numbers ``low < n < high``."""
        rows = self.of(node)
        return Rows(self, self._above(rows, low), self._above(rows, high - 1))

    def _above(self, rows: Rows, n: int) -> int:
        """The first of these rows whose event has a number above ``n``."""
        groups, nodes = rows.groups(), self.bounds("node")
        lows, highs = self.bounds("n")
        for group in groups[np.searchsorted(np.maximum.accumulate(highs[groups]), n, "right") :]:
            part = rows.within(int(group))
            if lows[group] > n and nodes[0][group] == nodes[1][group]:
                return part.first
            at = int(np.searchsorted(part.column("n"), n, "right"))
            if at < len(part):
                return part.first + at
        return rows.last


class Rows:
    """A range of rows of one processor; columns are read when they are asked for."""

    def __init__(self, table: RunTable, first: int, last: int) -> None:
        self.table = table
        self.first = first
        self.last = last
        self._columns: dict[str, Ints] = {}

    def __len__(self) -> int:
        return self.last - self.first

    def groups(self) -> Ints:
        """The groups that these rows lie in."""
        if self.first >= self.last:
            return np.empty(0, np.int64)
        ends = np.searchsorted(self.table.starts, [self.first, self.last - 1], "right")
        return np.arange(ends[0] - 1, ends[1])

    def within(self, group: int) -> Rows:
        """Those of one group."""
        starts = self.table.starts
        return self.part(
            max(self.first, int(starts[group])) - self.first,
            min(self.last, int(starts[group + 1])) - self.first,
        )

    def part(self, first: int, last: int) -> Rows:
        """Rows ``first .. last - 1`` of these."""
        found = Rows(self.table, self.first + first, self.first + last)
        found._columns = {name: cells[first:last] for name, cells in self._columns.items()}
        return found

    def column(self, name: str) -> Ints:
        """The cells of a column."""
        if name not in self._columns:
            parts = [self.table.cells(group, name) for group in self.groups().tolist()]
            if not parts:
                return np.empty(0, np.int64)
            offset = self.first - int(self.table.starts[self.groups()[0]])
            cells = parts[0] if len(parts) == 1 else np.concatenate(parts)
            self._columns[name] = cells[offset : offset + len(self)]
        return self._columns[name]

    def forget(self, *names: str) -> None:
        """Let go of columns that were read."""
        for name in names:
            self._columns.pop(name, None)

    def take(self, name: str, at: Ints) -> Ints:
        """The cells of some of these rows, ascending; cheaper than a whole column."""
        if name in self._columns or len(at) == len(self):
            return self.column(name)[at]
        groups = self.groups()
        bounds = np.searchsorted(at, self.table.starts[groups[1:]] - self.first)
        cells = [
            self.table.cells(int(group), name)[part + (self.first - self.table.starts[group])]
            for group, part in zip(groups, np.split(at, bounds), strict=True)
            if len(part)
        ]
        return np.concatenate(cells) if cells else np.empty(0, np.int64)

    def is_all(self, name: str, value: int) -> bool:
        """Whether the statistics alone show that a column has just this value."""
        groups = self.groups()
        low, high = self.table.bounds(name)
        return bool(np.all(low[groups] == value) and np.all(high[groups] == value))

    def before(self, seq: int) -> int:
        """How many of these rows come before place ``seq``; whole events.

        Rows out of place count where they are: whoever asks for two neighbouring ranges gets
        every row in one of them.
        """
        groups = self.groups()
        if len(groups) == 0:
            return 0
        low = self.table.bounds("seq")[0][groups]
        next_one = int(np.argmax(low >= seq)) if np.any(low >= seq) else len(groups)
        if next_one == 0:
            return 0
        part = self.within(int(groups[next_one - 1]))
        at = part.first - self.first + int(np.count_nonzero(part.column("seq") < seq))
        while 0 < at < len(self):  # an event may have rows in two groups
            one, other = self.part(at - 1, at + 1).column("n")
            if one != other:
                break
            at += 1
        return at


@lru_cache(maxsize=OPEN_FILES)
def _table(path: Path, name: str, changed_ns: int, size: int) -> RunTable:
    return RunTable(path, name)


def table_of(folder: Path, name: str, run: int) -> RunTable:
    """A table of a run; one that was opened a moment ago is used again."""
    path = folder / name / f"{run}.parquet"
    if not path.is_file():
        return RunTable(path, name)  # which says what is wrong
    found = path.stat()
    return _table(path, name, found.st_mtime_ns, found.st_size)
