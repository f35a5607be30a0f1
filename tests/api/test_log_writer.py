"""A replica's records on their way to disk: what is told to be durable is, in its order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

import pytest
from loopback import run

from ringcast.api.log_writer import LogWriter
from ringcast.core.errors import StorageError
from ringcast.files.disk import Disk
from ringcast.replica.log import Adopt, Append, Image, Record, ReplicaLog
from ringcast.replica.store import ReplicaStore
from ringcast.replica.words import Epoch, LogEntry, Ticket

NOW = Epoch(4, 1)


class SlowDisk(Disk):
    """Syncs when it is let, or fails."""

    def __init__(self) -> None:
        self.let = Event()
        self.let.set()
        self.syncs = 0
        self.error: OSError | None = None

    def sync(self, file: int) -> None:
        assert self.let.wait(60)
        self.syncs += 1
        if self.error is not None:
            raise self.error
        super().sync(file)

    def replace(self, path: Path, data: bytes | memoryview, mode: int = 0o600) -> None:
        assert self.let.wait(60)
        super().replace(path, data, mode)


class Desk:
    """A log in memory and its writer; who waits for tickets."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.disk, self.log = folder, SlowDisk(), ReplicaLog()
        self.synced: list[int] = []
        self.told = asyncio.Event()
        self.errors: list[Exception] = []
        store = ReplicaStore(folder, 1, "g", self.disk)
        self.writer = LogWriter(store, self.log.records, self.on_synced, self.on_failed)
        self.disk.syncs = 0

    def on_synced(self, tickets: list[int]) -> None:
        self.synced += tickets
        self.told.set()

    def on_failed(self, error: Exception) -> None:
        self.errors.append(error)
        self.told.set()

    def write(self, record: Record, ticket: int | None = None) -> None:
        self.log.take(record)
        self.writer.write(record)
        if ticket is not None:
            self.writer.sync(ticket)
        self.writer.turn()

    async def until(self, ticket: int) -> None:
        while ticket not in self.synced and not self.errors:
            self.told.clear()
            await asyncio.wait_for(self.told.wait(), 60)

    def on_disk(self) -> list[bytes]:
        """What a process finds that starts now."""
        store = ReplicaStore(self.folder, 1, "g")
        store.close()
        return [entry.command for entry in ReplicaLog.replay(store.records).entries]


def append(number: int) -> Append:
    return Append((LogEntry(NOW, Ticket(1, 1, number), b"%d" % number),), 0)


def test_one_sync_serves_all_that_came_while_the_last_one_ran(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        desk.disk.let.clear()
        desk.write(Adopt(NOW, 7, (1,), 0, (), 0), ticket=1)
        for number in range(1, 6):
            desk.write(append(number), ticket=1 + number)
        assert desk.synced == []
        desk.disk.let.set()
        await desk.until(6)
        assert desk.synced == [1, 2, 3, 4, 5, 6]
        assert desk.disk.syncs == 2
        await desk.writer.close()
        assert desk.on_disk() == [b"1", b"2", b"3", b"4", b"5"]

    run(story)


def test_records_that_come_during_a_compaction_follow_it(tmp_path: Path) -> None:
    """None is lost, and none is there twice."""

    async def story() -> None:
        desk = Desk(tmp_path)
        desk.write(Adopt(NOW, 7, (1,), 0, (), 0))
        desk.write(append(1))
        desk.write(append(2), ticket=1)
        await desk.until(1)
        image = Image(1, b"state")
        await desk.writer.keep(image)
        desk.disk.let.clear()
        desk.write(image)
        desk.write(append(3), ticket=2)
        desk.write(append(4))  # nobody asked for a sync of it
        assert desk.synced == [1]
        desk.disk.let.set()
        await desk.until(2)
        await desk.writer.close()
        assert desk.on_disk() == [b"2", b"3", b"4"]

    run(story)


def test_nothing_is_told_to_be_durable_after_a_failure(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        desk.disk.error = OSError(5, "Input/output error")
        desk.write(Adopt(NOW, 7, (1,), 0, (), 0), ticket=1)
        await desk.until(1)
        desk.disk.error = None
        desk.errors.clear()
        desk.write(append(1), ticket=2)
        await desk.until(2)
        assert desk.synced == []
        assert [type(error) for error in desk.errors] == [StorageError]
        await desk.writer.close()

    run(story)


@pytest.mark.parametrize("ending", ["append", "keep"])
def test_closing_waits_for_what_is_under_way(tmp_path: Path, ending: str) -> None:
    """A thread must not write into a folder that somebody else has opened meanwhile."""

    async def story() -> None:
        desk = Desk(tmp_path)
        desk.disk.let.clear()
        if ending == "append":
            desk.write(Adopt(NOW, 7, (1,), 0, (), 0), ticket=1)
        else:
            keeping = asyncio.ensure_future(desk.writer.keep(Image(1, b"state")))
            await asyncio.sleep(0)
            keeping.cancel()
        closing = asyncio.ensure_future(desk.writer.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        desk.disk.let.set()
        await closing
        assert desk.synced == []

    run(story)
