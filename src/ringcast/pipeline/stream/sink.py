"""``df.writeStream.format("ringcast")``: rows into a group, each once.

Tasks are not told which batch they write for, so they leave their rows in a staging folder.
``commit`` is told. It first decides the batch: a manifest that names the staged files is renamed
into place, and whoever comes later with the same batch, after a failure, finds it and publishes
what was decided then, whatever order its own rows have. Rows are published in the order of the
manifest, numbered; members drop what they have had.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType
from xxhash import xxh3_64_intdigest

from ringcast.core.errors import UNREADABLE
from ringcast.files.disk import DISK, private
from ringcast.journal.service import Publish, token
from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.stream import bodies
from ringcast.pipeline.stream.options import WriteOptions
from ringcast.pipeline.stream.origins import RemoteNode

STAGED = re.compile(r"[0-9a-f]{32}\.rows")
"""What files of rows are called."""

MOST_ROWS, MOST_BYTES = 512, 2**20
"""Rows published at a time, at most."""


class StagedFile(msgspec.Struct, frozen=True):
    """A file of rows as a manifest names it: so many of them, with this sum of hashes."""

    name: str
    rows: int
    content: int


class Staged(WriterCommitMessage):
    """What a task left."""

    def __init__(self, file: StagedFile) -> None:
        self.file = file


class Writing:
    """Staging and publishing, batch and streaming alike."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self.options = options
        self._form = bodies.form_of(options.bodies, schema)
        self._folder = Path(options.staging) / options.stream

    # --- in the tasks ----------------------------------------------------------------------

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Leave the rows of a partition in a file of their own."""
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{uuid.uuid4().hex}.rows"
        rows = content = 0
        with open(self._folder / name, "wb", opener=private) as file:
            for batch in iterator:
                for body in bodies.encode(self._form, batch):
                    file.write(len(body).to_bytes(4, "big") + body)
                    rows += 1
                    content += xxh3_64_intdigest(body)
            file.flush()
            os.fsync(file.fileno())
        return Staged(StagedFile(name, rows, content % 2**64))

    # --- in the driver ---------------------------------------------------------------------

    def refuse_others(self, me: bytes, batch: int) -> None:
        """Who else writes the stream numbers its batches anew, and members would drop its rows as
        repeated."""
        self._folder.mkdir(parents=True, exist_ok=True)
        note = self._folder / "query"
        if not note.exists():
            DISK.replace(note, me)
        later = [done for done in self._folder.glob("*.done") if int(done.stem) > batch]
        if later or note.read_bytes() != me:
            raise PipelineError(
                f"the stream {self.options.stream!r} belongs to another query or table, or to this "
                "query before its checkpoint was lost: members would take rows for repeated ones; "
                "give each query and each table a stream of its own"
            )

    def publish(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
        """Decide the batch, publish it, and clear up."""
        staged = files_of(messages)
        manifest = self._folder / f"{batch:020}.json"
        self._folder.mkdir(parents=True, exist_ok=True)
        done = manifest.with_suffix(".done")
        if manifest.exists() or done.exists():
            self._remove(staged)  # it was decided before
        else:
            self._decide(manifest, [file for file in staged if file.rows])
        if not done.exists():
            decided = read_manifest(manifest)
            self._publish(decided, batch)
            manifest.replace(done)
            self._remove(decided)
        self._forget(batch)

    def _decide(self, manifest: Path, files: list[StagedFile]) -> None:
        """From here on these files are the batch."""
        DISK.replace(manifest, msgspec.json.encode(files))

    def _publish(self, files: list[StagedFile], batch: int) -> None:
        peer = RemoteNode(self.options)
        first, some, size = 0, [], 0
        for body in self._rows(files):
            some.append(body)
            size += len(body)
            if len(some) >= MOST_ROWS or size >= MOST_BYTES:
                self._ask(peer, batch, first, some)
                first, some, size = first + len(some), [], 0
        if some:
            self._ask(peer, batch, first, some)

    def _ask(self, peer: RemoteNode, batch: int, first: int, rows: list[bytes]) -> None:
        options = self.options
        peer.ask(Publish(token(), options.group, options.stream, batch, first, tuple(rows)))

    def _rows(self, files: list[StagedFile]) -> Iterator[bytes]:
        for staged in files:
            with open(self._staged(staged), "rb", opener=no_link) as file:
                data = file.read()
            found, at = [], 0
            while at < len(data):
                begin, at = at + 4, at + 4 + int.from_bytes(data[at : at + 4], "big")
                found.append(data[begin:at])
            content = sum(map(xxh3_64_intdigest, found)) % 2**64
            if (len(found), content) != (staged.rows, staged.content):
                raise PipelineError(
                    f"{self._folder / staged.name} has not the {staged.rows} rows that were staged "
                    "in it: it was cut off or changed since; restore it, or remove the manifest "
                    "that names it to stage the batch anew"
                )
            yield from found

    def _staged(self, file: StagedFile) -> Path:
        """A file of rows; whoever can write a manifest must not have others published, or removed,
        that the driver can read."""
        if not STAGED.fullmatch(file.name):
            raise PipelineError(
                f"{self._folder}: a manifest names {file.name!r}, no file of rows there"
            )
        return self._folder / file.name

    def _remove(self, files: list[StagedFile]) -> None:
        for file in files:
            with contextlib.suppress(OSError):
                self._staged(file).unlink(missing_ok=True)

    def _forget(self, batch: int) -> None:
        """Spark repeats the last batch at most: earlier decisions are not needed any more."""
        for done in self._folder.glob("*.done"):
            if int(done.stem) < batch:
                done.unlink(missing_ok=True)

    def give_up(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
        """A task or ``commit`` failed, and the batch will come again; what was decided stays."""
        if not (self._folder / f"{batch:020}.json").exists():
            self._remove(files_of(messages))


class RingcastStreamWriter(Writing, DataSourceStreamArrowWriter):
    """The rows of a stream, batch by batch."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a batch are done."""
        place = self.options.checkpointLocation
        try:
            query = (Path(place) / "metadata").read_bytes()  # names it, in all its lives
        except OSError:
            query = place.encode()
        self.refuse_others(query, batchId)
        self.publish(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task or the commit failed."""
        self.give_up(messages, batchId)


class RingcastWriter(Writing, DataSourceArrowWriter):
    """A table, as one batch. The same ``stream`` writes one table, once, however often it is tried;
    another table is refused."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        staged = files_of(messages)
        rows, content = sum(each.rows for each in staged), sum(each.content for each in staged)
        self.refuse_others(f"a table of {rows} rows, {content % 2**64:x}".encode(), 0)
        self.publish(messages, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task or the commit failed."""
        self.give_up(messages, 0)


def files_of(messages: list[WriterCommitMessage | None]) -> list[StagedFile]:
    """What the tasks left."""
    return [each.file for each in messages if isinstance(each, Staged)]


def read_manifest(manifest: Path) -> list[StagedFile]:
    """The files that were decided to be a batch."""
    try:
        return msgspec.json.decode(manifest.read_bytes(), type=list[StagedFile])
    except UNREADABLE as error:
        raise PipelineError(
            f"{manifest}: no list of files ({error}); remove it if the query is to stage the batch "
            "anew"
        ) from None


def no_link(path: str, flags: int) -> int:
    """For ``open``: a file that lies where its name says."""
    return os.open(path, flags | os.O_NOFOLLOW)
