"""The thread that writes a journal: what is acknowledged, and when it ends or catches up."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from histories import entries, entry

from ringcast.core.ids import NodeId, Position, ViewId
from ringcast.files.disk import Disk
from ringcast.journal.format.layout import Entry, JournalError, view_entry
from ringcast.journal.group_commit import PENDING, GroupCommit
from ringcast.journal.merged_reader import whole
from ringcast.journal.writer import LIMITS


class Failing(Disk):
    """Fails once, when it is told to go on."""

    def __init__(self, what: str) -> None:
        self.what, self.armed = what, False
        self.begun, self.go_on = threading.Event(), threading.Event()

    def _perhaps(self, what: str) -> None:
        if self.armed and what == self.what:
            self.armed = False
            self.begun.set()
            assert self.go_on.wait(30)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def write(self, file: int, pieces: Sequence[bytes | memoryview]) -> None:
        self._perhaps("write")
        super().write(file, pieces)

    def sync(self, file: int) -> None:
        self._perhaps("sync")
        super().sync(file)


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("what", ["write", "sync"])
def test_what_fails_while_the_node_ends_is_not_acknowledged(
    tmp_path: Path, what: str, more: bool
) -> None:
    """Nor is anything written behind it."""
    disk, said = Failing(what), list[str]()

    async def story() -> None:
        commits = GroupCommit(tmp_path, LIMITS, said.append)
        assert commits._pending is not None
        commits._pending._disk = disk
        commits.add(entries(0)[0])
        await commits.until(commits.added)
        disk.armed = True
        commits.add(entry(1, b"x"))
        waiting = asyncio.create_task(commits.until(Position(0, 8, 1, 1, 0)))
        assert await asyncio.to_thread(disk.begun.wait, 30)
        if more:
            commits.add(entry(2, b"y"))
        disk.go_on.set()
        commits.close()
        with pytest.raises(JournalError, match="ended"):
            await waiting

    asyncio.run(story())
    assert said and os.strerror(errno.EIO) in said[0]
    numbers = [row["position"]["seq"] for batch in whole([tmp_path / PENDING])
               for row in batch.to_pylist()]  # fmt: skip
    assert numbers == [0]


def test_what_was_put_into_the_journal_may_come_back_as_waiting(tmp_path: Path) -> None:
    """A node is killed before it removes it, or a loss of power brings the removed folder back."""
    folder, saved, said = tmp_path / "journal", tmp_path / "saved", list[str]()
    before = Position(0, 8, 1, -1, 0)

    async def story() -> None:
        commits = GroupCommit(folder, LIMITS, said.append)
        for each in (entries(0)[0], entry(1, b"x")):
            commits.add(each)
        await commits.until(commits.added)
        shutil.copytree(folder / PENDING, saved)
        await commits.settle([], before)
        commits.add(entry(2, b"y"))
        await commits.until(commits.added)
        commits.close()
        shutil.copytree(saved, folder / PENDING)
        commits = GroupCommit(folder, LIMITS, said.append)
        commits.add(entry(3, b"z"))
        await commits.until(commits.added)
        await commits.settle([], before)
        commits.close()

    asyncio.run(story())
    assert not said
    numbers = [row["position"]["seq"] for batch in whole([folder]) for row in batch.to_pylist()]
    assert numbers == [0, 1, 2, 3]


def test_a_busy_node_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is always something to be written, and always something that waits."""
    count, reached = 0, GroupCommit._reached

    def load(commits: GroupCommit, place: Position) -> None:
        nonlocal count
        count += 1
        commits.add(entry(count, b"x"))
        reached(commits, place)

    monkeypatch.setattr(GroupCommit, "_reached", load)

    async def story() -> None:
        commits = GroupCommit(tmp_path, LIMITS, lambda why: None)
        commits.add(entries(0)[0])
        await commits.until(commits.added)
        async with asyncio.timeout(120):
            await commits.settle([], Position(0, 8, 1, -1, 0))
            await commits.until(commits.added)
        assert commits.caught_up
        commits.close()

    asyncio.run(story())
    numbers = [row["position"]["seq"] for batch in whole([tmp_path]) for row in batch.to_pylist()]
    assert numbers == list(range(len(numbers))) and len(numbers) >= 3


def test_writers_are_known_while_what_waited_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread empties the folder while the loop asks."""
    asked: list[object] = []

    async def story() -> None:
        commits = GroupCommit(tmp_path, LIMITS, lambda why: None)
        remove = shutil.rmtree

        def removing(folder: Path, ignore_errors: bool = False) -> None:
            remove(folder, ignore_errors)
            if folder.name == PENDING:
                folder.mkdir()
                asked.append(commits.sources())

        monkeypatch.setattr(shutil, "rmtree", removing)
        commits.add(entries(0)[0])
        await commits.settle([], Position(0, 8, 1, -1, 0))
        assert commits.caught_up and not commits.error
        commits.close()

    asyncio.run(story())
    assert asked == [{}]


@pytest.mark.parametrize("was_there", [True, False])
def test_who_was_away_takes_both_sides_of_a_partition(tmp_path: Path, was_there: bool) -> None:
    """Their transitional configurations follow one and the same number."""
    ring, merged = entries(2), ViewId(12, 1)

    def side(commits: GroupCommit, rep: int) -> None:
        view = view_entry(ring[-1].last.end(rep), ViewId(10, rep), (rep,), True, 0)
        alone = view_entry(Position.at(ViewId(10, rep), 0), ViewId(10, rep), (rep,), False, 0)
        scratch = commits.scratch(rep)
        scratch.append([*ring, view, alone])
        scratch.close()

    async def story() -> None:
        commits = GroupCommit(tmp_path, LIMITS, lambda why: None)
        if was_there:
            commits.journal.append(ring)
        for rep in (1, 2):
            side(commits, rep)
        commits.add(view_entry(Position.at(merged, 0), merged, (1, 2, 3), False, 0))
        await commits.settle([1, 2], Position.at(merged, -1))
        assert not commits.error and commits.caught_up
        commits.close()

    asyncio.run(story())
    found = [row for batch in whole([tmp_path]) for row in batch.to_pylist()]
    parted = [row["members"] for row in found if row["kind"] == "transitional"]
    assert parted == [[1], [2]]
    places = [Position(**row["position"]) for row in found]
    assert places == sorted(set(places)) and places[-1] == Position.at(merged, 0)


def test_others_who_came_while_a_node_was_catching_up_are_companions(tmp_path: Path) -> None:
    """They are in the last configuration of the journal, though they were not asked; and whoever
    was in one that a node left in ``pending`` when it ended may know what followed it."""
    two, three, alone = ViewId(12, 1), ViewId(16, 1), ViewId(20, 1)

    def view(id: ViewId, members: tuple[NodeId, ...]) -> Entry:
        return view_entry(Position.at(id, 0), id, members, False, 0)

    async def life(commits: GroupCommit, *views: Entry) -> None:
        for each in views:
            commits.add(each)
            await commits.until(commits.added)

    async def story() -> None:
        first = GroupCommit(tmp_path, LIMITS, lambda why: None)
        assert first.companions == set()
        await life(first, view(two, (1, 2)), view(three, (1, 2, 3)))
        first.close()  # before it has caught up
        second = GroupCommit(tmp_path, LIMITS, lambda why: None)
        assert second.companions == {1, 2, 3}
        await life(second, view(alone, (1, 2)))
        assert second.companions == {1, 2, 3}
        second.close()
        third = GroupCommit(tmp_path, LIMITS, lambda why: None)
        assert third.companions == {1, 2, 3}
        await life(third, view(ViewId(24, 1), (1, 2)), view(ViewId(28, 1), (1, 2, 4)))
        await third.settle([2], Position.at(ViewId(24, 1), -1))  # 2 alone was asked
        assert third.caught_up and third.companions == {1, 2, 4}
        third.close()
        assert GroupCommit(tmp_path, LIMITS, lambda why: None).companions == {1, 2, 4}

    asyncio.run(story())
