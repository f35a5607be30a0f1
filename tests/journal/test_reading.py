"""Journals read as one: ranges, replicas with holes, what grows, what was trimmed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from histories import HISTORY, PLACES, SMALL, write
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.journal.layout import START, JournalError, Place
from ringcast.journal.log import Journal, Limits, commit
from ringcast.journal.reading import Range, Shelf, Shelves, whole


def places(batches: object) -> list[Place]:
    return [Place(**row) for batch in batches for row in batch.column("position").to_pylist()]  # type: ignore[attr-defined]


kept = st.lists(st.booleans(), min_size=len(HISTORY), max_size=len(HISTORY))
cuts = st.lists(st.integers(0, len(HISTORY)), max_size=12)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(kept, cuts), min_size=1, max_size=3), st.data())
def test_replicas_are_merged_each_place_once(
    replicas: list[tuple[list[bool], list[int]]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        folders = [Path(folder) / str(at) for at in range(len(replicas))]
        union: set[Place] = set()
        for path, (keep, cut) in zip(folders, replicas, strict=True):
            mine = [each for each, wanted in zip(HISTORY, keep, strict=True) if wanted]
            write(path, mine, cut)
            union |= {e.first._replace(index=i) for e in mine for i in range(len(e.bodies))}
        assert places(whole(folders)) == sorted(union)
        after, upto = (data.draw(st.sampled_from(PLACES)) for _ in range(2))
        span = Range(after, upto)
        found = places(Shelves(folders).batches(span))
        assert found == sorted(p for p in union if after < p <= upto)
        shelf = Shelf(folders[0])
        mine_only = places(shelf.batches(span))
        assert len(mine_only) == (shelf.count(span) if after < upto else 0)
        shelves = Shelves(folders)
        rows = data.draw(st.integers(1, 20))
        some = places(shelves.batches(Range(after, shelves.after_rows(span, rows))))
        assert some == found[: len(some)]
        assert some or not found, "there is always progress"
        assert len(some) <= rows or len(folders) > 1, "exact, but for what only another has"
        parts = shelves.split(span, data.draw(st.integers(1, 5000)))
        assert [place for part in parts for place in places(shelves.batches(part))] == found


def test_so_many_records_further(tmp_path: Path) -> None:
    write(tmp_path, HISTORY, [3, 9, 20])
    shelf = Shelf(tmp_path)
    for start in (-1, 0, 7, 30, len(PLACES) - 1):
        after = PLACES[start] if start >= 0 else START
        for rows in (1, 2, 10, 1000):
            assert shelf.after_rows(after, rows) == PLACES[min(start + rows, len(PLACES) - 1)]


def test_a_shelf_sees_what_is_written_later(tmp_path: Path) -> None:
    journal = Journal(tmp_path, SMALL)
    journal.append(HISTORY[:3])
    assert Shelf(tmp_path).first is None, "only what is on disk is seen"
    journal.sync()
    shelf = Shelf(tmp_path)
    before = shelf.last
    for each in HISTORY[3:]:
        journal.append([each])
    journal.sync()
    assert shelf.last == before
    shelf.refresh()
    assert shelf.last == PLACES[-1]
    assert places(shelf.batches(Range(START, shelf.last))) == PLACES
    journal.close()


def test_what_was_trimmed_is_said_and_never_skipped(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Limits(segment_bytes=1, keep_bytes=1))
    for each in HISTORY:
        journal.append([each])
    journal.sync()
    commit(tmp_path, "reader", PLACES[10])
    assert journal.trim()
    shelves = Shelves([tmp_path])
    with pytest.raises(JournalError, match="were trimmed"):
        shelves.check(START)
    shelves.check(shelves.trimmed)
    assert places(shelves.batches(Range(shelves.trimmed, shelves.last))) == [
        place for place in PLACES if place > shelves.trimmed
    ]
    journal.close()


def test_no_journal_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="not a journal"):
        Shelf(tmp_path / "nowhere")
    with pytest.raises(JournalError, match="no journal is named"):
        Shelves([])
