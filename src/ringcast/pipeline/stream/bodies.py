"""What is in a body: bytes as they are, a row as JSON, rows as Arrow, or a replica's command.

A JSON body is one object and becomes a struct. An Arrow body is an IPC stream, made to hold many
rows, and becomes an array of structs, so that a message stays one row of the table with one
position; ``inline(body)`` makes rows of it. The sink makes such bodies of rows.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NotRequired, Required, TypedDict

import msgspec
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

from ringcast.core.errors import UNREADABLE
from ringcast.core.ids import Position
from ringcast.journal.format.layout import MESSAGE
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.stream.unpacking import BadBody, check_buffers, check_columns
from ringcast.replica.contents import COMMAND, submission

PACK_BYTES = 128 * 2**10
"""Rows that the sink puts into one Arrow body, about."""


def with_body(columns: StructType, form: str, row: StructType) -> StructType:
    """The columns with bodies of such rows; PipelineError if they cannot be read."""
    body = StructField("body", ArrayType(row) if form == "arrow" else row)
    found = StructType([body if each.name == "body" else each for each in columns])
    Reading(form, found, forgiving=False)
    return found


# --- reading -----------------------------------------------------------------------------------


class Reading:
    """Bodies of messages into values of one column; of other records there are none."""

    def __init__(self, form: str, schema: StructType, forgiving: bool) -> None:
        self._form, self._forgiving = form, forgiving
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._kind = self._schema.field("body").type
        self._one: Callable[[bytes], Any] = self._rows
        if form == "json":
            self._one = msgspec.json.Decoder(python_type(self._kind)).decode
        elif form == "commands":
            self._one = command_row

    def decode(self, batch: Any) -> Any:
        """A batch of records with its bodies decoded."""
        import pyarrow as pa

        at = batch.schema.get_field_index("body")
        found = batch.set_column(at, pa.field("body", self._kind), self._column(batch))
        if self._form == "commands":
            found = self._told_apart(found)
        return found.cast(self._schema)  # the same, but for what must not be null

    def _told_apart(self, batch: Any) -> Any:
        """Commands have a kind of their own among the words of replicas."""
        import pyarrow as pa
        import pyarrow.compute as pc

        at = batch.schema.get_field_index("kind")
        kinds = batch.column("kind").cast(pa.string())
        kinds = pc.if_else(batch.column("body").is_valid(), COMMAND, kinds)
        return batch.set_column(at, pa.field("kind", pa.string()), kinds)

    def _column(self, batch: Any) -> Any:
        import pyarrow as pa

        message = [kind == MESSAGE for kind in batch.column("kind").to_pylist()]
        values = [
            self._value(batch, at, body) if message[at] else None
            for at, body in enumerate(batch.column("body").to_pylist())
        ]
        try:
            return self._array(values)
        except pa.ArrowException:  # well-formed, but a value does not fit its column: which one?
            for at, value in enumerate(values):
                try:
                    self._array([value])
                except pa.ArrowException as error:
                    self._bad(batch, at, error)
                    values[at] = None
            return self._array(values)

    def _value(self, batch: Any, at: int, body: bytes) -> Any:
        try:
            return self._one(body)
        except (*UNREADABLE, BadBody) as error:
            self._bad(batch, at, error)
            return None

    def _bad(self, batch: Any, at: int, error: Exception) -> None:
        if self._forgiving:
            return
        place = Position(**batch.column("position")[at].as_py())
        group, sender = (batch.column(name)[at].as_py() for name in ("group", "sender"))
        why = str(error).splitlines()[0]
        raise PipelineError(
            f"the body at {place}, group {group!r}, sender {sender}, is not {self._form} with "
            f"these columns: {why}; with badBodies = null it is read as null"
        )

    def _array(self, values: list[Any]) -> Any:
        import pyarrow as pa

        if self._form != "arrow":
            return pa.array(values, self._kind)
        ends, end = [0], 0
        for value in values:
            end += len(value) if value is not None else 0
            ends.append(end)
        parts = [value for value in values if value is not None]
        rows = pa.concat_arrays(parts) if parts else pa.array([], self._kind.value_type)
        absent = pa.array([value is None for value in values])
        return pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), rows, type=self._kind, mask=absent
        )

    def _rows(self, body: bytes) -> Any:
        """The rows of an Arrow body, with the columns that were asked for."""
        import pyarrow as pa

        wanted = pa.schema(list(self._kind.value_type))
        try:
            check_buffers(body)
            with pa.ipc.open_stream(body) as stream:
                table = stream.read_all()
            table.validate(full=True)
            missing = [name for name in wanted.names if name not in table.column_names]
            if missing:
                raise BadBody(f"there is no column {', '.join(missing)}")
            table = table.select(wanted.names)
            check_columns(table, body)
            table = table.cast(wanted)
        except (pa.ArrowException, OSError, ValueError, BadBody) as error:
            raise BadBody(str(error)) from None
        (found,) = table.to_struct_array().chunks or [pa.array([], self._kind.value_type)]
        return found.cast(self._kind.value_type)


def command_row(body: bytes) -> dict[str, Any] | None:
    """The command in a word of a replica; None if it is another word."""
    found = submission(body)
    return found and found._asdict()


def python_type(kind: Any) -> Any:
    """What msgspec has to expect for an Arrow type."""
    import pyarrow.types as types

    if types.is_struct(kind):
        fields: dict[str, Any] = {}
        for field in kind:
            inner = python_type(field.type)
            fields[field.name] = NotRequired[inner | None] if field.nullable else Required[inner]
        return TypedDict("Row", fields)  # type: ignore[operator]  # made at run time
    if types.is_list(kind):
        inner = python_type(kind.value_type)
        return list[inner | None] if kind.value_field.nullable else list[inner]  # type: ignore[valid-type]
    if types.is_map(kind) and types.is_string(kind.key_type):
        inner = python_type(kind.item_type)
        return dict[str, inner | None]  # type: ignore[valid-type]
    if types.is_signed_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)]
    if types.is_timestamp(kind):
        return Annotated[datetime.datetime, msgspec.Meta(tz=kind.tz is not None)]
    for is_kind, found in PLAIN.items():
        if getattr(types, is_kind)(kind):
            return found
    raise PipelineError(f"bodySchema: {kind} cannot be read from JSON")


PLAIN = {
    "is_boolean": bool,
    "is_floating": float,
    "is_decimal": decimal.Decimal,
    "is_string": str,
    "is_binary": bytes,
    "is_date": datetime.date,
}


# --- writing -----------------------------------------------------------------------------------


def form_of(asked: str, schema: StructType) -> str:
    """How rows with these columns become bodies; PipelineError if that cannot be."""
    kinds = {each.name: each.dataType.typeName() for each in schema}
    sendable = kinds.get("body") in ("binary", "string")
    if asked == "raw" and not sendable:
        raise PipelineError("bodies = raw needs a column body of binary or string")
    if asked == "auto":
        return "raw" if sendable else "json"
    return asked


def encode(form: str, batch: Any) -> Iterator[bytes]:
    """The bodies that the rows of a batch become."""
    match form:
        case "raw":
            for body in batch.column("body").to_pylist():
                yield body.encode() if isinstance(body, str) else bytes(body or b"")
        case "json":
            yield from map(JSON.encode, batch.to_pylist(maps_as_pydicts="strict"))
        case "arrow":
            import pyarrow as pa

            step = max(1, PACK_BYTES * batch.num_rows // max(1, batch.nbytes))
            for at in range(0, batch.num_rows, step):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batch.schema) as stream:
                    stream.write_batch(batch.slice(at, step))
                yield sink.getvalue().to_pybytes()


JSON = msgspec.json.Encoder()
