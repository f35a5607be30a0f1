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
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from ringcast.core.ids import START, NodeId, Position
from ringcast.journal.format.frame import Frame, Range
from ringcast.journal.format.frame_writer import frame_content
from ringcast.journal.format.layout import VIEW, Entry, JournalError
from ringcast.journal.format.segment import SegmentFile
from ringcast.journal.merged_reader import MergedReader
from ringcast.journal.reader import JournalReader
from ringcast.journal.writer import Journal, Limits, read_small, segment_names
from ringcast.wire.envelope import MOST_WRITERS, MOST_WRITTEN

MOST_WAITING = 64 * 2**20
"""Bytes that may wait for the disk before the ring is slowed down."""

PACE_S, ENOUGH_BYTES = 0.02, 2**21
"""Records that nobody waits for are written when so much time has passed or so much has come: a
fast disk would take one at a time, and every sync costs. With twice as much at once, or half, a
busy node does less: more is kept than its cache holds, or there are more syncs."""

NOBODY = "the node was away, and no member could tell what was before this"

PENDING, FETCHED = "pending", "fetched"
COMPANIONS, SOURCES = "companions.json", "sources.json"

Sources = dict[tuple[str, str], tuple[int, int]]
"""By group and writer: the last batch, and how many of its rows came."""


class GroupCommit:
    """Writes the journal of one node. Everything here is called from the node's loop."""

    def __init__(self, folder: Path, limits: Limits, failed: Callable[[str], None]) -> None:
        self.folder = folder
        self._failed = failed
        self._limits = limits
        self.journal = Journal(folder, limits)
        self._pending: Journal | None = self._open_pending()
        """Where records go while this node is catching up; None when it has."""
        self._former = read_companions(folder / PENDING)
        """Of former lives that ended while they were catching up: there is a gap behind each."""
        self._members: tuple[NodeId, ...] = ()
        """Of the last configuration that was written."""
        self._thread = ThreadPoolExecutor(1, "ringcast-journal")
        self._queue: list[Entry] = []
        self._queued_bytes = 0
        self._working = self._settling = False
        self._job: Future[None] | None = None
        """What the thread did last."""
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[tuple[Position, asyncio.Future[None]]] = []
        self.durable = self._taken = self.last
        """Everything up to here is on disk, and everything up to there on its way."""
        self._grown = asyncio.Event()
        self.error = ""
        self._closed = False

    def _open_pending(self) -> Journal:
        """What waits to be put into the journal. If all of it is there already, then the node was
        killed before it could remove it, or a loss of power has brought it back."""
        folder = self.folder / PENDING
        pending = Journal(folder, self._limits)
        if START < pending.last <= self.journal.last:
            pending.close()
            shutil.rmtree(folder)
            pending = Journal(folder, self._limits)
        return pending

    # --- writing ---------------------------------------------------------------------------

    @property
    def last(self) -> Position:
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
        self._queued_bytes += len(entry.data)
        if not self._grown.is_set():
            self._grown.set()
        self._work()

    @property
    def added(self) -> Position:
        """The last record that came."""
        return self._queue[-1].last if self._queue else self._taken

    async def until(self, place: Position) -> None:
        """Wait until every record up to ``place`` is on disk; at the place itself may be none."""
        if self.error:
            raise JournalError(self.error)
        place = min(place, self.added)
        if self.durable < place:
            done = asyncio.get_running_loop().create_future()
            self._waiting.append((place, done))
            self._work()
            await done

    async def grown(self) -> None:
        """Wait until records have come or have got to their final place."""
        self._grown.clear()
        await self._grown.wait()

    def wake(self) -> None:
        """Let those go on that wait for records: there may be no more."""
        self._grown.set()

    def _work(self) -> None:
        """Let the thread take what has come, at once if somebody waits or there is much of it."""
        if self._waiting or self._queued_bytes >= ENOUGH_BYTES:
            self._turn()
        elif self._queue and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PACE_S, self._turn)

    def _turn(self) -> None:
        """One turn of the thread, unless it is at work already: then there is one after it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._working or self._settling or self._closed or not self._queue:
            return
        self._working = True
        upto = self._taken = self.added
        entries, self._queue, self._queued_bytes = self._queue, [], 0
        target = self._pending or self.journal
        loop = asyncio.get_running_loop()
        noted = self._companions_in(entries)
        job = self._job = self._thread.submit(write, target, entries, noted, self._pending is None)
        job.add_done_callback(lambda done: loop.call_soon_threadsafe(self._written, upto, done))

    def _written(self, upto: Position, job: Future[None]) -> None:
        self._working = False
        try:
            job.result()
        except Exception as error:  # whatever it is, nobody may go on as if it were written
            self._fail(str(error) or repr(error))
            return
        self._reached(upto)
        self._work()

    def _reached(self, place: Position) -> None:
        """Everything up to ``place`` is on disk."""
        self.durable = place
        self._grown.set()
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

    def sources(self) -> Sources:
        """For each group and writer of rows: the last batch, and how many of its rows came.

        Only the end of the journal is read: what sealed segments hold was noted when they were
        left behind.
        """
        found = read_sources(self.folder)
        folders = [self.folder] if self.caught_up else [self.folder, self.folder / PENDING]
        for folder in folders:
            for path in segment_names(folder)[-2:]:
                file = SegmentFile(path)
                for head in file.heads():
                    add_sources(found, file.read(head))
        return found

    @property
    def companions(self) -> set[NodeId]:
        """The members of the last configuration in the journal, and of those that wait."""
        return {*read_companions(self.folder), *read_companions(self.folder / PENDING)}

    def _companions_in(self, entries: Sequence[Entry]) -> set[NodeId]:
        """Who may have more than these entries, to be noted before them; of no view, nobody."""
        views = [each for each in entries if each.kind == VIEW]
        if not views:
            return set()
        self._members = views[-1].members
        return {*self._members, *(self._former if self._pending is not None else ())}

    def scratch(self, peer: NodeId) -> Journal:
        """Where what a peer tells is kept until all have told."""
        folder = self.folder / FETCHED / str(peer)
        shutil.rmtree(folder, ignore_errors=True)
        return Journal(folder, self._limits)

    async def settle(
        self,
        told: Iterable[NodeId],
        upto: Position,
        holes: Sequence[Range] = (),
    ) -> None:
        """All have told: what they had up to ``upto`` and what waited here go into the journal.

        ``holes`` are what nobody could tell.
        """
        await self.until(self.added)
        folders = [self.folder / FETCHED / str(peer) for peer in told]
        self._settling = True  # records that come now wait in the queue
        loop = asyncio.get_running_loop()
        try:
            while self._working and self._job:
                await asyncio.wait([asyncio.wrap_future(self._job)])
            await loop.run_in_executor(self._thread, self._merge, folders, upto, holes)
        except JournalError as error:
            self._fail(str(error))
            return
        finally:
            self._settling = False
        self._grown.set()
        self._work()

    def _merge(self, folders: list[Path], upto: Position, holes: Sequence[Range] = ()) -> None:
        assert self._pending is not None
        note_companions(self.journal, self.companions)  # if it is ended here, in the midst of it
        self._pending.sync()
        own = self.folder / PENDING
        told = MergedReader([own, *(folder for folder in folders if folder.is_dir())])
        sources = self.sources()  # also of what is in the journal: its last segment may be left
        spans = pairwise([self.journal.last, *(hole.upto for hole in holes), upto])
        parts = [told.frames(Range(*span)) for span in spans]
        parts.append(JournalReader(own).frames(Range(upto, self._pending.last)))
        missing = False
        for number, part in enumerate(parts):
            for frame in part:
                if missing:
                    self.journal.skip(frame.first, NOBODY)
                    missing = False
                self.journal.take(frame, told=number < len(parts) - 1)
                add_sources(sources, frame)
            missing = missing or number < len(holes)
        self.journal.sync()
        note_sources(self.journal, sources)
        # The last configuration that waited, which need not be the one whose members were asked.
        note_companions(self.journal, self._members)
        self._pending.close()
        self._pending = None  # here, because whoever waits for this may be cancelled meanwhile
        shutil.rmtree(self.folder / PENDING)
        shutil.rmtree(self.folder / FETCHED, ignore_errors=True)

    # --- keeping ---------------------------------------------------------------------------

    async def trim(self) -> int:
        """Remove what is too old or too much; how many segments."""
        if self._working or self._settling or self.error:
            return 0
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.journal.trim)

    def close(self) -> None:
        """Write what has come and end."""
        self._closed = True
        self._thread.shutdown(wait=True)
        if self._job and (failed := self._job.exception()):  # it has not been told yet, perhaps
            self.error = self.error or str(failed) or repr(failed)
        if self._queue and not self.error:
            try:
                noted = self._companions_in(self._queue)
                write(self._pending or self.journal, self._queue, noted, self._pending is None)
            except JournalError as error:
                self.error = str(error)
        if not self.error:
            self._reached(self.last)
        for _, done in self._waiting:
            if not done.done():
                done.set_exception(JournalError("the node has ended"))
        for journal in (self._pending, self.journal):
            if journal is not None:
                try:
                    journal.close()
                except JournalError as error:
                    self.error = self.error or str(error)


def write(journal: Journal, entries: list[Entry], companions: set[NodeId], final: bool) -> None:
    """One turn of the thread: everything that has come, and one sync."""
    if companions:
        note_companions(journal, companions)
    before = len(journal.segments)
    written = frame_content(entries)
    entries.clear()
    journal.put(written)
    del written  # while the disk is busy, the memory is of use for the messages that come
    journal.sync()
    if final and len(journal.segments) > before > 0:  # a segment was left behind
        sources: Sources = {}
        file = SegmentFile(journal.segments[-2].path)
        for head in file.heads():
            add_sources(sources, file.read(head, check=False))
        note_sources(journal, sources)


def read_sources(folder: Path) -> Sources:
    """How far writers had come when it was last noted."""
    noted = read_small(folder / SOURCES, list[tuple[str, str, int, int]]) or []
    return {(group, stream): (batch, rows) for group, stream, batch, rows in noted}


def note_sources(journal: Journal, more: Sources) -> None:
    """Note how far writers have come, so that nobody has to read old segments for it."""
    found = read_sources(journal.folder)
    for key, reached in more.items():
        found[key] = max(found.pop(key, (-1, 0)), reached)
    if more:
        journal.note(SOURCES, [(*key, *reached) for key, reached in newest(found).items()])


def newest(found: Sources) -> Sources:
    """As much as nodes remember while they run (``writer_dedup``): what was noted last."""
    kept: Sources = {}
    groups: Counter[str] = Counter()
    for group, stream in reversed(found):
        if groups[stream] < MOST_WRITTEN and (stream in groups or len(groups) < MOST_WRITERS):
            groups[stream] += 1
            kept[group, stream] = found[group, stream]
    return dict(reversed(kept.items()))


def add_sources(found: Sources, frame: Frame) -> None:
    """Take over how far writers came in these entries."""
    for group, (stream, batch, row), count in frame.sources():
        key = (group, stream)
        found[key] = max(found.get(key, (-1, 0)), (batch, row + count))


def read_companions(folder: Path) -> tuple[NodeId, ...]:
    """Who may have records that a journal lacks."""
    return read_small(folder / COMPANIONS, tuple[NodeId, ...]) or ()


def note_companions(journal: Journal, members: Iterable[NodeId]) -> None:
    """Before the first record of a configuration: who else may have records of it."""
    journal.note(COMPANIONS, sorted(members))
