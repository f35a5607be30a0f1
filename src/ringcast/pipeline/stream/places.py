"""Where records come from: journals on a file system, or a node that is asked over TCP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Protocol

from ringcast.journal.layout import JournalError, Place, from_bytes
from ringcast.journal.log import commit
from ringcast.journal.reading import Range, Shelves
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.stream.options import Options
from ringcast.runtime import address
from ringcast.runtime.errors import RingcastError
from ringcast.runtime.exchange import (
    GUEST,
    Answer,
    Ask,
    Commit,
    Done,
    Line,
    Question,
    Records,
    Seek,
    Told,
    answers,
    call,
    token,
)
from ringcast.runtime.keys import KeyFile

PART_BYTES = 64 * 2**20
"""Records that one task reads, about: 1 GB took 2.4 s of Python's time in parts of 16 MiB, and
1.3 s in parts of 64."""

EVERYTHING = 2**62


class Origin(Protocol):
    """Records to read."""

    def ends(self) -> tuple[Place, Place]:
        """Up to where records were trimmed, and the last one there is."""

    def after_rows(self, span: Range, rows: int) -> Place:
        """The place so many records into a range, or its end."""

    def parts(self, span: Range) -> list[Range]:
        """A range divided among tasks."""

    def batches(self, span: Range) -> Iterator[Any]:
        """The records of a range."""

    def commit(self, reader: str, place: Place) -> None:
        """The reader needs nothing up to ``place`` any more."""


def origin_of(options: Options) -> Origin:
    """What the options name."""
    return Files(options.folders) if options.path else Peer(options)


class Files:
    """Journals that every task can open."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders
        self._shelves: Shelves | None = None

    def _open(self) -> Shelves:
        """As the files are now."""
        if self._shelves is None:
            self._shelves = Shelves(self._folders)
        else:
            self._shelves.refresh()
        return self._shelves

    def ends(self) -> tuple[Place, Place]:
        """See ``Origin``."""
        shelves = self._open()
        return shelves.trimmed, shelves.last

    def after_rows(self, span: Range, rows: int) -> Place:
        """See ``Origin``."""
        return self._open().after_rows(span, rows)

    def parts(self, span: Range) -> list[Range]:
        """See ``Origin``."""
        shelves = self._open()
        shelves.check(span.after)
        return shelves.split(span, PART_BYTES)

    def batches(self, span: Range) -> Iterator[Any]:
        """See ``Origin``."""
        shelves = self._open()
        shelves.check(span.after)
        yield from shelves.batches(span)

    def commit(self, reader: str, place: Place) -> None:
        """See ``Origin``."""
        for folder in self._folders:
            commit(folder, reader, place)


class Peer:
    """A node that serves its journal."""

    def __init__(self, options: Options) -> None:
        try:
            self._address = address.parse(options.connect, "connect")
        except RingcastError as error:
            raise PipelineError(str(error)) from None
        self._key_file = options.key_file

    def ends(self) -> tuple[Place, Place]:
        """See ``Origin``."""
        nothing = Ask(token(), Place(0, 0, 0, 0), Place(0, 0, 0, 0), 0)
        told = [each for each in self._talk(nothing) if isinstance(each, Told)][-1]
        return told.trimmed, told.last

    def after_rows(self, span: Range, rows: int) -> Place:
        """See ``Origin``."""
        (done,) = self._talk(Seek(token(), *span, rows))
        assert isinstance(done, Done)
        return done.place

    def parts(self, span: Range) -> list[Range]:
        """See ``Origin``."""
        return [span]

    def batches(self, span: Range) -> Iterator[Any]:
        """See ``Origin``."""
        for answer in self._talk(Ask(token(), *span, EVERYTHING)):
            if isinstance(answer, Records):
                yield from_bytes(answer.batch)

    def commit(self, reader: str, place: Place) -> None:
        """See ``Origin``."""
        for _ in self._talk(Commit(token(), reader, place)):
            pass

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
                raise JournalError(f"{self._address}: {error.strerror or error}") from None
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
