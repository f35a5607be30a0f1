"""Where records come from: journals on a file system, or a node that is asked over TCP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ringcast.core.errors import RingcastError
from ringcast.core.ids import START, Position
from ringcast.journal.format.frame import Range
from ringcast.journal.format.layout import JournalError
from ringcast.journal.format.records import cut
from ringcast.journal.format.selection import Selection
from ringcast.journal.merged_reader import Marks, MergedReader, Span
from ringcast.journal.service import (
    GUEST,
    Answer,
    Ask,
    Commit,
    Done,
    Extent,
    Look,
    Question,
    Records,
    Seek,
    answers,
    call,
    from_records,
    token,
)
from ringcast.journal.writer import commit
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.stream.options import Options, ReadOptions
from ringcast.wire.keys import KeyFile
from ringcast.wire.line import Line

A = TypeVar("A", Extent, Done)

PART_BYTES = 64 * 2**20
"""Records that one task reads, about: 1 GB took 2.4 s of Python's time in parts of 16 MiB, and
1.3 s in parts of 64."""


class RecordOrigin(Protocol):
    """Records to read, from one journal or several."""

    names: list[str]
    """Of the journals."""

    def ends(self) -> Span:
        """Everything there is: where each journal begins, and its last record."""

    def digests(self, marks: Marks) -> list[int | None]:
        """Of what lies at each mark; None if nothing does, or no more."""

    def after_rows(self, span: Span, rows: int, wanted: Selection) -> Marks:
        """The marks so many wanted records further, or the end."""

    def behind(self, marks: Marks) -> int:
        """How many records lie behind the marks."""

    def parts(self, span: Span) -> list[Span]:
        """What is new between two marks, divided among tasks."""

    def batches(self, span: Span, wanted: Selection) -> Iterator[Any]:
        """The wanted records that are new between two marks."""

    def commit(self, reader: str, marks: Marks) -> None:
        """The reader needs nothing up to these marks any more."""


def origin_of(options: ReadOptions) -> RecordOrigin:
    """What the options name."""
    return Files(options.folders) if options.path else RemoteNode(options)


class Files:
    """Journals that every task can open."""

    def __init__(self, folders: list[Path]) -> None:
        self.names = [str(folder) for folder in folders]
        if len(set(self.names)) < len(self.names):
            raise PipelineError("path: a journal is named twice")
        self._folders = folders
        self._reader: MergedReader | None = None

    def _open(self) -> MergedReader:
        """As the files are now."""
        if self._reader is None:
            self._reader = MergedReader(self._folders)
        else:
            self._reader.refresh()
        return self._reader

    def ends(self) -> Span:
        """See ``RecordOrigin``."""
        reader = self._open()
        return Span(reader.begins, reader.ends)

    def digests(self, marks: Marks) -> list[int | None]:
        """See ``RecordOrigin``."""
        pairs = zip(self._open().journals, marks, strict=True)
        return [journal.digest(mark) for journal, mark in pairs]

    def after_rows(self, span: Span, rows: int, wanted: Selection) -> Marks:
        """See ``RecordOrigin``."""
        return self._open().after_rows(span, rows, wanted)

    def behind(self, marks: Marks) -> int:
        """See ``RecordOrigin``."""
        return self._open().behind(marks)

    def parts(self, span: Span) -> list[Span]:
        """See ``RecordOrigin``."""
        reader = self._open()
        reader.check(span.start)
        return reader.split(span, PART_BYTES)

    def batches(self, span: Span, wanted: Selection) -> Iterator[Any]:
        """See ``RecordOrigin``."""
        reader = self._open()
        reader.check(span.start)
        yield from reader.batches(span, wanted)

    def commit(self, reader: str, marks: Marks) -> None:
        """See ``RecordOrigin``."""
        for folder, mark in zip(self._folders, marks, strict=True):
            commit(folder, reader, mark)


class RemoteNode:
    """A node that serves its journal."""

    def __init__(self, options: Options) -> None:
        self._address = options.address
        self.names = [str(self._address)]
        self._key_file = options.key_file

    def ends(self) -> Span:
        """See ``RecordOrigin``."""
        told = self._look(START)
        return Span((told.trimmed,), (told.last,))

    def digests(self, marks: Marks) -> list[int | None]:
        """See ``RecordOrigin``."""
        return [self._look(mark).digest for mark in marks]

    def _look(self, place: Position) -> Extent:
        return self._one(Look(token(), place), Extent)

    def _one(self, question: Question, kind: type[A]) -> A:
        """The one answer to a question; a node that says anything else is no node of ours."""
        told = list(islice(self._talk(question), 2))
        if len(told) == 1 and isinstance(told[0], kind):
            return told[0]
        raise JournalError(f"{self._address} does not answer the question that it was asked")

    def after_rows(self, span: Span, rows: int, wanted: Selection) -> Marks:
        """See ``RecordOrigin``."""
        (after,), (upto,) = span
        return (self._one(Seek(token(), after, upto, rows, wanted), Done).place,)

    def behind(self, marks: Marks) -> int:
        """See ``RecordOrigin``."""
        (mark,) = marks
        return self._look(mark).behind

    def parts(self, span: Span) -> list[Span]:
        """See ``RecordOrigin``."""
        return [span]

    def batches(self, span: Span, wanted: Selection) -> Iterator[Any]:
        """See ``RecordOrigin``."""
        (after,), (upto,) = span
        for answer in self._talk(Ask(token(), after, upto)):
            if isinstance(answer, Records) and len(frame := wanted.of(from_records(answer))):
                yield cut(Range(after, upto), frame)

    def commit(self, reader: str, marks: Marks) -> None:
        """See ``RecordOrigin``."""
        self.ask(Commit(token(), reader, *marks))

    def ask(self, question: Question) -> None:
        """Something to be done; it is when this returns."""
        for _ in self._talk(question):
            pass

    def _talk(self, question: Question) -> Iterator[Answer]:
        """One conversation, heard answer by answer so that none of it is kept."""
        with asyncio.Runner() as runner:
            hear = runner.run
            line: Line | None = None
            try:
                line = hear(self._call())
                told = answers(line, question)
                while (answer := hear(_next(told))) is not None:
                    yield answer
            except RingcastError as error:
                raise JournalError(f"{self._address}: {error}") from None
            except OSError as error:
                why = error.strerror or str(error) or "no answer"
                raise JournalError(
                    f"{self._address}: {why}; connect needs a node that runs and has a journal"
                ) from None
            finally:
                if line is not None:
                    hear(_hang_up(line))

    async def _call(self) -> Line:
        keys = KeyFile(Path(self._key_file)) if self._key_file else None
        return await call(self._address, GUEST, keys)


async def _next(told: AsyncIterator[Answer]) -> Answer | None:
    return await anext(told, None)


async def _hang_up(line: Line) -> None:
    line.close()
