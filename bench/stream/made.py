"""Journals made up to be read, and the same rows as Parquet."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ringcast.core.ids import START, Level, Position, ViewId
from ringcast.journal.export import FILE_BYTES
from ringcast.journal.format import layout
from ringcast.journal.format.frame import Range
from ringcast.journal.format.layout import MESSAGE, Entry, view_entry
from ringcast.journal.merged_reader import MergedReader
from ringcast.journal.writer import Journal
from ringcast.pipeline.stream.source import HIDDEN

RING = ViewId(8, 1)
MEMBERS = (1, 2, 3)
TOGETHER_BYTES = 40_000
"""Bodies that left in one message of the ring, and"""
FRAME_BYTES = 1_600_000
"""those that were written together: so the journals of ``ringcast bench live --journal`` have them,
409 bodies of 100 B in a message and 15,090 in a frame."""
EPOCH_US = 1_700_000_000_000_000


def bodies(first: int, count: int, size: int) -> tuple[bytes, ...]:
    """Orders as JSON, each different, each of ``size`` bytes."""
    start, end = b'{"order":%d,"customer":%d,"amount":%d,"note":"', b'"}'
    found = []
    for number in range(first, first + count):
        head = start % (number, number * 7919 % 100_003, number * 31 % 9973)
        at = number * STRIDE % (len(NOTES) - size)
        found.append(head + NOTES[at : at + size - len(head) - len(end)] + end)
    return tuple(found)


def text(size: int) -> bytes:
    """So many bytes of words, drawn from 2,000: snappy makes two thirds of it."""
    draw = random.Random(5)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(2000)]
    return " ".join(draw.choices(words, k=size // 3)).encode()[:size]


NOTES = text(2**22)
STRIDE = 1_000_003
"""From one note to the next: so far that neighbours do not overlap, as no real ones do. A
compressor would find it, and Parquet would have next to nothing to read."""


def entries(first: int, count: int, size: int) -> Iterator[Entry]:
    """The records of one frame."""
    together = TOGETHER_BYTES // size
    for at in range(first, first + count, together):
        some = bodies(at, min(together, first + count - at), size)
        number = at // together
        yield layout.entry(
            Position(0, RING.seq, RING.rep, number + 1, 0), RING, MESSAGE, MEMBERS[number % 3],
            Level.AGREED, "orders", (), some, EPOCH_US + number,
        )  # fmt: skip


def write_journal(folder: Path, records: int, size: int) -> None:
    """A journal of so many messages of so many bytes."""
    journal = Journal(folder)
    journal.append([view_entry(Position.at(RING, 0), RING, MEMBERS, False, EPOCH_US)])
    step = FRAME_BYTES // TOGETHER_BYTES * (TOGETHER_BYTES // size)
    for first in range(0, records, step):
        journal.append(list(entries(first, min(step, records - first), size)))
    journal.close()


def write_parquet(journal: Path, folder: Path) -> None:
    """The same rows and columns as Parquet, in files as Spark likes them: of 128 MiB, snappy."""
    reader = MergedReader([journal])
    folder.mkdir()
    some: list[Any] = []
    for batch in reader.within(Range(START, reader.last)):
        some.append(batch.drop_columns([HIDDEN]))
        if sum(each.nbytes for each in some) >= FILE_BYTES:
            write_file(folder, some)
            some = []
    if some:
        write_file(folder, some)


def write_file(folder: Path, batches: list[Any]) -> None:
    """One file."""
    name = folder / f"{len(list(folder.iterdir())):05}.parquet"
    pq.write_table(pa.Table.from_batches(batches), name, compression="snappy")
