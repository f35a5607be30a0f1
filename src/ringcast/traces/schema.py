"""The tables of a trace: columns generated from the events of ``core.trace``.

A table holds one kind of event, one row per message where an event concerns messages, else one
row per event. Columns are plain: a ``ViewId`` becomes ``<field>_seq`` and ``<field>_rep``, the
numbers of a frame become ``sequence`` (the sender's own number) and ``index`` (the place in the
frame), ``digests`` and ``sizes`` become ``digest`` and ``size``. Rows are sorted by run, node and
n, which is each processor's own order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, get_args

import msgspec

from ringcast.core.ids import Level, ViewId
from ringcast.core.trace import (
    SCHEMA_VERSION,
    Crashed,
    Delivered,
    Ended,
    Faulted,
    Installed,
    Noted,
    Originated,
    ReportedUncertain,
    Restarted,
    Submit,
    TraceEvent,
)

TABLES: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "submit": (Submit,),
    "originate": (Originated,),
    "deliver": (Delivered,),
    "view": (Installed,),
    "fault": (Crashed, Restarted, ReportedUncertain, Faulted, Ended),
    "note": (Noted,),
}
"""Which events go where. A table of several kinds has a column ``event`` with the kind."""

TABLE_OF = {kind: table for table, kinds in TABLES.items() for kind in kinds}

PER_MESSAGE = {"digests": "digest", "sizes": "size"}
"""Fields that hold one value per message, and the column for one of them."""


MAY_BE_LEFT_OUT = {
    field.name
    for kinds in TABLES.values()
    for kind in kinds
    for field in msgspec.structs.fields(kind)
    if field.default is msgspec.UNSET
}
"""Fields that an event may be without."""


class ColumnKind(StrEnum):
    """What a column holds."""

    INT = "int"
    FLAG = "flag"
    TEXT = "text"
    IDS = "ids"


class Column(msgspec.Struct, frozen=True):
    """One column of a table."""

    name: str
    kind: ColumnKind
    optional: bool = False


def _columns_of(field: msgspec.structs.FieldInfo) -> list[Column]:
    """The columns one field of an event becomes."""
    name, kind = field.name, field.type
    if name in PER_MESSAGE:
        return [
            Column("index", ColumnKind.INT),
            Column(PER_MESSAGE[name], ColumnKind.INT, not field.required),
        ]
    if name == "first":
        return [Column("sequence", ColumnKind.INT)]
    if msgspec.UnsetType in get_args(kind):  # as much as left out
        return [Column(name, ColumnKind.IDS, optional=True)]
    optional = type(None) in get_args(kind)
    if kind is ViewId or (optional and ViewId in get_args(kind)):
        return [Column(f"{name}_{part}", ColumnKind.INT, optional) for part in ("seq", "rep")]
    if kind is str:
        return [Column(name, ColumnKind.TEXT)]
    if kind is bool:
        return [Column(name, ColumnKind.FLAG)]
    if getattr(kind, "__origin__", None) is tuple:
        return [Column(name, ColumnKind.IDS)]
    return [Column(name, ColumnKind.INT)]


def columns(table: str) -> list[Column]:
    """The columns of ``table``, in order."""
    kinds = TABLES[table]
    found = {"run": Column("run", ColumnKind.INT)}
    if len(kinds) > 1:
        found["event"] = Column("event", ColumnKind.TEXT)
    found |= {name: Column(name, ColumnKind.INT) for name in ("node", "n", "t_us")}
    for kind in kinds:
        for field in msgspec.structs.fields(kind):
            for column in _columns_of(field):
                if len(kinds) > 1 and column.name not in found:  # other kinds leave it empty
                    column = Column(column.name, column.kind, optional=True)
                found.setdefault(column.name, column)
    return list(found.values())


def arrow_schema(table: str) -> Any:
    """The Arrow schema of ``table``, with its name and version as metadata."""
    import pyarrow as pa

    types = {
        ColumnKind.INT: pa.int64(),
        ColumnKind.FLAG: pa.bool_(),
        ColumnKind.TEXT: pa.string(),
        ColumnKind.IDS: pa.list_(pa.field("element", pa.int64(), nullable=False)),
    }
    fields = [pa.field(c.name, types[c.kind], nullable=c.optional) for c in columns(table)]
    return pa.schema(fields, metadata(table))


def metadata(table: str) -> dict[bytes, bytes]:
    """What marks a file as ours."""
    return {
        b"ringcast.table": table.encode(),
        b"ringcast.schema_version": str(SCHEMA_VERSION).encode(),
    }


def rows(event: TraceEvent, run: int) -> list[dict[str, Any]]:
    """The rows of one event; the columns of other kinds of event are left out."""
    kind = type(event)
    base: dict[str, Any] = {"run": run, "event": kind.__name__, "node": 0, "n": 0}
    per_message: dict[str, Sequence[int]] = {}
    for name in kind.__struct_fields__:
        value = getattr(event, name)
        if name in PER_MESSAGE:
            per_message[PER_MESSAGE[name]] = value
        elif isinstance(value, ViewId):
            base[f"{name}_seq"], base[f"{name}_rep"] = value.seq, value.rep
        elif value is not msgspec.UNSET:
            base[name] = value
    if not per_message:
        return [base | {"sequence": base.pop("first")} if "first" in base else base]
    known = {column: values for column, values in per_message.items() if values}
    if not known:
        raise ValueError(f"an event without messages cannot be written: {event}")
    first = base.pop("first")
    return [
        {**base, "index": index, "sequence": first + index, **dict(zip(known, each, strict=True))}
        for index, each in enumerate(zip(*known.values(), strict=True))
    ]


def event(kind: type[msgspec.Struct], found: Sequence[dict[str, Any]]) -> TraceEvent:
    """The event whose rows are ``found``; ValueError says why they make none."""
    row = found[0]
    if len(found) > 1:
        _check_alike(found)
    values: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        if name in PER_MESSAGE:
            column = PER_MESSAGE[name]
            values[name] = () if row[column] is None else tuple([each[column] for each in found])
        elif name == "first":
            values[name] = row["sequence"]
        elif f"{name}_seq" in row:
            seq, rep = row[f"{name}_seq"], row[f"{name}_rep"]
            if (seq is None) != (rep is None):
                raise ValueError(f"half of {name} is empty")
            values[name] = None if seq is None else ViewId(seq, rep)
        elif name == "level":
            values[name] = Level(row[name])
        elif isinstance(row[name], list):
            values[name] = tuple(row[name])
        elif row[name] is None and name in MAY_BE_LEFT_OUT:
            continue
        elif row[name] is None:
            raise ValueError(f"{name} is empty")
        else:
            values[name] = row[name]
    return kind(**values)  # type: ignore[return-value]


def _check_alike(found: Sequence[dict[str, Any]]) -> None:
    """The rows of an event tell of messages in a row, and agree in all the rest."""
    row, own = found[0], set(PER_MESSAGE.values())
    if "index" not in row:
        raise ValueError(f"event {row['n']} of processor {row['node']} is there twice")
    for at, each in enumerate(found):
        wanted = row | {"index": at, "sequence": row["sequence"] + at}
        if differs := [name for name in row if name not in own and each[name] != wanted[name]]:
            raise ValueError(
                f"event {row['n']} of processor {row['node']}: its rows contradict each other "
                f"in {differs[0]}"
            )
