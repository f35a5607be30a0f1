"""The options of ``format("ringcast")``, read strictly: a name with a typing error is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ringcast.journal.layout import NAME, START, Place
from ringcast.journal.shelves import Marks, Span
from ringcast.pipeline.errors import PipelineError

NAMES = "1 to 64 letters, digits, dots, dashes are needed, a letter or digit first"
SPARKS_OWN = {"mergeschema", "querytimeout"}


class Options(msgspec.Struct, frozen=True, rename=str.lower):
    """What a user may say. Spark does not tell large from small letters in names of options."""

    path: str = ""
    """One or several journals of a group, with commas between them."""
    connect: str = ""
    """Or the address ``host:port`` of a node that has a journal."""
    key_file: str = ""
    """The group's keys, for ``connect``."""
    group: str = ""
    """Reading: only this group's messages. Writing: the group the rows are for."""
    views: bool = True
    """Reading: configurations too."""
    reader: str = ""
    """Reading a stream: the name under which what was read is committed, so that it may go."""
    startingPosition: str = "earliest"
    """Reading a stream: earliest, latest, or a position such as ``(8,1):23.0``."""
    maxRowsPerBatch: int = 0
    """Reading a stream: the most rows of a batch; 0 is no limit."""
    stream: str = ""
    """Writing: the name under which the rows are numbered."""
    staging: str = ""
    """Writing: a folder that driver and executors share, for rows until their batch is decided."""
    checkpointLocation: str = ""
    """Writing a stream: Spark's own, by which another query with the same name is known."""
    bodies: str = "auto"
    """What a body is: ``raw`` (bytes), ``json`` (a row) or ``arrow`` (rows). Writing, auto takes
    the column body if there is one, otherwise the row as JSON."""
    bodySchema: str = ""
    """Reading JSON or Arrow: its columns, such as ``order BIGINT, amount DECIMAL(9,2)``."""
    badBodies: str = "fail"
    """Reading JSON or Arrow: what is done about a body that is not, ``fail`` or ``null``."""

    @property
    def folders(self) -> list[Path]:
        """The journals to read."""
        return [Path(part.strip()) for part in self.path.split(",") if part.strip()]


def read_options(given: Mapping[str, str], writing: bool) -> Options:
    """The options, checked; PipelineError says what is wrong."""
    words: dict[str, Any] = {name.lower().replace("keyfile", "key_file"): value
                             for name, value in given.items()}  # fmt: skip
    known = {each.encode_name for each in msgspec.structs.fields(Options)}
    strange = sorted(words.keys() - known - SPARKS_OWN)
    if strange:
        raise PipelineError(f"no option {', '.join(strange)}; there are {', '.join(sorted(known))}")
    taken = {name: value for name, value in words.items() if name in known}
    try:
        options = msgspec.convert(taken, Options, strict=False)
    except msgspec.ValidationError as error:
        raise PipelineError(f"options: {error}") from None
    if bool(options.path) == bool(options.connect):
        raise PipelineError("give either path (journals) or connect (a node's address)")
    if writing:
        if not options.connect:
            raise PipelineError("rows go to a group through a node: give its address as connect")
        for name in ("group", "stream"):
            if not re.fullmatch(NAME, getattr(options, name)):
                raise PipelineError(f"{name}: {NAMES}")
        if not options.staging:
            raise PipelineError("staging: name a folder that the driver and all executors share")
        if options.bodySchema:
            raise PipelineError("bodySchema is for reading; rows are written as they are")
    else:
        if options.reader and not re.fullmatch(NAME, options.reader):
            raise PipelineError(f"reader: {NAMES}")
        if bool(options.bodySchema) != (options.bodies in ("json", "arrow")):
            raise PipelineError(
                "bodies = json or arrow and bodySchema = 'order BIGINT, …' go together"
            )
    if options.bodies not in ("auto", "raw", "json", "arrow"):
        raise PipelineError("bodies is raw, json, arrow or auto")
    if options.badBodies not in ("fail", "null"):
        raise PipelineError("badBodies is fail or null")
    return options


POSITION = re.compile(r"\(?(\d+),(\d+)\)?:(\d+)(?:\.(\d+))?$")


def starting(text: str, there: Span) -> Marks:
    """Where a new query begins: behind these marks."""
    if text == "earliest":
        return there.start
    if text == "latest":
        return there.end
    found = POSITION.match(text)
    if not found:
        raise PipelineError(f"startingPosition {text!r}: say earliest, latest or (8,1):23.0")
    ring_seq, ring_rep, seq, index = (int(part or 0) for part in found.groups())
    return (max(START, Place(ring_seq, ring_rep, seq, index - 1)),) * len(there.end)
