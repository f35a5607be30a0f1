"""A replica's folder: what was synced is found again, a torn end is cut, damage is an error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from ringcast.core.errors import StorageError
from ringcast.files.disk import Disk
from ringcast.replica.frames import SECTOR, DamagedFrame, frame, frames
from ringcast.replica.log import Adopt, Append, Image, Promise, Record, ReplicaLog
from ringcast.replica.store import ReplicaStore, _encode
from ringcast.replica.words import Epoch, LogEntry, Run, Ticket

FIRST = Epoch(4, 1)


def entry(number: int, size: int = 20) -> LogEntry:
    return LogEntry(FIRST, Ticket(1, 7, number), (b"%d," % number * size)[:size])


FOUNDED = Adopt(FIRST, 99, (1, 2, 3), 0, (), 0)
RECORDS: list[Record] = [
    Promise(FIRST),
    FOUNDED,
    *(Append((entry(n),), n - 1) for n in range(1, 8)),
]


def opened(folder: Path) -> list[Record]:
    store = ReplicaStore(folder, 1, "g")
    store.close()
    return store.records


def filled(folder: Path, records: Iterable[Record] = RECORDS) -> Path:
    store = ReplicaStore(folder, 1, "g")
    for record in records:
        store.append([record])
    store.close()
    return folder / "log"


def test_what_was_synced_is_found_again(tmp_path: Path) -> None:
    log = filled(tmp_path / "state")
    assert opened(tmp_path / "state") == RECORDS
    assert log.stat().st_mode & 0o777 == 0o600
    assert opened(tmp_path / "new") == []
    assert opened(tmp_path / "new") == []


def test_a_torn_end_is_cut_wherever_it_is_torn(tmp_path: Path) -> None:
    log = filled(tmp_path)
    store = ReplicaStore(tmp_path, 1, "g")
    whole = log.stat().st_size
    store.append([Append((entry(8, 2000),), 7)])
    store.close()
    data = log.read_bytes()
    for size in (*range(whole, whole + 40), *range(whole + 40, len(data), 97), len(data) - 1):
        log.write_bytes(data[:size])
        store = ReplicaStore(tmp_path, 1, "g")
        assert (store.records, store.cut, store.size) == (RECORDS, size - whole, whole)
        store.append([Promise(Epoch(8, 1))])
        store.close()
        assert opened(tmp_path) == [*RECORDS, Promise(Epoch(8, 1))]


def test_a_sector_that_was_never_written_is_a_torn_end(tmp_path: Path) -> None:
    log = filled(tmp_path)
    store = ReplicaStore(tmp_path, 1, "g")
    whole = log.stat().st_size
    store.append([Append((entry(8, 3000),), 7)])
    store.close()
    data = log.read_bytes()
    for first in range(whole // SECTOR * SECTOR, len(data), SECTOR):
        begin, end = max(whole, first), min(first + SECTOR, len(data))
        log.write_bytes(data[:begin] + bytes(end - begin) + data[end:])
        assert opened(tmp_path) == RECORDS


def test_damage_is_an_error_wherever_it_is(tmp_path: Path) -> None:
    """One bit of any byte, the last frame included: it was acknowledged."""
    log = filled(tmp_path)
    data = log.read_bytes()
    for at in range(len(data)):
        log.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(StorageError, match="damaged"):
            ReplicaStore(tmp_path, 1, "g")
        assert log.stat().st_size == len(data), "what is damaged is left alone"
    log.write_bytes(data)
    assert opened(tmp_path) == RECORDS


@pytest.mark.parametrize("room", [*range(5), *range(SECTOR - 30, SECTOR + 1)])
def test_frames_of_any_size_begin_anywhere(room: int) -> None:
    """Whatever the bytes, no sector of a frame is zeros."""
    first = frame(bytes(SECTOR - room), 0)
    for size in (*range(4), *range(SECTOR - 60, SECTOR + 3), 3 * SECTOR - 1):
        data = first + frame(bytes(size), len(first))
        assert frames(data) == ([bytes(SECTOR - room), bytes(size)], len(data))
        for begin in range(len(first) // SECTOR * SECTOR, len(data), SECTOR):
            assert any(data[max(begin, len(first)) : begin + SECTOR])


ZEROS = LogEntry(FIRST, Ticket(1, 7, 8), bytes(2000))


def test_damage_is_an_error_whatever_bytes_follow_it(tmp_path: Path) -> None:
    """A later command with more than a sector of zeros in it was taken for a torn end, and so was
    all before it from the damage on."""
    data = filled(tmp_path, [*RECORDS[:4], Append((ZEROS,), 2)]).read_bytes()
    for at in range(len(data)):
        for bit in range(8):
            spoiled = bytearray(data)
            spoiled[at] ^= 1 << bit
            with pytest.raises(DamagedFrame):
                frames(bytes(spoiled))
    (tmp_path / "log").write_bytes(spoiled)
    with pytest.raises(StorageError, match="damaged"):
        ReplicaStore(tmp_path, 1, "g")


def test_what_a_whole_frame_follows_is_no_torn_end(tmp_path: Path) -> None:
    """A disk that lost a sector of what was synced; with the last sectors of the log torn besides,
    or not."""
    data = filled(tmp_path, [*RECORDS[:2], Append((ZEROS, ZEROS), 0), *RECORDS[2:]]).read_bytes()
    torn = data + frame(_encode([Append((ZEROS,), 9)]), len(data))
    unwritten = len(data) // SECTOR * SECTOR + SECTOR
    torn = torn[:unwritten] + bytes(SECTOR) + torn[unwritten + SECTOR :]
    assert frames(torn)[1] == len(data)
    for whole in (data, torn):
        for at in range(0, len(data) - SECTOR, SECTOR):
            with pytest.raises(DamagedFrame):
                frames(whole[:at] + bytes(SECTOR) + whole[at + SECTOR :])


def test_a_log_of_another_version_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log"
    former = bytes.fromhex("1500000000000000c2b51d5d0000000000000000a86bb6f5")
    log.write_bytes(former + b"\x93\xb2ringcast replica 1\x01\xa1g")
    with pytest.raises(StorageError, match="of version 'ringcast replica 1', and this program"):
        ReplicaStore(tmp_path, 1, "g")
    head = frame(_encode(["ringcast replica 3", 1, "g"]), 0)
    log.write_bytes(head + frame(b"\x07", len(head)))
    with pytest.raises(StorageError, match=r"'ringcast replica 3', .* use the program that wrote"):
        ReplicaStore(tmp_path, 1, "g")


def test_a_record_that_is_nested_deeply_is_damage(tmp_path: Path) -> None:
    """Behind the fields that we know, where a later version has more of them."""
    log = filled(tmp_path, [])
    head = log.read_bytes()
    promise = _encode([Promise(FIRST)])
    assert promise[:2] == b"\x91\x92"
    deep = b"\x91\x93" + promise[2:] + b"\x91" * 100_000 + b"\xc0"
    log.write_bytes(head + frame(deep, len(head)))
    with pytest.raises(StorageError, match="its records are of another version"):
        ReplicaStore(tmp_path, 1, "g")


@pytest.mark.parametrize("data", [b"", b"\xff", bytes(600)])
def test_a_log_without_its_head_is_not_taken_for_a_new_one(tmp_path: Path, data: bytes) -> None:
    """It is put in its place whole, so it was lost since."""
    (tmp_path / "log").write_bytes(data)
    with pytest.raises(StorageError, match="damaged: it has no head"):
        ReplicaStore(tmp_path, 1, "g")
    assert (tmp_path / "log").read_bytes() == data


def test_compaction_keeps_what_the_log_says(tmp_path: Path) -> None:
    filled(tmp_path)
    store = ReplicaStore(tmp_path, 1, "g")
    log = ReplicaLog.replay(store.records)
    before = store.size
    for at, state in ((3, b"three"), (6, b"six" * 1000)):
        image = Image(at, state)
        store.keep(image)
        log.take(image)
        store.rewrite(log.records())
        store.append([Append((entry(log.length + 1),), at)])
        log.take(Append((entry(log.length + 1),), at))
    assert store.size < before
    store.close()
    assert vars(ReplicaLog.replay(opened(tmp_path))) == vars(log)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "log", "state-6"]
    assert (tmp_path / "state-6").stat().st_mode & 0o777 == 0o600
    (tmp_path / "state-6").write_bytes(b"sIx" * 1000)
    with pytest.raises(StorageError, match="state-6 has a wrong checksum"):
        opened(tmp_path)
    (tmp_path / "state-6").unlink()
    with pytest.raises(StorageError, match="cannot be read"):
        opened(tmp_path)


class Long(list[LogEntry]):
    """Entries, too many to be looked at one by one."""

    def __iter__(self) -> Iterator[LogEntry]:
        raise AssertionError("one by one")


def test_a_status_does_not_look_at_every_entry() -> None:
    """A thousand callers that waited in vain for a quorum, each of which is told what is lacking,
    stopped a node with 40,000 entries for six seconds."""
    log = ReplicaLog()
    log.trimmed = 7
    lengths = (3, 1, 2)
    log.entries = Long(
        LogEntry(Epoch(view, 1), Ticket(1, 7, number), b"")
        for view, length in enumerate(lengths, 4)
        for number in range(length)
    )
    assert log.status(Epoch(9, 1), (), 3, 1).runs == (
        Run(Epoch(4, 1), 8, 10),
        Run(Epoch(5, 1), 11, 11),
        Run(Epoch(6, 1), 12, 13),
    )


def test_a_state_that_no_log_names_is_void(tmp_path: Path) -> None:
    """The process was killed between the two steps of a compaction."""
    filled(tmp_path)
    store = ReplicaStore(tmp_path, 1, "g")
    store.keep(Image(5, b"five"))
    store.close()
    store = ReplicaStore(tmp_path, 1, "g")
    assert store.records == RECORDS
    store.rewrite([Image(5, b"5"), Promise(FIRST)])
    store.close()
    assert opened(tmp_path) == [Image(5, b"5"), Promise(FIRST)]


def test_two_replicas_do_not_share_a_folder(tmp_path: Path) -> None:
    store = ReplicaStore(tmp_path, 1, "g")
    with pytest.raises(StorageError, match="another replica uses"):
        ReplicaStore(tmp_path, 1, "g")
    store.close()
    with pytest.raises(StorageError, match="member 1, group 'g', not of"):
        ReplicaStore(tmp_path, 2, "g")
    with pytest.raises(StorageError, match="give each replica its own folder"):
        ReplicaStore(tmp_path, 1, "other")
    assert opened(tmp_path) == []


def test_after_a_failed_sync_nothing_counts(tmp_path: Path) -> None:
    class Failing(Disk):
        broken = False

        def sync(self, file: int) -> None:
            if self.broken:
                raise OSError(28, os.strerror(28))
            super().sync(file)

    disk = Failing()
    store = ReplicaStore(tmp_path, 1, "g", disk)
    store.append(RECORDS[:2])
    disk.broken = True
    with pytest.raises(StorageError, match="No space left"):
        store.append(RECORDS[2:3])
    disk.broken = False
    for write in (store.append, store.rewrite):
        with pytest.raises(StorageError, match="No space left"):
            write(RECORDS[3:4])
    store.close()


def test_what_a_failed_sync_left_in_memory_is_written_again(tmp_path: Path) -> None:
    """Linux counts pages whose writing failed as clean: the next sync of the file succeeds, and
    readers see them until the power fails."""

    class Forgetful(Disk):
        lost: tuple[int, int] | None = None

        def sync(self, file: int) -> None:
            if self.lost is None:
                self.lost = (os.fstat(file).st_ino, size)
                raise OSError(5, os.strerror(5))
            super().sync(file)

    filled(tmp_path)
    disk = Forgetful()
    store = ReplicaStore(tmp_path, 1, "g", disk)
    size = store.size
    with pytest.raises(StorageError, match="Input/output error"):
        store.append([Promise(Epoch(8, 1))])
    store.close()
    store = ReplicaStore(tmp_path, 1, "g", disk)
    told = store.records
    store.close()
    log = tmp_path / "log"
    if disk.lost is not None and log.stat().st_ino == disk.lost[0]:  # the power fails
        os.truncate(log, disk.lost[1])
    assert opened(tmp_path) == told


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot use the replica's folder"):
        ReplicaStore(tmp_path / "file", 1, "g")


def test_a_state_on_its_way_is_not_taken_for_an_old_one(tmp_path: Path) -> None:
    """The next state is written while the log is replaced by one that names the last."""
    store = ReplicaStore(tmp_path, 1, "g")
    under_way = tmp_path / "state-9.new"
    under_way.write_bytes(b"half")
    store.keep(Image(3, b"old"))
    store.rewrite([Image(5, b"state")])
    assert under_way.exists()
    assert sorted(path.name for path in tmp_path.glob("state-*")) == ["state-5", "state-9.new"]
    store.close()
    ReplicaStore(tmp_path, 1, "g").close()
    assert not under_way.exists()
