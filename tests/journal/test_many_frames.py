"""Journals of very many small frames: what they take of memory and descriptors has a bound."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from histories import entries
from xxhash import xxh3_64_digest

from ringcast.core.ids import START
from ringcast.journal.check import examine
from ringcast.journal.export import export
from ringcast.journal.format.frame import Range
from ringcast.journal.format.layout import JournalError
from ringcast.journal.format.segment import HEAD_BYTES, INDEX, INDEX_START, MAGIC
from ringcast.journal.merged_reader import MergedReader, whole
from ringcast.journal.reader import JournalReader
from ringcast.journal.writer import Journal, Limits, commit, readers, segment_names

FRAMES = 12_000
"""Their heads take 2.2 MiB in the files, and five times as much as objects."""

LITTLE = 2**20
"""Bytes that a reader or a writer may take for them."""

LIMITS = Limits(segment_bytes=2**18)


@contextmanager
def taking_little() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < LITTLE
    finally:
        tracemalloc.stop()


def one_by_one(folder: Path, count: int, limits: Limits = LIMITS) -> None:
    """So many frames of one record each; the last segment is not sealed."""
    journal = Journal(folder, limits)
    each, *_ = entries(0)
    for seq in range(count):
        journal.append([each._replace(first=each.first._replace(seq=seq))])
    journal.close()


@pytest.fixture(scope="module", params=[LIMITS, Limits()], ids=["sealed", "growing"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("journal")
    one_by_one(folder, FRAMES, request.param)
    return folder


def test_a_question_takes_no_memory_for_the_heads_of_all_frames(folder: Path) -> None:
    next(whole([folder]))  # what is imported for it
    with taking_little():  # what a node does to answer a Look, a Seek and an Ask
        reader = MergedReader([folder])
        (journal,) = reader.journals
        place = journal.after_rows(START, FRAMES // 2)
        assert journal.digest(place)
        assert journal.count(Range(place, journal.last)) == FRAMES // 2
        span = Range(place, journal.after_rows(place, 50))
        assert sum(batch.num_rows for batch in reader.within(span)) == 50


@pytest.mark.parametrize("limits", [LIMITS, Limits()], ids=["sealed", "growing"])
def test_a_node_takes_no_memory_for_the_heads_of_all_frames(tmp_path: Path, limits: Limits) -> None:
    with taking_little():
        one_by_one(tmp_path, FRAMES // 3, limits)
    with taking_little():
        journal = Journal(tmp_path, limits)
        assert journal.number == FRAMES // 3
        journal.close()


def test_a_reader_has_few_files_open(tmp_path: Path) -> None:
    one_by_one(tmp_path, 120, Limits(segment_bytes=500))
    assert len(segment_names(tmp_path)) == 60
    before = len(os.listdir("/dev/fd"))
    reader = MergedReader([tmp_path, tmp_path])
    rows = 0
    for batch in reader.within(Range(START, reader.last)):
        rows += batch.num_rows
        assert len(os.listdir("/dev/fd")) < before + 20
    assert rows == 120


def sealed(folder: Path) -> Path:
    """The first segment of a small journal, which has an index."""
    one_by_one(folder, 20, Limits(segment_bytes=2000))
    first, *_ = segment_names(folder)
    assert first.with_suffix(INDEX).exists()
    return first


def test_an_index_of_no_heads_with_a_right_checksum_is_refused(tmp_path: Path) -> None:
    index = sealed(tmp_path).with_suffix(INDEX)
    packed = bytearray(index.read_bytes()[INDEX_START:])
    packed[HEAD_BYTES : HEAD_BYTES + 4] = b"none"
    index.write_bytes(MAGIC + xxh3_64_digest(packed) + packed)
    with pytest.raises(JournalError, match=f"{index.name}: damaged at byte"):
        list(whole([tmp_path]))


@pytest.mark.parametrize("damaged", [False, True])
def test_an_index_that_is_lost_under_a_reader_is_missed(tmp_path: Path, damaged: bool) -> None:
    index = sealed(tmp_path).with_suffix(INDEX)
    reader = JournalReader(tmp_path)
    if damaged:
        index.write_bytes(index.read_bytes()[:-1])
    else:
        index.unlink()
    with pytest.raises(JournalError, match="lost meanwhile; read the journal again"):
        reader.count(Range(START, reader.last))
    reader.refresh()
    assert reader.count(Range(START, reader.last)) == 20
    assert sum(map(len, reader.frames(Range(START, reader.last)))) == 20


def test_a_segment_that_is_sealed_under_a_reader_is_read_by_its_index(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    some = entries(9)
    journal.append(some[:5])
    journal.append(some[5:7])
    journal.sync()
    reader = JournalReader(tmp_path)
    first = Range(START, reader.last)
    assert (reader.count(first), len(list(reader.heads_after()))) == (13, 2)
    journal.rotate()
    journal.append(some[7:])
    journal.close()
    reader.refresh()
    assert (reader.count(first), len(list(reader.heads_after()))) == (13, 3)
    assert reader.last == some[-1].last and sum(map(len, reader.frames(first))) == 7


def test_a_folder_may_be_a_string(tmp_path: Path) -> None:
    name = str(tmp_path / "journal")
    journal = Journal(name)
    journal.append(entries(5))
    journal.close()
    commit(name, "reader", journal.last)
    assert JournalReader(name).last == readers(name)["reader"]
    assert sum(batch.num_rows for batch in whole([name])) == journal.number
    assert [report.records for report in examine(name)] == [journal.number]
    assert export([name], str(tmp_path / "out")) == journal.number
