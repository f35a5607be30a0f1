"""``spark.read`` and ``spark.readStream`` with ``format("ringcast")``.

Offsets are positions, one in each journal, so a query goes on exactly behind the rows that it has
read, and takes from each journal what no other had up to where it was read. Tasks
hand on Arrow batches, as they lie in the files if they are large; no row passes through Python.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from operator import le
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
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
from ringcast.journal.format.layout import MESSAGE, schema
from ringcast.journal.merged_reader import Marks, Span
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.stream import bodies
from ringcast.pipeline.stream.columns import body_columns
from ringcast.pipeline.stream.options import ReadOptions, starting, to_read, to_write
from ringcast.pipeline.stream.origins import origin_of
from ringcast.pipeline.stream.sink import RingcastStreamWriter, RingcastWriter

HIDDEN = "source"
"""A column of the journal that is ours alone."""


ENOUGH_ROWS, ENOUGH_BYTES = 1024, 2**20
"""A batch of so many rows or bytes is handed on as it lies in the file."""


POSITION, DIGEST = "position", "digest"

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
        if options.bodySchema:
            columns = bodies.with_body(columns, options.bodies, body_columns(options.bodySchema))
        return columns

    def reader(self, schema: StructType) -> RingcastReader:
        """Everything there is now."""
        return RingcastReader(to_read(self._given), schema)

    def streamReader(self, schema: StructType) -> RingcastStreamReader:
        """Everything there is and will be."""
        return RingcastStreamReader(to_read(self._given), schema)

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
        self._schema = schema

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """The records of a part. Spark makes one part of None out of no parts at all."""
        if not isinstance(partition, SourcePartition):
            return
        options = self.options
        reading: bodies.Reading | None = None
        if options.bodySchema:
            forgiving = options.badBodies == "null"
            reading = bodies.Reading(options.bodies, self._schema, forgiving)
        for batch in gathered(map(self._wanted, origin_of(options).batches(partition.span))):
            yield reading.decode(batch) if reading else batch

    def _wanted(self, batch: Any) -> Any:
        import pyarrow.compute as pc

        batch = batch.drop_columns([HIDDEN])
        options = self.options
        if options.group or not options.views:
            message = pc.equal(batch.column("kind"), MESSAGE)
            if options.group:
                mine = pc.and_(message, pc.equal(batch.column("group"), options.group))
                keep = pc.or_(mine, pc.invert(message)) if options.views else mine
            else:
                keep = message
            batch = batch.filter(keep)
        return batch


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


class RingcastReader(RowRange, DataSourceReader):
    """One look at the log."""

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

    def initialOffset(self) -> Offset:
        """Where a new query begins."""
        return self._offset(starting(self.options.startingPosition, self._origin.ends()))

    def prepareForTriggerAvailableNow(self) -> None:
        """What comes from now on is for another time."""
        self._until = self._origin.ends().end

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the user asked for."""
        most = self.options.maxRowsPerBatch
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch goes."""
        after = self._marks(start)
        last = self._until if self._until is not None else self._origin.ends().end
        last = tuple(map(max, after, last))
        if after == last:
            return start
        if isinstance(limit, ReadMaxRows):
            last = self._origin.after_rows(Span(after, last), limit.max_rows)
        return self._offset(last)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """A batch divided among tasks."""
        span = Span(self._marks(start), self._marks(end))
        return (
            [SourcePartition(each) for each in self._origin.parts(span)]
            if span.start != span.end
            else []
        )

    def commit(self, end: Offset) -> None:
        """The batch is done: what it read may be trimmed."""
        if self.options.reader:
            self._origin.commit(self.options.reader, self._marks(end))

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
