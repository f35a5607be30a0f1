"""Journals read as one: ranges, replicas with holes, what grows, what was trimmed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from histories import HISTORY, PLACES, SMALL, entry, kept, write
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.core.ids import START, Position, ViewId
from ringcast.journal.format.frame import Frame, Range
from ringcast.journal.format.layout import MESSAGE, VIEW, JournalError, gap_entry, view_entry
from ringcast.journal.format.segment import Head
from ringcast.journal.format.selection import EVERYTHING, Selection
from ringcast.journal.merged_reader import MergedReader, Span, whole
from ringcast.journal.reader import JournalReader, SegmentReader
from ringcast.journal.writer import Journal, Limits, commit


def places(batches: object) -> list[Position]:
    return [Position(**row) for batch in batches for row in batch.column("position").to_pylist()]  # type: ignore[attr-defined]


chosen = st.lists(st.booleans(), min_size=len(HISTORY), max_size=len(HISTORY))
cuts = st.lists(st.integers(0, len(HISTORY)), max_size=12)

CHOICES = (
    (EVERYTHING, lambda place: True),
    (Selection(views=False), lambda place: place.seq > 0),
    (Selection(group="g"), lambda place: True),
    (Selection(group="none"), lambda place: place.seq == 0),
    (Selection(kinds=(VIEW,)), lambda place: place.seq == 0),
    (Selection(kinds=(MESSAGE, "other"), groups=("none", "g")), lambda place: place.seq > 0),
    (Selection(groups=("",)), lambda place: place.seq == 0),
    (Selection(places={"seq": (2, 4)}), lambda place: 2 <= place.seq <= 4),
    (Selection(places={"ring_seq": (12, 12), "ring_rep": (2, 9)}), lambda p: p[1:3] == (12, 2)),
    (Selection(places={"timestamp": (1, 9)}), lambda place: False),
)
"""And which places of the history are wanted by it."""


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(chosen, cuts), min_size=1, max_size=3), st.data())
def test_replicas_are_merged_each_place_once(
    replicas: list[tuple[list[bool], list[int]]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        folders = [Path(folder) / str(at) for at in range(len(replicas))]
        union: set[Position] = set()
        for path, (keep, cut) in zip(folders, replicas, strict=True):
            mine = [each for each, wanted in zip(HISTORY, keep, strict=True) if wanted]
            write(path, mine, cut)
            union |= {e.first._replace(index=i) for e in mine for i in range(len(e.lengths))}
        assert places(whole(folders)) == sorted(union)
        after, upto = (data.draw(st.sampled_from(PLACES)) for _ in range(2))
        span = Range(after, upto)
        found = places(MergedReader(folders).within(span))
        assert found == sorted(p for p in union if after < p <= upto)
        journal = JournalReader(folders[0])
        mine_only = places(MergedReader(folders[:1]).within(span))
        assert len(mine_only) == (journal.count(span) if after < upto else 0)
        reader = MergedReader(folders)
        new = Span(reader.marks(after), reader.marks(max(after, upto)))
        assert places(reader.batches(new)) == found
        rows = data.draw(st.integers(1, 20))
        some = places(reader.batches(Span(new.start, reader.after_rows(new, rows))))
        assert some == found[: len(some)]
        assert some or not found, "there is always progress"
        assert len(some) <= rows or len(folders) > 1, "exact, but for what only another has"
        parts = reader.split(new, data.draw(st.integers(1, 5000)))
        assert [place for part in parts for place in places(reader.batches(part))] == found
        wanted, means = data.draw(st.sampled_from(CHOICES))
        found = list(filter(means, found))
        assert places(reader.batches(new, wanted)) == found
        if wanted != EVERYTHING:
            marks = reader.after_rows(new, rows, wanted)
            assert places(reader.batches(Span(new.start, marks), wanted)) == found[:rows]
            if len(found) < rows:
                assert marks == new.end, "what is not wanted is passed by"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(chosen, cuts), min_size=2, max_size=3), st.data())
def test_however_journals_grow_each_record_is_read_once(
    replicas: list[tuple[list[bool], list[int]]], data: st.DataObject
) -> None:
    """They grow at different speeds, with records before those that others had long ago."""
    with TemporaryDirectory() as folder:
        folders = [Path(folder) / str(at) for at in range(len(replicas))]
        histories = [
            [each for each, wanted in zip(HISTORY, keep, strict=True) if wanted]
            for keep, _ in replicas
        ]
        for path in folders:
            write(path, [], [])
        reader, found = MergedReader(folders), []
        marks = reader.ends
        while any(histories):
            for path, history in zip(folders, histories, strict=True):
                some = data.draw(st.integers(0, 12))
                write(path, history[:some], [some // 2])
                del history[:some]
            reader.refresh()
            span = Span(marks, reader.ends)
            rows = data.draw(st.integers(1, 30))
            wanted, means = data.draw(st.sampled_from(CHOICES))
            marks = reader.after_rows(span, rows, wanted)
            batch = places(reader.batches(Span(span.start, marks)))
            chosen = list(filter(means, batch))
            assert places(reader.batches(Span(span.start, marks), wanted)) == chosen
            assert wanted == EVERYTHING or len(chosen) == rows or marks == span.end
            parts = reader.split(Span(span.start, marks), data.draw(st.integers(1, 3000)))
            assert [p for part in parts for p in places(reader.batches(part))] == batch
            found += batch
        found += places(reader.batches(Span(marks, reader.ends)))
        assert len(found) == len(set(found)), "each once"
        assert sorted(found) == places(whole(folders)), "and none left out"


def part_ways(folder: Path) -> tuple[Journal, Journal]:
    """Two journals of one ring, each on its own from there on."""
    journals = Journal(folder / "1", SMALL), Journal(folder / "2", SMALL)
    for journal, (view, members, tail) in zip(
        journals,
        ((ViewId(10, 1), (1,), [1, 2]), (ViewId(10, 2), (2,), [2, 3])),
        strict=True,
    ):
        ring = [each for each in HISTORY if each.first.ring_seq == 8]
        journal.append(ring)
        journal.append([view_entry(ring[-1].last.end(view.rep), view, members, True, 0)])
        last = ring[-1].first.seq
        for seq in tail:  # each delivers what it has of the end of the ring
            place = Position(0, 8, 1, last + seq, 0)
            body = b"%d" % seq
            journal.append([entry(seq, body)._replace(first=place, view=view)])
        journal.sync()
    return journals


def test_the_end_of_a_ring_is_merged_from_both_sides(tmp_path: Path) -> None:
    """What both delivered there is one message, but their configurations are two."""
    one, two = part_ways(tmp_path)
    one.close()
    two.close()
    rows = [row for batch in whole([tmp_path / "1", tmp_path / "2"]) for row in batch.to_pylist()]
    ends = [(row["kind"], row["view"]["rep"], row["body"]) for row in rows[-5:]]
    assert ends[:2] == [("transitional", 1, b""), ("transitional", 2, b"")]
    assert [body for _, _, body in ends[2:]] == [b"1", b"2", b"3"]
    reader = MergedReader([tmp_path / "1", tmp_path / "2"])
    middle = (reader.ends[0], START)
    first = places(reader.batches(Span(reader.begins, middle)))
    then = [row for b in reader.batches(Span(middle, reader.ends)) for row in b.to_pylist()]
    assert [(row["kind"], row["body"]) for row in then] == [
        ("transitional", b""),
        ("message", b"3"),
    ]
    assert len(first) + len(then) == len(rows)


def kept_by(folder: Path, journal: Journal) -> None:
    """Trim all but the last segment."""
    journal.rotate()
    journal._limits = Limits(segment_bytes=SMALL.segment_bytes, keep_bytes=1)
    assert journal.trim()


def test_trimmed_records_that_another_had_are_not_read_again_or_missed(tmp_path: Path) -> None:
    folders = [tmp_path / "1", tmp_path / "2"]
    one, two = Journal(folders[0], SMALL), Journal(folders[1], SMALL)
    one.append(HISTORY[:13])
    one.sync()
    reader = MergedReader(folders)
    marks = reader.ends
    kept_by(folders[0], one)
    two.append(HISTORY[:13])  # it was away, and has been told by somebody else
    two.append([each for each in HISTORY[13:] if each.first.ring == ViewId(12, 2)])
    two.sync()
    reader.refresh()
    span = Span(marks, reader.ends)
    reader.check(span.start)
    assert places(reader.batches(span)) == [p for p in PLACES if p.ring == ViewId(12, 2)]
    kept_by(folders[1], two)
    with pytest.raises(JournalError, match="are gone"):  # only this one had the end of it
        MergedReader(folders).check(span.start)
    one.close()
    two.close()


def test_what_one_trimmed_unread_another_must_have_in_the_same_configuration(
    tmp_path: Path,
) -> None:
    one, two = part_ways(tmp_path)
    marks = MergedReader([tmp_path / "1", tmp_path / "2"]).begins
    MergedReader([tmp_path / "1", tmp_path / "2"]).check(marks)
    kept_by(tmp_path / "1", one)
    with pytest.raises(JournalError, match="/1: the records after"):
        MergedReader([tmp_path / "1", tmp_path / "2"]).check(marks)
    three = Journal(tmp_path / "3", SMALL)
    for each in JournalReader(tmp_path / "2").frames(Range(START, PLACES[-1])):
        three.take(each)
    three.sync()
    kept_by(tmp_path / "3", three)
    MergedReader([tmp_path / "2", tmp_path / "3"]).check(marks)
    for journal in (one, two, three):
        journal.close()


def test_it_is_said_when_nobody_knows_whether_a_record_was_read(tmp_path: Path) -> None:
    one, two = part_ways(tmp_path)
    one.append([HISTORY[14]])
    one.sync()
    reader = MergedReader([tmp_path / "1"])
    read = reader.ends
    kept_by(tmp_path / "1", one)
    both = MergedReader([tmp_path / "1", tmp_path / "2"])
    with pytest.raises(JournalError, match="may have been read before"):
        list(both.batches(Span((*read, START), both.ends)))
    one.close()
    two.close()


def test_only_so_many_configurations_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringcast.journal.writer.MOST_PAST", 1)
    write(tmp_path, HISTORY, [3, 9, 14, 20])
    journal = Journal(tmp_path, SMALL)
    kept_by(tmp_path, journal)
    (known,) = journal.trimmed.past
    assert known[0] == ViewId(16, 1) and journal.trimmed.unknown == PLACES[-1]._replace(
        ring_seq=12, ring_rep=2, seq=6, index=0
    )
    assert journal.trimmed.had(ViewId(8, 1), PLACES[1]) is None
    journal.close()


def test_a_gap_is_seen_and_filled_from_another(tmp_path: Path) -> None:
    away, other = Journal(tmp_path / "1", SMALL), Journal(tmp_path / "2", SMALL)
    other.append(HISTORY)
    other.sync()
    away.append(HISTORY[:6])
    gap = gap_entry(HISTORY[20].first, "nobody knows", 0)
    away.take(kept([gap, *HISTORY[20:]]))
    away.sync()
    journal = JournalReader(tmp_path / "1")
    assert journal.gaps == [Range(HISTORY[5].last, gap.first)] and journal.trimmed == gap.first
    alone = MergedReader([tmp_path / "1"])
    with pytest.raises(JournalError, match="are gone"):
        alone.check((HISTORY[3].last,))
    assert [row["kind"] for b in alone.within(Range(START, alone.last)) for row in b.to_pylist()
            ].count("gap") == 1  # fmt: skip
    both = MergedReader([tmp_path / "1", tmp_path / "2"])
    both.check(both.marks(START))
    assert places(whole([tmp_path / "1", tmp_path / "2"])) == PLACES
    assert places(both.batches(Span(both.marks(START), both.ends))) == PLACES
    late = Journal(tmp_path / "3", SMALL)
    for each in alone.frames(Range(START, alone.last)):
        late.take(each)
    late.close()
    assert JournalReader(tmp_path / "3").gaps == journal.gaps, (
        "what is told of a gap is a gap again"
    )
    assert late.chain == away.chain
    away.close()
    other.close()


def test_so_many_records_further(tmp_path: Path) -> None:
    write(tmp_path, HISTORY, [3, 9, 20])
    journal = JournalReader(tmp_path)
    for start in (-1, 0, 7, 30, len(PLACES) - 1):
        after = PLACES[start] if start >= 0 else START
        for rows in (1, 2, 10, 1000):
            assert journal.after_rows(after, rows) == PLACES[min(start + rows, len(PLACES) - 1)]


def test_a_reader_sees_what_is_written_later(tmp_path: Path) -> None:
    journal = Journal(tmp_path, SMALL)
    journal.append(HISTORY[:3])
    assert JournalReader(tmp_path).first is None, "only what is on disk is seen"
    journal.sync()
    reader = JournalReader(tmp_path)
    before = reader.last
    for each in HISTORY[3:]:
        journal.append([each])
    journal.sync()
    assert reader.last == before
    reader.refresh()
    assert reader.last == PLACES[-1]
    assert places(MergedReader([reader.folder]).within(Range(START, reader.last))) == PLACES
    journal.close()


def test_what_was_trimmed_is_said_and_never_skipped(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Limits(segment_bytes=1, keep_bytes=1))
    for each in HISTORY:
        journal.append([each])
    journal.sync()
    commit(tmp_path, "reader", PLACES[10])
    assert journal.trim()
    reader = MergedReader([tmp_path])
    with pytest.raises(JournalError, match="were trimmed"):
        reader.check((START,))
    reader.check(reader.begins)
    assert places(reader.batches(Span(reader.begins, reader.ends))) == [
        place for place in PLACES if place > reader.trimmed
    ]
    journal.close()


def test_a_reader_that_comes_while_it_is_trimmed_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says where it begins, then looks at what is gone; the node says what will be gone, then
    looks for readers."""
    journal = Journal(tmp_path, Limits(segment_bytes=1, keep_bytes=1))
    for each in HISTORY:
        journal.append([each])
    journal.sync()
    note = Journal.note

    def interrupted(self: Journal, name: str, value: object) -> None:
        commit(tmp_path, "new", PLACES[3])
        note(self, name, value)

    monkeypatch.setattr(Journal, "note", interrupted)
    journal.trim()
    reader = MergedReader([tmp_path])
    assert reader.trimmed <= PLACES[3]
    assert places(reader.batches(Span(reader.begins, reader.ends)))[-1] == PLACES[-1]
    assert Journal.trim(journal) == 0
    journal.close()


def test_frames_without_anything_wanted_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, HISTORY, list(range(len(HISTORY))))
    read, seen = SegmentReader.read, []

    def counted(self: SegmentReader, head: Head, check: bool = True) -> Frame:
        seen.append(head.first)
        return read(self, head, check)

    monkeypatch.setattr(SegmentReader, "read", counted)
    reader = MergedReader([tmp_path])
    wanted = Selection(places={"ring_seq": (16, 16), "seq": (3, 5)})
    found = places(reader.batches(Span(reader.begins, reader.ends), wanted))
    assert found == [place for place in PLACES if place.ring_seq == 16 and 3 <= place.seq <= 5]
    assert len(seen) == 3


def test_no_journal_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="not a journal"):
        JournalReader(tmp_path / "nowhere")
    with pytest.raises(JournalError, match="no journal is named"):
        MergedReader([])
