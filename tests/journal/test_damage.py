"""One bit is not what was written, wherever it is: nobody is told anything else for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from histories import HISTORY, SMALL, write

from ringcast.journal.check import examine
from ringcast.journal.durable import DURABLE
from ringcast.journal.format.layout import JournalError
from ringcast.journal.format.segment import INDEX
from ringcast.journal.merged_reader import MergedReader, Span, whole
from ringcast.journal.reader import JournalReader
from ringcast.journal.writer import Journal, segment_names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "a", HISTORY, [2, 5, 9, 14, 20, 25])
    return tmp_path / "a"


def everything(folder: Path) -> Iterator[Any]:
    return whole([folder])


def in_parts(folder: Path) -> Iterator[Any]:
    reader = MergedReader([folder])
    for span in reader.split(Span(reader.begins, reader.ends), 300):
        yield from reader.batches(span)


def in_steps(folder: Path) -> Iterator[Any]:
    """As a query does it, a few rows at a time."""
    reader = MergedReader([folder])
    at = reader.begins
    while at != reader.ends:
        to = reader.after_rows(Span(at, reader.ends), 3)
        assert to > at and reader.journals[0].digest(to[0])
        yield from reader.batches(Span(at, to))
        at = to


WAYS = (everything, in_parts, in_steps)


def rows(batches: Iterator[Any]) -> list[Any]:
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("start", range(7))
def test_every_damage_is_refused_by_name_or_does_not_matter(
    folder: Path, number: int, start: int
) -> None:
    """Only padding does not matter."""
    path, wanted = segment_names(folder)[number], rows(everything(folder))
    assert path.with_suffix(INDEX).exists() == (number == 0)
    good = path.read_bytes()
    for at in range(start, len(good), 61):
        bad = bytearray(good)
        bad[at] ^= 1 << at % 8
        path.write_bytes(bad)
        *_, report = examine(folder)
        assert not report.torn_bytes
        if not report.findings:
            assert not good[at]
        for way in WAYS:
            if report.findings:
                with pytest.raises(JournalError, match=path.name):
                    rows(way(folder))
            else:
                assert rows(way(folder)) == wanted
        if report.findings and number == -1:
            with pytest.raises(JournalError, match=path.name):
                Journal(folder, SMALL)
            assert path.read_bytes() == bad, "what was on disk is no torn end"


@pytest.mark.parametrize("copied", [False, True])
def test_damage_of_a_segment_without_an_index_is_not_read_past(folder: Path, copied: bool) -> None:
    if copied:  # the segments alone: nobody says how much was on disk
        (folder / DURABLE).unlink()
    for path in segment_names(folder):
        good = path.read_bytes()
        path.with_suffix(INDEX).unlink(missing_ok=True)
        path.write_bytes(b"R__" + good[3:])
        with pytest.raises(JournalError, match=path.name):
            JournalReader(folder)
        path.write_bytes(good)


def test_readers_notice_that_a_segment_is_missing(tmp_path: Path) -> None:
    write(tmp_path, HISTORY, list(range(40)))
    first, second, third, *_ = segment_names(tmp_path)
    second.unlink()
    with pytest.raises(JournalError, match=f"{third.name}: begins with record .* is missing"):
        JournalReader(tmp_path)
    shutil.copy(first, second)  # whatever it is, it is not what was there
    with pytest.raises(JournalError, match=second.name):
        rows(everything(tmp_path))
