"""The journal on disk: order, rotation, trimming, torn ends, damage, a full disk, lost power."""

from __future__ import annotations

import errno
import os
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from histories import RING, damage, entries, entry, kept, written
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.core.ids import LAST_INDEX, START, Level, Position, ViewId
from ringcast.files.disk import Disk
from ringcast.journal import writer
from ringcast.journal.check import examine
from ringcast.journal.durable import DURABLE, mark
from ringcast.journal.format import layout, message
from ringcast.journal.format.frame_writer import link
from ringcast.journal.format.layout import NO_CHAIN, JournalError, view_entry
from ringcast.journal.format.records import records
from ringcast.journal.format.segment import HEAD_BYTES, SegmentFile, read_index
from ringcast.journal.reader import JournalReader
from ringcast.journal.writer import Journal, Limits, commit, readers, segment_names
from ringcast.wire.envelope import MOST_ROWS


def places(folder: Path) -> list[Position]:
    found = []
    for path in segment_names(folder):
        file = SegmentFile(path)
        for head in read_index(path) or file.heads():
            rows = records(file.read(head)).column("position").to_pylist()
            found += [Position(**row) for row in rows]
    return found


SMALL = Limits(segment_bytes=3000)


def filled(folder: Path, count: int = 20, limits: Limits = SMALL) -> Journal:
    journal = Journal(folder, limits)
    for each in entries(count):
        journal.append([each])
    journal.sync()
    return journal


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(
        [view_entry(Position.at(RING, 0), RING, (1, 2, 3), False, 5), entry(1, b"x", b"", b"zz")]
    )
    journal.append([entry(2, b"safe", level=Level.SAFE)])
    end = Position(0, 8, 1, 2, 0)
    journal.append([view_entry(end.end(1), ViewId(10, 1), (1, 2), True, 9)])
    journal.close()
    (path,) = segment_names(tmp_path)
    file = SegmentFile(path)
    rows = [row for head in file.heads() for row in records(file.read(head)).to_pylist()]
    assert [row["kind"] for row in rows] == ["view", *["message"] * 4, "transitional"]
    assert [row["body"] for row in rows] == [b"", b"x", b"", b"zz", b"safe", b""]
    assert [row["members"] for row in rows] == [[1, 2, 3], [], [], [], [], [1, 2]]
    assert [row["position"]["index"] for row in rows] == [0, 0, 1, 2, 0, LAST_INDEX]
    assert (rows[4]["level"], rows[4]["group"], rows[4]["sender"]) == ("safe", "orders", 2)
    position = rows[5]["position"]
    assert rows[5]["view"] == {"seq": 10, "rep": 1}
    assert (position["ring_seq"], position["ring_rep"]) == (8, 1)
    assert places(tmp_path) == sorted(places(tmp_path))


def test_opening_again_goes_on_where_it_ended(tmp_path: Path) -> None:
    one = filled(tmp_path / "a", 40)
    assert len(one.segments) > 3
    one.close()
    two = Journal(tmp_path / "a", Limits(segment_bytes=3000))
    assert (two.number, two.last, two.cut_bytes) == (81, Position(0, 8, 1, 40, 1), 0)
    two.append([entry(41, b"more")])
    two.close()
    whole = filled(tmp_path / "b", 40, Limits())
    whole.append([entry(41, b"more")])
    assert two.chain == whole.chain, "however it was cut into frames, segments and lives"
    assert places(tmp_path / "a") == places(tmp_path / "b")
    whole.close()


def content(group: str, old: layout.Entry, more: bytes = b"") -> dict[str, Any]:
    """Of an entry for a group, with the same bodies but for something at the end."""
    bodies = [*msgspec.msgpack.decode(old.data)[2], *([more] if more else [])]
    data = message.message(group, bodies)
    return {"data": data, "digest": message.digest(data), "lengths": array("i", map(len, bodies))}


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_the_chain_does_not_depend_on_batches_and_tells_every_change(
    sizes: list[int], data: st.DataObject
) -> None:
    parts = [entry(seq, *[b"%d" % n for n in range(size)]) for seq, size in enumerate(sizes, 1)]
    parts.insert(
        data.draw(st.integers(0, len(parts))),
        view_entry(Position.at(RING, 0), RING, (1, 2), False, 0),
    )
    chain = link(NO_CHAIN, written(parts).values)
    by_part = NO_CHAIN
    for each in parts:
        by_part = link(by_part, written([each]).values)
    assert by_part == chain
    assert link(NO_CHAIN, kept(parts).values()) == chain, "as a reader calculates it"
    at = data.draw(st.integers(0, len(parts) - 1))
    old = parts[at]
    change: dict[str, Any] = data.draw(
        st.sampled_from(
            [
                {"sender": 9},
                {"level": Level.SAFE},
                {"group": "other", **content("other", old)},
                {"view": ViewId(10, 1)},
                content(old.group, old, b"x"),
                {"first": old.first._replace(index=7)},
                {"kind": layout.TRANSITIONAL},
                {"members": (1, 2, 7)},
            ]
        )
    )
    parts[at] = old._replace(**change)
    assert link(NO_CHAIN, written(parts).values) != chain
    parts[at] = old._replace(time_us=0)
    assert link(NO_CHAIN, written(parts).values) == chain, "the time is each node's own"


@pytest.mark.parametrize("lost", [1, 63, HEAD_BYTES, HEAD_BYTES + 70, 500])
def test_a_torn_end_is_cut_and_said_so(tmp_path: Path, lost: int) -> None:
    filled(tmp_path, limits=Limits()).close()
    (path,) = segment_names(tmp_path)
    before = places(tmp_path)
    os.truncate(path, path.stat().st_size - lost)
    (tmp_path / DURABLE).write_bytes(mark(path, 0))  # none of it was synced
    journal = Journal(tmp_path)
    assert journal.cut_bytes > 0
    found = places(tmp_path)
    assert found == before[: len(found)] and len(found) < len(before)
    journal.append([entry(99, b"goes on")])
    journal.close()
    Journal(tmp_path).close()


@pytest.mark.parametrize("left", ["nothing", "a frame less", "half a frame"])
def test_a_file_that_was_cut_below_what_was_on_disk_is_refused(tmp_path: Path, left: str) -> None:
    """What is missing was acknowledged as durable; no loss of power takes it away."""
    filled(tmp_path, limits=Limits()).close()
    (path,) = segment_names(tmp_path)
    *_, before, last = SegmentFile(path).heads()
    size = {"nothing": 0, "a frame less": before.end, "half a frame": last.end - 20}[left]
    os.truncate(path, size)
    with pytest.raises(JournalError, match=f"{path.name}: damaged at byte .*restore the file"):
        Journal(tmp_path)
    assert path.stat().st_size == size
    *_, report = examine(tmp_path)
    assert report.findings


def test_a_torn_end_of_garbage_is_cut(tmp_path: Path) -> None:
    filled(tmp_path, limits=Limits()).close()
    (path,) = segment_names(tmp_path)
    with path.open("ab") as file:
        file.write(b"RcJ1" + bytes(200))
    journal = Journal(tmp_path)
    assert journal.cut_bytes == 204
    journal.close()


@pytest.mark.parametrize("at", [2, 40, HEAD_BYTES + 20, HEAD_BYTES + 130])
def test_damage_before_the_end_is_refused_by_name(tmp_path: Path, at: int) -> None:
    filled(tmp_path, limits=Limits()).close()
    (path,) = segment_names(tmp_path)
    damage(path, at)
    with pytest.raises(JournalError, match=f"{path.name}: damaged at byte 0"):
        Journal(tmp_path)


def test_a_journal_of_another_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    filled(tmp_path, limits=Limits()).close()
    (path,) = segment_names(tmp_path)
    before = path.read_bytes().replace(b"RcJ4", b"RcJ3")
    path.write_bytes(before)
    with pytest.raises(JournalError, match=rf"{path.name}: written by another version"):
        Journal(tmp_path)
    with pytest.raises(JournalError, match=rf"{path.name}: written by another version"):
        JournalReader(tmp_path)
    assert path.read_bytes() == before


def test_damage_in_a_sealed_segment_is_refused_when_it_is_read(tmp_path: Path) -> None:
    filled(tmp_path, 40).close()
    first = segment_names(tmp_path)[0]
    damage(first, HEAD_BYTES + 200)
    Journal(tmp_path, Limits(segment_bytes=3000)).close()  # opening reads no records
    with pytest.raises(JournalError, match=rf"{first.name}: the records from \(8,1\):"):
        places(tmp_path)


def test_a_missing_segment_is_noticed(tmp_path: Path) -> None:
    filled(tmp_path, 40).close()
    segment_names(tmp_path)[1].unlink()
    with pytest.raises(JournalError, match="a segment before it is missing"):
        Journal(tmp_path)


def test_an_index_that_is_lost_or_damaged_is_made_again(tmp_path: Path) -> None:
    filled(tmp_path, 40).close()
    indexes = sorted(tmp_path.glob("*.index"))
    before = indexes[0].read_bytes()
    indexes[0].unlink()
    damage(indexes[1], 50)
    journal = Journal(tmp_path, Limits(segment_bytes=3000))
    assert (journal.number, indexes[0].read_bytes()) == (81, before)
    journal.close()


def test_trimming_waits_for_readers(tmp_path: Path) -> None:
    journal = filled(tmp_path, 60, Limits(segment_bytes=1000, keep_bytes=1))
    commit(tmp_path, "spark", Position(0, 8, 1, 20, 1))
    end = journal.segments[1].end
    assert end
    commit(tmp_path, "slow", end.last)
    sizes = len(journal.segments)
    assert journal.trim() == 2 and journal.trim() == 0
    commit(tmp_path, "slow", journal.last)
    assert journal.trim() > 0
    assert 1 <= len(journal.segments) < sizes - 2
    number, last, chain = journal.number, journal.last, journal.chain
    journal.close()
    again = Journal(tmp_path, Limits(segment_bytes=3000))
    assert (again.number, again.last, again.chain) == (number, last, chain)
    assert again.trimmed.place < places(tmp_path)[0]
    again.close()


def test_a_silent_reader_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    journal = filled(tmp_path, 60, Limits(segment_bytes=1000, keep_bytes=1))
    commit(tmp_path, "gone", START)
    path = tmp_path / "readers" / "gone.json"
    assert journal.trim() == 0
    os.utime(path, (path.stat().st_mtime - 8 * 86_400,) * 2)
    assert journal.trim() > 0
    journal.close()
    asked = Journal(tmp_path, Limits(keep_bytes=1, reader_s=0))
    asked.append([entry(99, b"x")])
    asked.rotate()
    assert asked.trim() == 0, "unless that was asked for"
    asked.close()


def test_a_clock_that_jumps_makes_nothing_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = filled(tmp_path, 60, Limits(segment_bytes=3000, keep_s=3600))
    now_s = time.time()
    for jump_s in (10 * 365 * 86_400, -10 * 365 * 86_400):
        monkeypatch.setattr("time.time", lambda jump_s=jump_s: now_s + jump_s)
        before = len(journal.segments)
        journal.append([entry(61 + (jump_s < 0), b"x")])
        assert journal.trim() == 0 and len(journal.segments) <= before + 1
    monkeypatch.undo()
    later_s = time.monotonic() + 4000
    monkeypatch.setattr("time.monotonic", lambda: later_s)
    assert journal.trim() > 0
    journal.close()


def test_a_mark_that_is_removed_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever removes one need not stop the node, which looks at all of them to trim."""
    place = Position(0, 8, 1, 1, 0)
    commit(tmp_path, "gone", place)
    commit(tmp_path, "here", place)
    glob = Path.glob

    def slow(folder: Path, pattern: str) -> list[Path]:
        found = list(glob(folder, pattern))
        (folder / "gone.json").unlink()
        return found

    monkeypatch.setattr(Path, "glob", slow)
    assert readers(tmp_path) == {"here": place}


def test_readers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member could make as many as its disk takes, and have each of them looked at."""
    monkeypatch.setattr(writer, "MOST_READERS", 3)
    for name in "abc":
        commit(tmp_path, name, START)
    with pytest.raises(JournalError, match="3 readers already"):
        commit(tmp_path, "d", START)
    commit(tmp_path, "a", Position(0, 8, 1, 1, 0))
    assert sorted(readers(tmp_path)) == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a\n", "\0", ".x", "x" * 65])
def test_names_of_readers_are_those_of_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(JournalError, match="cannot be the name of a reader"):
        commit(tmp_path, name, START)
    assert list(tmp_path.iterdir()) == []


def test_without_limits_nothing_is_trimmed(tmp_path: Path) -> None:
    journal = filled(tmp_path, 40)
    assert journal.trim() == 0
    journal.close()


class Full(Disk):
    """Takes so many bytes and no more."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, file: int, pieces: Sequence[bytes | memoryview]) -> None:
        data = b"".join(pieces)
        took, self.room = data[: self.room], max(0, self.room - len(data))
        super().write(file, [took])
        if len(took) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_said_and_nothing_before_is_lost(tmp_path: Path) -> None:
    journal = Journal(tmp_path, disk=Full(5_000))
    written = 0
    with pytest.raises(JournalError, match="No space left on device"):
        for each in entries(100):
            journal.append([each])
            written += len(each.lengths)
    journal.sync()
    assert len(places(tmp_path)) == written
    journal.close()
    again = Journal(tmp_path)
    assert again.cut_bytes == 0 and again.number == written
    again.close()


class Forgetful(Disk):
    """A sync fails once; the system throws away what it could not write, and says no more."""

    def __init__(self, good: int) -> None:
        self.good = good

    def sync(self, file: int) -> None:
        self.good -= 1
        if self.good < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(file)


def test_after_a_failed_sync_nothing_counts_as_durable(tmp_path: Path) -> None:
    """Closing synced once more, which may well succeed, and marked the lost range."""
    first, *others = entries(5)
    disk = Forgetful(1)
    journal = Journal(tmp_path, disk=disk)
    journal.append([first])
    journal.sync()
    kept = places(tmp_path)
    marked = (tmp_path / "durable").read_bytes()
    journal.append(others)
    with pytest.raises(JournalError, match="cannot sync"):
        journal.sync()
    disk.good = 99
    with pytest.raises(JournalError, match="cannot sync"):
        journal.sync()
    journal.close()
    assert (tmp_path / "durable").read_bytes() == marked
    again = Journal(tmp_path)
    assert places(tmp_path) == kept
    again.close()


@pytest.mark.parametrize("marked", [True, False])
def test_a_sync_that_fails_at_opening_takes_nothing_away(tmp_path: Path, marked: bool) -> None:
    """It cut the whole segment: all that had been acknowledged in it was gone. The mark may be an
    older one when the power has failed."""
    journal = Journal(tmp_path)
    journal.append(entries(5))
    before = (tmp_path / "durable").read_bytes()
    journal.sync()
    kept = places(tmp_path)
    os.close(journal._lock)  # the process is killed
    if not marked:
        (tmp_path / "durable").write_bytes(before)
    with pytest.raises(JournalError, match="cannot sync"):
        Journal(tmp_path, disk=Forgetful(0))
    again = Journal(tmp_path)
    assert places(tmp_path) == kept and again.last == kept[-1]
    again.close()


def test_what_lies_behind_the_mark_is_written_again_at_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync that failed before this process came may have left it in memory alone."""
    journal = Journal(tmp_path)
    first, *others = entries(5)
    journal.append([first])
    journal.sync()
    synced = journal.segments[-1].bytes
    journal.append(others)
    size = journal.segments[-1].bytes
    os.close(journal._lock)
    written: list[tuple[int, bytes]] = []
    pwrite = os.pwrite

    def noted(file: int, data: bytes, at: int) -> int:
        written.append((at, data))
        return pwrite(file, data, at)

    monkeypatch.setattr(os, "pwrite", noted)
    path = journal.segments[-1].path
    Journal(tmp_path).close()
    assert written[0] == (synced, path.read_bytes()[synced:size])


def test_all_files_are_their_owner_s_alone(tmp_path: Path) -> None:
    filled(tmp_path / "j").close()
    commit(tmp_path / "j", "reader", Position(0, 8, 1, 1, 0))
    modes = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.rglob("*") if p.is_file()}
    assert {mode for name, mode in modes.items()} == {0o600}, modes


def test_a_row_that_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    good = entries(1)[-1]
    for row in (MOST_ROWS, MOST_ROWS - len(good.lengths) + 1):
        with pytest.raises(JournalError, match="could not be read back"):
            journal.append([good._replace(source=("w", 0, row))])
    journal.append([good._replace(source=("w", 0, MOST_ROWS - len(good.lengths)))])
    journal.sync()
    assert len(places(tmp_path)) == len(good.lengths)
    journal.close()


class Volatile(Disk):
    """Forgets what was not synced when the power fails, names of files too."""

    def __init__(self) -> None:
        self.safe: dict[Path, int] = {}
        self._paths: dict[int, Path] = {}
        self._named: set[Path] = set()

    def open(self, path: Path) -> int:
        file = super().open(path)
        self._paths[file] = path
        self.safe.setdefault(path, 0)
        return file

    def sync(self, file: int) -> None:
        super().sync(file)
        self.safe[self._paths[file]] = os.fstat(file).st_size

    def sync_folder(self, folder: Path) -> None:
        super().sync_folder(folder)
        self._named |= set(folder.iterdir())

    def lose_power(self, keep: float = 0.0) -> None:
        """Some of what was not synced may be there all the same."""
        for path, size in self.safe.items():
            if path not in self._named:
                path.unlink(missing_ok=True)
            if path.exists():
                extra = path.stat().st_size - size
                os.truncate(path, size + int(extra * keep))


@pytest.mark.parametrize("more", [0, 9])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_what_was_synced_survives_a_loss_of_power(tmp_path: Path, keep: float, more: int) -> None:
    disk = Volatile()
    journal = Journal(tmp_path, Limits(segment_bytes=3000), disk)
    for each in entries(30):
        journal.append([each])
    journal.sync()
    synced = journal.number
    for seq in range(31, 31 + more):
        journal.append([entry(seq, b"not synced" * 20)])
    os.close(journal._lock)
    disk.lose_power(keep)
    again = Journal(tmp_path, Limits(segment_bytes=3000))
    assert again.number >= synced
    assert len(places(tmp_path)) == again.number
    again.close()


def test_a_folder_belongs_to_one_writer(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(JournalError, match="another node writes"):
        Journal(tmp_path)
    journal.close()


def test_records_out_of_order_are_refused(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    with pytest.raises(JournalError, match="holds another history of that ring"):
        journal.append([entry(20, b"again")])
    with pytest.raises(JournalError, match="ahead of its node, whose state_dir was lost"):
        journal.append([view_entry(Position.at(ViewId(4, 1), 0), ViewId(4, 1), (1,), False, 0)])
    journal.close()


def test_a_gap_in_the_midst_of_a_number_can_be_noted_half_way(tmp_path: Path) -> None:
    """A message may be cut between two segments that a member keeps and one it has trimmed."""
    journal = Journal(tmp_path)
    journal.append([entry(1, b"first half")])
    journal.skip(Position.at(RING, 1, 2), "nobody has it")
    journal.append([entry(1, b"second half", index=2)])
    journal.close()
    assert list(map(str, places(tmp_path))) == ["(8,1):1.0", "(8,1):1.2.gap", "(8,1):1.2"]
    (gap,) = JournalReader(tmp_path).gaps
    assert (gap.after, gap.upto.before.index) == (Position.at(RING, 1), 2)
