"""The options of ``format("ringcast")``. Misspelled options are rejected.

Spark asks for the columns when it loads a source, and for a writer before the first task of a sink.
Options that are wrong by themselves are reported then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from ringcast.core.errors import ConfigError
from ringcast.core.explain import explained, known
from ringcast.core.ids import START, Position
from ringcast.journal.format.layout import NAME
from ringcast.journal.format.selection import Selection
from ringcast.journal.merged_reader import Marks, Span
from ringcast.pipeline.errors import PipelineError
from ringcast.wire import address
from ringcast.wire.address import Address

NAMES = "1 to 64 letters, digits, dots, dashes are needed, a letter or digit first"
SPARKS_OWN = {"mergeschema", "querytimeout"}
EARLIEST, LATEST = "earliest", "latest"


COMMANDS = (
    "member BIGINT NOT NULL, boot BIGINT NOT NULL, number BIGINT NOT NULL, "
    "client STRING, request BIGINT, command BINARY NOT NULL"
)
"""The columns of a command that was submitted to a replica."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may say, reading or writing."""

    connect: str = ""
    """The address ``host:port`` of a node; to read from, it needs a journal."""
    key_file: str = ""
    """The group's keys, for ``connect``."""
    group: str = ""
    """Reading: only this group's messages. Writing: the group the rows are for."""
    bodies: Literal["auto", "raw", "json", "arrow"] = "auto"
    """What a body is: ``raw`` (bytes), ``json`` (a row) or ``arrow`` (rows). Writing, auto takes
    the column body if there is one, otherwise the row as JSON."""

    @property
    def address(self) -> Address:
        """Of the node."""
        try:
            return address.parse(self.connect, "connect")
        except ConfigError as error:
            raise PipelineError(str(error)) from None


class ReadOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the source."""

    bodies: Literal["auto", "raw", "json", "arrow", "commands"] = "auto"  # type: ignore[assignment]
    """Also ``commands``: what was submitted to the replica whose group it is."""

    path: str = ""
    """Instead of ``connect``: one or several journals of a group, with commas between them."""
    views: bool = True
    """Configurations too."""
    bodySchema: str = ""
    """Of JSON or Arrow: its columns, such as ``order BIGINT, amount DECIMAL(9,2)``."""
    badBodies: Literal["fail", "null"] = "fail"
    """What is done about a body that is not such JSON or Arrow."""
    startingPosition: str = EARLIEST
    """earliest, latest, or a position such as ``(8,1):23.0``, for a new query."""
    maxRowsPerBatch: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    """Of a stream: the most rows of a batch, counted as they are wanted; 0 is no limit."""
    reader: str = ""
    """Of a stream: the name under which journals know how far it is, and keep the rest."""

    @property
    def folders(self) -> list[Path]:
        """The journals to read."""
        return [Path(part.strip()) for part in self.path.split(",") if part.strip()]

    @property
    def columns(self) -> str:
        """Of bodies, in Spark's words; empty if they are bytes."""
        return COMMANDS if self.bodies == "commands" else self.bodySchema

    @property
    def wanted(self) -> Selection:
        """The records to read."""
        return Selection(group=self.group, views=self.views)


class WriteOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the sink."""

    stream: str = ""
    """The name under which the rows are numbered."""
    staging: str = ""
    """A folder that driver and executors share, for rows until their batch is decided."""
    checkpointLocation: str = ""
    """Of a stream: Spark's own, by which another query with the same name is known."""


Kind = TypeVar("Kind", ReadOptions, WriteOptions)


def to_read(given: Mapping[str, str]) -> ReadOptions:
    """The options of a source, checked; PipelineError says what is wrong."""
    options = _taken(given, ReadOptions)
    if bool(options.folders) == bool(options.connect):
        raise PipelineError("give either path (journals) or connect (a node's address)")
    if options.connect:
        _ = options.address
    if options.reader:
        _check_name("reader", options.reader)
    if bool(options.bodySchema) != (options.bodies in ("json", "arrow")):
        raise PipelineError("bodies = json or arrow and bodySchema = 'order BIGINT, …' go together")
    if options.bodies == "commands" and not options.group:
        raise PipelineError("bodies = commands needs group: the name of the replica's group")
    if options.startingPosition not in (EARLIEST, LATEST):
        _place(options.startingPosition)
    return options


def to_write(given: Mapping[str, str]) -> WriteOptions:
    """The options of a sink, checked; PipelineError says what is wrong."""
    lower = {name.lower() for name in given}
    if "connect" not in lower or "path" in lower:
        path = ", and path is for reading" if "path" in lower else ""
        raise PipelineError(
            f"rows go into a group through a node: give its address host:port as connect{path}"
        )
    options = _taken(given, WriteOptions)
    _ = options.address
    _check_name("group", options.group)
    _check_name("stream", options.stream)
    if not options.staging:
        raise PipelineError("staging: name a folder that the driver and all executors share")
    return options


def _taken(given: Mapping[str, str], kind: type[Kind]) -> Kind:
    """Spark does not tell large from small letters in names of options, and hands on small ones."""
    here, there, other = "reading", "writing", _names(WriteOptions)
    if kind is WriteOptions:
        here, there, other = there, here, _names(ReadOptions)
    names = _names(kind)
    taken: dict[str, str] = {}
    for name, value in given.items():
        word = name.lower().replace("keyfile", "key_file")
        if word in names:
            taken[names[word]] = value
        elif word in other:
            ours = ", ".join(names.values())
            raise PipelineError(f"{other[word]} is for {there}; for {here} there are {ours}")
        elif word not in SPARKS_OWN:
            raise PipelineError(f"no option {name}; {known(name, names.values())}")
    try:
        return msgspec.convert(taken, kind, strict=False)
    except msgspec.ValidationError as error:
        raise PipelineError(f"options: {explained(error, kind)}") from None


def _names(kind: type[Options]) -> dict[str, str]:
    """The options in small letters, and as they are written."""
    return {name.lower(): name for name in kind.__struct_fields__}


def _check_name(option: str, name: str) -> None:
    if not re.fullmatch(NAME, name):
        missing = "" if name else f"{option} is missing; "
        raise PipelineError(f"{missing}{option}: {NAMES}")


def _place(text: str) -> Position:
    try:
        return Position.parse(text)
    except ValueError as error:
        raise PipelineError(f"startingPosition: {error}, or say earliest or latest") from None


def starting(text: str, there: Span) -> Marks:
    """Where a new query begins: behind these marks."""
    if text == EARLIEST:
        return there.start
    if text == LATEST:
        return there.end
    first = _place(text)
    return (max(START, first.before),) * len(there.end)
