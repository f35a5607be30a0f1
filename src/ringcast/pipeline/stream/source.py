"""``spark.read`` and ``spark.readStream`` with ``format("ringcast")``.

Offsets are positions, one in each journal, so a query goes on exactly behind the rows that it has
read, and takes from each journal what no other had up to where it was read. Tasks
hand on Arrow batches, as they lie in the files if they are large; no row passes through Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from operator import le
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ringcast.core.ids import Position
from ringcast.journal.format.layout import JournalError, schema
from ringcast.journal.merged_reader import Marks, Span
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.stream import bodies
from ringcast.pipeline.stream.columns import body_columns
from ringcast.pipeline.stream.options import EARLIEST, ReadOptions, starting, to_read, to_write
from ringcast.pipeline.stream.origins import origin_of
from ringcast.pipeline.stream.pushing import narrowed
from ringcast.pipeline.stream.sink import RingcastStreamWriter, RingcastWriter

HIDDEN = "source"
"""A column of the journal that is ours alone."""


ENOUGH_ROWS, ENOUGH_BYTES = 1024, 2**20
"""A batch of so many rows or bytes is handed on as it lies in the file."""


POSITION, DIGEST, BEHIND = "position", "digest", "behind"

REMIND_S = 60.0
"""How often a named reader that has nothing to commit says that it is still there."""

Offset = dict[str, Any]
"""How far a query has come, as it is in its checkpoint."""


class SourcePartition(InputPartition):
    """The records that one task reads."""

    def __init__(self, span: Span) -> None:
        super().__init__(tuple(tuple(map(tuple, marks)) for marks in span))

    @property
    def span(self) -> Span:
        """Between which marks they are."""
        return Span(*(tuple(Position(*mark) for mark in marks) for marks in self.value))


class RingcastSource(DataSource):
    """The ordered log of a group as a table."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """As it is asked for."""
        return "ringcast"

    def schema(self) -> StructType:
        """The columns of the journal, with those of bodies if they are named."""
        options = to_read(self._given)
        found = schema()
        columns = from_arrow_schema(found.remove(found.get_field_index(HIDDEN)))
        if options.columns:
            columns = bodies.with_body(columns, options.bodies, body_columns(options.columns))
        return columns

    def reader(self, schema: StructType) -> RingcastReader:
        """Everything there is now."""
        return RingcastReader(to_read(self._given), self._as_they_are(schema))

    def streamReader(self, schema: StructType) -> RingcastStreamReader:
        """Everything there is and will be."""
        return RingcastStreamReader(to_read(self._given), self._as_they_are(schema))

    def _as_they_are(self, asked: StructType) -> StructType:
        """The columns, unless the user asked for others."""
        there = self.schema()
        if [(each.name, each.dataType.simpleString()) for each in asked] != [
            (each.name, each.dataType.simpleString()) for each in there
        ]:
            raise PipelineError(
                f"the columns of a journal are {', '.join(there.names)}, and schema() asks for "
                f"{', '.join(asked.names) or 'none'}: leave it out, select the columns you want, "
                "and name those of bodies with the options bodies and bodySchema"
            )
        return asked

    def writer(self, schema: StructType, overwrite: bool) -> RingcastWriter:
        """Rows into a group."""
        if overwrite:
            raise PipelineError("what was broadcast stays; use mode('append')")
        return RingcastWriter(to_write(self._given), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> RingcastStreamWriter:
        """A stream of rows into a group."""
        return RingcastStreamWriter(to_write(self._given), schema)


class RowRange:
    """What tasks do with a part, batch and streaming alike."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.wanted = options.wanted
        self._schema = schema

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """The records of a part. Spark makes one part of None out of no parts at all."""
        if not isinstance(partition, SourcePartition):
            return
        options = self.options
        reading: bodies.Reading | None = None
        if options.columns:
            forgiving = options.badBodies == "null"
            reading = bodies.Reading(options.bodies, self._schema, forgiving)
        found = origin_of(options).batches(partition.span, self.wanted)
        for batch in gathered(each.drop_columns([HIDDEN]) for each in found):
            yield reading.decode(batch) if reading else batch


def gathered(batches: Iterator[Any]) -> Iterator[Any]:
    """The same rows in batches that are worth handing on.

    A quiet group writes a frame a message, and a batch costs Spark and us some 100 us each.
    """
    import pyarrow as pa

    held: list[Any] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ENOUGH_ROWS or size >= ENOUGH_BYTES:
            yield pa.concat_batches(held) if len(held) > 1 else held[0]
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_batches(held) if len(held) > 1 else held[0]


class Pushing:
    """``pushFilters`` of a reader.

    With push-down switched off, as it is by default, Spark refuses to read from a reader that has
    a ``pushFilters`` of its own, for its conditions would be ignored. Ours may be: Spark evaluates
    all of them itself. So the reader's method passes for the one it inherits.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: RowRange) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Read no more than is needed under these conditions."""
        self._reader.wanted = narrowed(self._reader.wanted, filters)
        return filters


class RingcastReader(RowRange, DataSourceReader):
    """One look at the log."""

    @property
    def pushFilters(self) -> Callable[[list[Filter]], Iterable[Filter]]:
        """See ``Pushing``."""
        return Pushing(self)

    def partitions(self) -> Sequence[InputPartition]:
        """From the first record that is left to the last."""
        origin = origin_of(self.options)
        there = origin.ends()
        start = starting(self.options.startingPosition, there)
        return [SourcePartition(span) for span in origin.parts(Span(start, there.end))]


class RingcastStreamReader(RowRange, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as it grows."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._origin = origin_of(options)
        self._until: Marks | None = None
        self._known: Marks | None = None
        """Marks that are known to be of these journals."""
        self._reached: Marks | None = None
        """Where the last batch ends."""
        self._said_s: float | None = None
        """When the journals were told last how far a named reader is."""

    def initialOffset(self) -> Offset:
        """Where a new query begins. A journal that knows its reader trims nothing behind it; what
        it trimmed just before is not to be had."""
        marks = starting(self.options.startingPosition, self._origin.ends())
        if self.options.reader:
            self._remind(marks)
            if self.options.startingPosition == EARLIEST:
                marks = tuple(map(max, marks, self._origin.ends().start))
        return self._offset(marks)

    def prepareForTriggerAvailableNow(self) -> None:
        """What comes from now on is for another time."""
        self._until = self._origin.ends().end

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the user asked for."""
        most = self.options.maxRowsPerBatch
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch goes."""
        after = self._reached = self._marks(start)
        self._remind(after)
        last = self._until if self._until is not None else self._origin.ends().end
        last = tuple(map(max, after, last))
        if after == last:
            return start
        if isinstance(limit, ReadMaxRows):
            last = self._origin.after_rows(Span(after, last), limit.max_rows, self.wanted)
        self._reached = last
        return self._offset(last)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress: where the journals end, and how many records the query is
        behind them."""
        if self._reached is None:
            return None
        try:
            ends, behind = self._origin.ends().end, self._origin.behind(self._reached)
        except JournalError:  # the next batch says so, and may find it mended
            return None
        names = [POSITION] if len(ends) == 1 else self._origin.names
        return {**dict(zip(names, map(str, ends), strict=True)), BEHIND: behind}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """A batch divided among tasks."""
        span = Span(self._marks(start), self._marks(end))
        self._remind(span.start)
        return (
            [SourcePartition(each) for each in self._origin.parts(span)]
            if span.start != span.end
            else []
        )

    def commit(self, end: Offset) -> None:
        """The batch is done: what it read may be trimmed."""
        self._said_s = None
        self._remind(self._marks(end))

    def _remind(self, marks: Marks) -> None:
        """Tell the journals how far a named reader is, unless they were told lately: before its
        first batch, so that nothing is trimmed until that is done, and now and then, so that one
        that has long had nothing to read is not taken for dead."""
        now_s = time.monotonic()
        if self.options.reader and (self._said_s is None or now_s >= self._said_s + REMIND_S):
            self._origin.commit(self.options.reader, marks)
            self._said_s = now_s

    def _offset(self, marks: Marks) -> Offset:
        """A place, or with several journals one for each, by its name; and what lies there, by
        which the journal of another group is known."""
        self._known = marks
        digests = [f"{each:016x}" if each else "" for each in self._origin.digests(marks)]
        if len(marks) == 1:
            return {POSITION: str(marks[0]), DIGEST: digests[0]}
        found = ([str(mark), digest] for mark, digest in zip(marks, digests, strict=True))
        return dict(zip(self._origin.names, found, strict=True))

    def _marks(self, offset: Offset) -> Marks:
        names = self._origin.names
        alone = POSITION in offset
        if len(names) == 1 and alone:
            read = [(offset[POSITION], offset[DIGEST])]
        elif set(names) == offset.keys():
            read = [offset[name] for name in names]
        else:
            before = "one journal" if alone else ", ".join(offset)
            raise PipelineError(
                f"the query's checkpoint is of {before}, and path names {', '.join(names)}: which "
                "rows were read cannot be told; name the same journals, or begin a new query"
            )
        marks = tuple(Position.parse(position) for position, _ in read)
        if marks != self._known:
            self._compare(marks, [digest for _, digest in read])
        return marks

    def _compare(self, marks: Marks, digests: list[str]) -> None:
        """Raise if the records at the marks are not those that the query has read there. What was
        trimmed, or is still missing, cannot be compared."""
        there = self._origin.ends()
        found = self._origin.digests(marks)
        for each in zip(self._origin.names, marks, digests, found, *there, strict=True):
            name, mark, digest, lies_there, begin, end = each
            if digest and begin < mark <= end and int(digest, 16) != lies_there:
                raise PipelineError(
                    f"{name}: the record at {mark} is not the one that the query has read, so its "
                    "checkpoint is of another group; name the journals it was made with, or begin "
                    "a new query"
                )
        if all(map(le, marks, there.end)):
            self._known = marks
