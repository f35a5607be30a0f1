"""A replica's records on their way to disk: written by a thread, for the loop its engine runs in.

One sync serves all that came while the last one ran, so the more there is to do the less a command
costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from ringcast.core.ids import NodeId
from ringcast.replica.log import Image, Record
from ringcast.replica.store import ReplicaStore

COMPACT_AT = 4 * 2**20
"""Bytes of log beyond twice what was left by the last compaction."""


async def open_store(folder: Path, node: NodeId, group: str) -> ReplicaStore:
    """The folder, read by a thread, which nobody can stop: a caller that is cancelled meanwhile
    waits for it and lets go of the folder."""
    opening = asyncio.get_running_loop().run_in_executor(None, ReplicaStore, folder, node, group)
    try:
        await asyncio.wait((opening,))
    except asyncio.CancelledError:
        await asyncio.wait((opening,))
        if opening.exception() is None:
            opening.result().close()
        raise
    return opening.result()


class LogWriter:
    """Writes into ``store``. Everything here is called from the replica's loop, ``synced`` and
    ``failed`` too."""

    def __init__(
        self,
        store: ReplicaStore,
        everything: Callable[[], list[Record]],
        synced: Callable[[list[int]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.store = store
        self._everything, self._synced, self._failed = everything, synced, failed
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "ringcast-replica")
        self._job: Future[None] | None = None
        """What the thread does."""
        self._keeping: asyncio.Future[None] | None = None
        self._records: list[Record] = []
        self._tickets: list[int] = []
        self._rewrite = False
        self._closing: asyncio.Future[list[Any]] | None = None
        self._compact_beyond = 0
        self._rewritten()

    @property
    def too_long(self) -> bool:
        """Whether the log should be compacted."""
        return self.store.size > self._compact_beyond

    def _rewritten(self) -> None:
        self._compact_beyond = 2 * self.store.size + COMPACT_AT

    def write(self, record: Record) -> None:
        """The next record; it is on disk after the next sync. An image takes the place of all
        before it."""
        self._records.append(record)
        if isinstance(record, Image):
            self.rewrite()

    def rewrite(self) -> None:
        """Write ``everything`` anew, in less."""
        self._rewrite = True

    def sync(self, ticket: int) -> None:
        """Make durable what was written so far, then tell by the ticket."""
        self._tickets.append(ticket)

    async def keep(self, image: Image) -> None:
        """Write a state beside the log, which goes on meanwhile."""
        self._keeping = self._loop.run_in_executor(None, self.store.keep, image)
        await asyncio.shield(self._keeping)

    async def close(self) -> None:
        """Wait for what is under way, and let go of the folder. A caller that is cancelled does not
        wait, but the folder is free later all the same."""
        if self._closing is None:
            jobs = [asyncio.wrap_future(self._job)] if self._job else []
            jobs += [self._keeping] if self._keeping else []
            self._closing = asyncio.gather(*jobs, return_exceptions=True)
            if jobs:
                self._closing.add_done_callback(lambda _: self._let_go())
            else:
                self._let_go()
        await asyncio.shield(self._closing)

    def _let_go(self) -> None:
        self._thread.shutdown(wait=False)
        self.store.close()

    def turn(self) -> None:
        """One turn of the thread, unless it is at work already: then there is one after it. To be
        called when nothing of ``everything`` is still to be written."""
        if self._job or self._closing or not (self._tickets or self._rewrite):
            return
        records, self._records = self._records, []
        tickets, self._tickets = self._tickets, []
        if self._rewrite:
            self._job = self._thread.submit(self.store.rewrite, self._everything())
        else:
            self._job = self._thread.submit(self.store.append, records)
        rewritten, self._rewrite = self._rewrite, False
        self._job.add_done_callback(lambda job: self._tell(job, tickets, rewritten))

    def _tell(self, job: Future[None], tickets: list[int], rewritten: bool) -> None:
        """In the thread. A program may end its loop without closing the replica."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._done, job, tickets, rewritten)

    def _done(self, job: Future[None], tickets: list[int], rewritten: bool) -> None:
        self._job = None
        if self._closing is not None:
            return
        if (error := job.exception()) is not None:
            assert isinstance(error, Exception)
            self._failed(error)
            return
        if rewritten:
            self._rewritten()
        self.turn()
        self._synced(tickets)
