"""A node's journal while it runs: group commit in a thread of its own, and what was missed.

Records are written as they are delivered. A thread takes all that have come since its last turn,
writes them and syncs once, so the more there is to do the less a record costs.

A node that starts has been away. What it delivers from then on waits in a journal of its own, in
the folder ``pending``, until the others have told what was delivered meanwhile; then both go into
the journal, in order. So the journal itself only ever grows at its end, and readers of it miss
nothing. Whoever was in the last configuration of the journal may have records of it that nobody
else has: they are waited for, but not longer than ``journal_patience_s``.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ringcast.core.ids import NodeId
from ringcast.journal.layout import VIEW, Entry, JournalError, Place
from ringcast.journal.log import Journal, Limits, read_small
from ringcast.journal.reading import Range, Shelf, Shelves

MOST_WAITING = 64 * 2**20
"""Bytes that may wait for the disk before the ring is slowed down."""

PENDING, FETCHED, COMPANIONS = "pending", "fetched", "companions.json"


class Keeper:
    """Writes the journal of one node. Everything here is called from the node's loop."""

    def __init__(self, folder: Path, limits: Limits, failed: Callable[[str], None]) -> None:
        self.folder = folder
        self._failed = failed
        self._limits = limits
        self.journal = Journal(folder, limits)
        self._pending: Journal | None = Journal(folder / PENDING, limits)
        """Where records go while this node is catching up; None when it has."""
        self._thread = ThreadPoolExecutor(1, "ringcast-journal")
        self._queue: list[Entry] = []
        self._queued_bytes = 0
        self._working = False
        self._waiting: list[tuple[Place, asyncio.Future[None]]] = []
        self.durable = self.last
        """Everything up to here is on disk."""
        self.error = ""
        self._closed = False

    # --- writing ---------------------------------------------------------------------------

    @property
    def last(self) -> Place:
        """The last record written, wherever it went."""
        return max(self.journal.last, self._pending.last if self._pending else self.journal.last)

    @property
    def crowded(self) -> bool:
        """Whether the disk is behind."""
        return self._queued_bytes > MOST_WAITING

    @property
    def caught_up(self) -> bool:
        """Whether records go to their final place at once."""
        return self._pending is None

    def add(self, entry: Entry) -> None:
        """The next records, in the order of their delivery."""
        if self.error:
            return
        self._queue.append(entry)
        self._queued_bytes += sum(map(len, entry.bodies))
        self._work()

    async def until(self, place: Place) -> None:
        """Wait until everything up to ``place`` is on disk."""
        if self.error:
            raise JournalError(self.error)
        if self.durable < place:
            done = asyncio.get_running_loop().create_future()
            self._waiting.append((place, done))
            await done

    def _work(self) -> None:
        """Let the thread take what has come, unless it is at work already."""
        if self._working or self._closed or not self._queue:
            return
        self._working = True
        entries, self._queue, self._queued_bytes = self._queue, [], 0
        target = self._pending or self.journal
        loop = asyncio.get_running_loop()
        job = self._thread.submit(write, target, entries, self._pending is None)
        job.add_done_callback(lambda done: loop.call_soon_threadsafe(self._written, entries, done))

    def _written(self, entries: list[Entry], job: object) -> None:
        self._working = False
        try:
            job.result()  # type: ignore[attr-defined]
        except JournalError as error:
            self._fail(str(error))
            return
        self._reached(entries[-1].last)
        self._work()

    def _reached(self, place: Place) -> None:
        """Everything up to ``place`` is on disk."""
        self.durable = place
        ready = [done for wanted, done in self._waiting if wanted <= place]
        self._waiting = [each for each in self._waiting if each[0] > place]
        for done in ready:
            if not done.done():
                done.set_result(None)

    def _fail(self, why: str) -> None:
        """The disk does not take it: nothing more is acknowledged, and the node must end."""
        self.error = f"the journal cannot go on: {why}"
        for _, done in self._waiting:
            if not done.done():
                done.set_exception(JournalError(self.error))
        self._waiting.clear()
        self._failed(self.error)

    # --- catching up -----------------------------------------------------------------------

    @property
    def companions(self) -> tuple[NodeId, ...]:
        """The members of the last configuration in the journal."""
        return read_small(self.folder / COMPANIONS, tuple[NodeId, ...]) or ()

    def scratch(self, peer: NodeId) -> Journal:
        """Where what a peer tells is kept until all have told."""
        folder = self.folder / FETCHED / str(peer)
        shutil.rmtree(folder, ignore_errors=True)
        return Journal(folder, self._limits)

    async def settle(
        self, told: Iterable[NodeId], upto: Place, members: tuple[NodeId, ...]
    ) -> None:
        """All have told: what they had up to ``upto`` and what waited here go into the journal.

        ``members`` are those of the present configuration.
        """
        while self._working or self._queue:
            await asyncio.sleep(0.001)
        folders = [self.folder / FETCHED / str(peer) for peer in told]
        self._working = True  # records that come now wait in the queue
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._merge, folders, upto, members)
        except JournalError as error:
            self._fail(str(error))
            return
        finally:
            self._working = False
        self._pending = None
        self._work()

    def _merge(self, folders: list[Path], upto: Place, members: tuple[NodeId, ...]) -> None:
        assert self._pending is not None
        self._pending.sync()
        after, own = self.journal.last, self._pending.last
        known = [self.folder / PENDING, *(folder for folder in folders if folder.is_dir())]
        shelves = Shelves(known)
        for batch in shelves.batches(Range(after, min(upto, shelves.last))):
            self.journal.take(batch)
        if upto < own:
            for batch in Shelf(self.folder / PENDING).batches(Range(upto, own)):
                self.journal.take(batch)
        self.journal.sync()
        note_companions(self.journal, members)
        self._pending.close()
        shutil.rmtree(self.folder / PENDING)
        shutil.rmtree(self.folder / FETCHED, ignore_errors=True)

    # --- keeping ---------------------------------------------------------------------------

    async def trim(self) -> int:
        """Remove what is too old or too much; how many segments."""
        if self._working or self.error:
            return 0
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.journal.trim)

    def close(self) -> None:
        """Write what has come and end."""
        self._closed = True
        self._thread.shutdown(wait=True)
        if self._queue and not self.error:
            try:
                write(self._pending or self.journal, self._queue, self._pending is None)
            except JournalError as error:
                self.error = str(error)
        if not self.error:
            self._reached(self.last)
        for _, done in self._waiting:
            if not done.done():
                done.set_exception(JournalError("the node has ended"))
        for journal in (self._pending, self.journal):
            if journal is not None:
                journal.close()


def write(journal: Journal, entries: list[Entry], final: bool) -> None:
    """One turn of the thread: everything that has come, and one sync."""
    views = [entry for entry in entries if entry.kind == VIEW]
    if views and final:
        note_companions(journal, views[-1].members)
    journal.append(entries)
    journal.sync()


def note_companions(journal: Journal, members: tuple[NodeId, ...]) -> None:
    """Before the first record of a configuration: who else may have records of it."""
    journal.note(COMPANIONS, members)
