"""Traces as Parquet: ``<dir>/<table>/<run>.parquet``, one file per table and run.

A writer keeps a bounded number of rows and spills them, a processor at a time, to a file beside
the final one. Closing it brings the spilled parts into the order of processors and renames the
result into place, so a file that exists is whole. Numbers are delta-encoded and compressed.
Files say in their metadata what the protocol had claimed, for whoever checks them later.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from ringcast.core.errors import UNREADABLE, RingcastError
from ringcast.core.ids import LIMIT
from ringcast.core.trace import Crashed, Ended, Faulted, ReportedUncertain, Restarted, TraceEvent
from ringcast.traces import schema
from ringcast.traces.schema import TABLE_OF, TABLES, ColumnKind

BUFFERED = 1 << 16
"""Rows a writer holds in memory, and rows in a group of a file."""

NOT_SORTED = "its rows are not sorted by processor"

Row = dict[str, Any]

CLAIMS = b"ringcast.claims"
"""Where a file's metadata has the claims."""


class Claims(msgspec.Struct, frozen=True):
    """What a protocol promised for a run: tags of properties, and the time bound of M5."""

    tags: tuple[str, ...]
    bound_us: int | None = None


class TraceError(RingcastError):
    """A trace that cannot be read; says which file and why."""


def _arrow() -> Any:
    """pyarrow, which is optional."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise TraceError(
            "trace files need pyarrow, which is not installed: pip install 'ringcast[trace]'"
        ) from None
    return pyarrow


class TableFile:
    """One table of a run, written a group of rows at a time, in the order of the rows.

    The file stands beside its place until it is published.
    """

    def __init__(self, folder: Path, name: str, run: int, claims: Claims | None = None) -> None:
        self.pa = _arrow()
        self.schema = schema.arrow_schema(name)
        if claims is not None:
            told = {**self.schema.metadata, CLAIMS: msgspec.json.encode(claims)}
            self.schema = self.schema.with_metadata(told)
        self.columns = schema.columns(name)
        self.path = folder / name / f"{run}.parquet"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.part = self.path.with_suffix(".part")
        text = [column.name for column in self.columns if column.kind is ColumnKind.TEXT]
        delta = [
            f"{column.name}.list.element" if column.kind is ColumnKind.IDS else column.name
            for column in self.columns
            if column.kind in (ColumnKind.INT, ColumnKind.IDS)
        ]
        self._writer = self.pa.parquet.ParquetWriter(
            str(self.part),
            self.schema,
            compression="zstd",
            write_page_checksum=True,
            use_dictionary=text,
            column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED"),
        )

    def batch(self, rows: list[Row]) -> Any:
        """Rows as an Arrow batch."""
        cells = [
            self.pa.array([row.get(column.name) for row in rows], field.type)
            for column, field in zip(self.columns, self.schema, strict=True)
        ]
        return self.pa.record_batch(cells, schema=self.schema)

    def write(self, rows: Any) -> None:
        """Add an Arrow table as one group of rows."""
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    def close(self) -> None:
        """Nothing more comes."""
        self._writer.close()

    def publish(self) -> None:
        """Give the file its name."""
        self.part.replace(self.path)

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._writer.close()
        self.part.unlink(missing_ok=True)


class _Table:
    """One table of a run while its rows come in the order of time."""

    def __init__(self, folder: Path, name: str, run: int, claims: Claims | None) -> None:
        self.file = TableFile(folder, name, run, claims)
        self.spilled = self.file.path.with_suffix(".spill")
        self.rows: dict[int, list[Row]] = {}  # by processor
        self.parts: list[int] = []  # the processor of each part spilled
        self.writer = self.file.pa.ipc.new_file(str(self.spilled), self.file.schema)

    def spill(self) -> None:
        """Move the rows held in memory to the file beside."""
        for node in sorted(self.rows):
            self.writer.write_batch(self.file.batch(self.rows[node]))
            self.parts.append(node)
        self.rows.clear()

    def finish(self) -> None:
        """Write the sorted file next to the final one."""
        self.spill()
        self.writer.close()
        held: list[Any] = []
        from_batches = self.file.pa.Table.from_batches
        with self.file.pa.ipc.open_file(str(self.spilled)) as reader:
            # Sorting is stable, so each processor's parts stay in its own order.
            for at in sorted(range(len(self.parts)), key=self.parts.__getitem__):
                held.append(reader.get_batch(at))
                if sum(batch.num_rows for batch in held) >= BUFFERED:
                    self.file.write(from_batches(held))
                    held.clear()
            if held:
                self.file.write(from_batches(held))
        self.file.close()
        self.spilled.unlink()

    def abandon(self) -> None:
        """Leave nothing behind."""
        self.writer.close()
        self.spilled.unlink(missing_ok=True)
        self.file.abandon()


class TraceWriter:
    """Writes a run's events as they come: an observer, to be closed or used in ``with``."""

    def __init__(self, folder: Path | str, run: int = 0, claims: Claims | None = None) -> None:
        self.run = run
        self._tables = {name: _Table(Path(folder), name, run, claims) for name in TABLES}
        self._held = 0

    def __call__(self, event: TraceEvent) -> None:
        """Take the next event."""
        rows = schema.rows(event, self.run)
        table = self._tables[TABLE_OF[type(event)]]
        table.rows.setdefault(rows[0]["node"], []).extend(rows)
        self._held += len(rows)
        if self._held >= BUFFERED:
            for each in self._tables.values():
                each.spill()
            self._held = 0

    def close(self) -> None:
        """Finish all files; only then do they get their names."""
        for table in self._tables.values():
            table.finish()
        for table in self._tables.values():
            table.file.publish()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self.close()
        else:
            for table in self._tables.values():
                table.abandon()


def runs(folder: Path | str) -> list[int]:
    """The runs that ``folder`` holds a trace of."""
    found = (Path(folder) / "fault").glob("*.parquet")
    return sorted(int(path.stem) for path in found if is_number(path.stem))


def is_number(text: str) -> bool:
    """Whether it is a number as files are called after: without any zero before it."""
    return text.isdecimal() and text == str(int(text))


def read_trace(folder: Path | str, run: int = 0) -> Iterator[TraceEvent]:
    """The events of a run: each processor's in its own order, all by (t_us, node, n).

    Reads a group of rows at a time, so a trace may be larger than memory.
    """
    return _merge([TraceFile.of(folder, name, run) for name in TABLES])


def read_claims(folder: Path | str, run: int = 0) -> Claims | None:
    """What the protocol of this run had claimed, if whoever wrote the trace knew."""
    return common_claims(TraceFile.of(folder, name, run) for name in TABLES)


def common_claims(files: Iterable[TraceFile]) -> Claims | None:
    """What all tables of a run say was claimed; TraceError if they differ."""
    first, *others = files
    for file in others:
        if file.claims != first.claims:
            raise TraceError(
                f"{file.path}: claims other properties than {first.path}; "
                f"the tables are not of one run"
            )
    return first.claims


def _merge(files: list[TraceFile]) -> Iterator[TraceEvent]:
    streams: list[Iterator[TraceEvent]] = []
    nodes = {file.path: file.nodes() for file in files}
    for node in sorted(set().union(*nodes.values())):
        streams.append(_own(files, node))
        # What the world did is numbered by the world, so it is placed by time alone.
        streams.extend(file.events(node, world=True) for file in files)
    last: list[Ended] = []
    told: list[TraceEvent] = []
    for event in heapq.merge(*streams, key=_moment):
        if isinstance(event, Ended):
            last.append(event)
            continue
        if isinstance(event, Crashed | Restarted | ReportedUncertain):
            told.append(event)
        yield event
    (path,) = (file.path for file in files if Ended.__name__ in file.kinds)
    del nodes[path]  # the table of faults: a fault may hit a processor that never started
    check_lives([*told, *last], set().union(*nodes.values()), path)
    yield from last


def check_lives(events: Iterable[TraceEvent], nodes: Iterable[int], path: Path) -> None:
    """Raise TraceError if a processor that is down at the end is called settled, or if one of
    ``nodes``, the processors with events, never starts. The events come in order."""
    up: dict[int, bool] = {}
    started: set[int] = set()  # a crash is no start: its log may have lost its beginning
    there = set(nodes)
    for event in events:
        if isinstance(event, Crashed | Restarted):
            up[event.node] = isinstance(event, Restarted)
            if up[event.node]:
                started.add(event.node)
        elif isinstance(event, ReportedUncertain):
            there.add(event.node)
        elif isinstance(event, Ended):
            down = [node for node in event.settled if not up.get(node)]
            if down:
                raise TraceError(f"{path}: calls processor {min(down)} settled, which is down")
    if strangers := there - started:
        raise TraceError(f"{path}: processor {min(strangers)} has events but never starts")


def _own(files: list[TraceFile], node: int) -> Iterator[TraceEvent]:
    """A processor's own events by its numbers for them, no two the same, and by its clock too."""
    last = last_us = -1
    own = [file.events(node, world=False) for file in files]
    for event in heapq.merge(*own, key=lambda event: event.n):  # type: ignore[union-attr]
        assert not isinstance(event, Ended)
        if event.n <= last or event.t_us < last_us:
            (path,) = (file.path for file in files if type(event).__name__ in file.kinds)
            if event.n <= last:
                told = f"processor {node} has an event {event.n} behind its {last}"
                raise TraceError(f"{path}: {told}")
            raise TraceError(f"{path}: {clock_back(node, event.n, event.t_us, last, last_us)}")
        last, last_us = event.n, event.t_us
        yield event


def clock_back(node: int, n: int, t_us: int, last: int, last_us: int) -> str:
    """Why a trace is refused in which a processor's times fall while its numbers rise."""
    return (
        f"processor {node}'s event {n} ({t_us} us) is earlier than its event {last} ({last_us} us)"
    )


def _moment(event: TraceEvent) -> tuple[int, int, int]:
    return (event.t_us, 0, 0) if isinstance(event, Ended) else (event.t_us, event.node, event.n)


class TraceFile:
    """One table of a run: a Parquet file that is surely ours and of this version."""

    @classmethod
    def of(cls, folder: Path | str, table: str, run: int) -> TraceFile:
        """The file of this table in a folder of traces."""
        return cls(Path(folder) / table / f"{run}.parquet", table)

    def __init__(self, path: Path, table: str) -> None:
        self.pa = _arrow()
        self.path = path
        self.kinds = {kind.__name__: kind for kind in TABLES[table]}
        if not path.is_file():
            raise TraceError(f"{path}: no such file; the trace is incomplete or was never finished")
        try:
            self.file = self.pa.parquet.ParquetFile(str(path), page_checksum_verification=True)
        except (self.pa.ArrowException, OSError) as error:
            raise TraceError(f"{path}: not a whole Parquet file ({error})") from None
        found = self.file.schema_arrow.metadata or {}
        wanted = schema.metadata(table)
        name, version = wanted
        if found.get(name) != wanted[name]:
            raise TraceError(f"{path}: not a table {table!r} of a ringcast trace")
        ours = wanted[version].decode()
        if found.get(version) != wanted[version]:
            theirs = found.get(version, b"none").decode(errors="replace")
            raise TraceError(f"{path}: schema version {theirs}, this ringcast reads {ours}")
        if not self.file.schema_arrow.equals(schema.arrow_schema(table)):
            raise TraceError(f"{path}: its columns are not those of schema version {ours}")
        try:
            told = found.get(CLAIMS)
            self.claims = None if told is None else msgspec.json.decode(told, type=Claims)
        except UNREADABLE as error:
            raise TraceError(f"{path}: what it says of claims cannot be read ({error})") from None
        self._check_numbers(table, int(path.stem))

    def _check_numbers(self, table: str, run: int) -> None:
        """Rows are of the run that the file is called after, with numbers that leave room."""
        wanted = [("run", run, run), ("n", 0, LIMIT - 1), ("t_us", 0, LIMIT - 1)]
        if table in ("originate", "deliver"):
            wanted.append(("seq", 1, LIMIT - 1))  # places are counted from 1
        for name, low, high in wanted:
            for least, most in self.bounds(name):
                if not low <= least <= most <= high:
                    wrong = least if least < low else most
                    raise TraceError(f"{self.path}: {name} is {wrong} in a row, which cannot be")

    def read(self, group: int, names: list[str] | None = None) -> Any:
        """A group of rows as an Arrow table."""
        try:
            return self.file.read_row_group(group, columns=names, use_threads=False)
        except (self.pa.ArrowException, OSError) as error:
            raise TraceError(f"{self.path}: damaged ({error})") from None

    def groups(self) -> range:
        """The numbers of the groups of rows."""
        return range(self.file.metadata.num_row_groups)

    def bounds(self, name: str) -> list[tuple[int, int]]:
        """The least and the largest number of a column in each group."""
        at = self.file.schema_arrow.get_field_index(name)
        metadata = self.file.metadata
        found = [metadata.row_group(group).column(at).statistics for group in self.groups()]
        if any(each is None or not each.has_min_max for each in found):
            raise TraceError(f"{self.path}: has no statistics of its groups of rows")
        return [(each.min, each.max) for each in found]

    def nodes(self) -> set[int]:
        """The processors in this table."""
        found: list[int] = []
        for group in self.groups():
            column = self.read(group, ["node"])["node"].combine_chunks()
            found += self.pa.compute.run_end_encode(column).values.to_pylist()
        if found != sorted(found):
            raise TraceError(f"{self.path}: {NOT_SORTED}")
        return set(found)

    def rows(self, node: int) -> Iterator[Row]:
        """The rows of one processor, in order."""
        for group, (least, most) in enumerate(self.bounds("node")):
            if least <= node <= most:
                table = self.read(group)
                if least != most:
                    table = table.filter(self.pa.compute.equal(table["node"], node))
                yield from table.to_pylist()

    def some(self, column: str, values: list[str]) -> Iterator[TraceEvent]:
        """The events of a table of one kind that have one of these texts in a column."""
        (kind,) = self.kinds.values()
        wanted = self.pa.array(values, self.pa.string())
        for group in self.groups():
            table = self.read(group)
            chosen = self.pa.compute.is_in(table[column], value_set=wanted)
            for row in table.filter(chosen).to_pylist():
                yield self._event(kind, [row])

    def events(self, node: int, world: bool) -> Iterator[TraceEvent]:
        """The events of one processor: its own, or what the world did to it."""
        only = next(iter(self.kinds.values()))
        if world and len(self.kinds) == 1:
            return
        outside = (Faulted.__name__, Ended.__name__)
        rows = (row for row in self.rows(node) if (row.get("event") in outside) == world)
        for _, found in groupby(rows, key=lambda row: (row["n"], row["t_us"], row.get("event"))):
            each = list(found)
            name = each[0].get("event", only.__name__)
            if name not in self.kinds:
                raise TraceError(f"{self.path}: a row makes no event (there is no {name!r})")
            yield self._event(self.kinds[name], each)

    def _event(self, kind: type[msgspec.Struct], rows: list[Row]) -> TraceEvent:
        try:
            return schema.event(kind, rows)
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(f"{self.path}: a row makes no event ({error})") from None
