"""Recorder: from what a node delivers to its journal, and from the others what it missed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

from ringcast.core.effects import InstallView
from ringcast.core.errors import RingcastError
from ringcast.core.ids import Level, NodeId, Position, ViewId
from ringcast.journal.format import layout
from ringcast.journal.format.envelope import Known
from ringcast.journal.format.frame import Range
from ringcast.journal.format.layout import Entry, JournalError, Source
from ringcast.journal.format.message import digest
from ringcast.journal.group_commit import PENDING, Keeper
from ringcast.journal.merged_reader import Shelves, Span
from ringcast.journal.service import (
    PART_BYTES,
    Answer,
    Ask,
    Commit,
    Done,
    Look,
    Publish,
    Question,
    Records,
    Seek,
    Server,
    Told,
    answers,
    call,
    heard,
    token,
    told,
)
from ringcast.journal.writer import Limits, commit
from ringcast.wire.address import Address
from ringcast.wire.keys import KeyFile

TRIM_S = 5.0
"""How often old segments are looked for."""

ANSWER_S = 10.0
"""Longest that somebody who asks waits for what this node does not have yet."""

RETRY_S = 0.5
"""After a member could not tell what it has, until it is asked again."""


class Recorder:
    """The journal of one node, written, served and completed."""

    def __init__(
        self,
        me: NodeId,
        folder: Path,
        limits: Limits,
        patience_s: float,
        keys: KeyFile | None,
        addresses: Callable[[], dict[NodeId, Address]],
        failed: Callable[[str], None],
        publish: Callable[[str, str, int, int, tuple[bytes, ...]], Awaitable[Position]],
    ) -> None:
        self._publish, self._failed = publish, failed
        self._me, self._keys, self._addresses = me, keys, addresses
        self._patience_s = patience_s
        self.folder = folder
        self._keeper = Keeper(folder, limits, failed)
        self._server = Server(me, keys, self._serve)
        self._tasks: set[asyncio.Task[None]] = set()
        self._view: InstallView | None = None
        self._refusals: set[tuple[NodeId, Position]] = set()
        self._changed = asyncio.Event()
        self._closed = False

    async def start(self, at: Address) -> None:
        """Listen where the node does, and begin to catch up."""
        await self._server.start(at)
        for work in (self._catch_up(), self._trim()):
            self._tasks.add(asyncio.get_running_loop().create_task(work))

    # --- what the node tells ---------------------------------------------------------------

    def on_messages(
        self,
        view: ViewId,
        place: Position,
        sender: NodeId,
        level: Level,
        group: str,
        bodies: tuple[bytes, ...],
        data: bytes,
        source: Source | None,
    ) -> None:
        """Messages of a group, at their place in the order; ``data`` is how they came."""
        content = (array("i", map(len, bodies)), data, digest(data))
        now_us = time.time_ns() // 1000
        kind = layout.MESSAGE
        self._keeper.add(
            Entry(place, view, kind, sender, level, group, (), *content, now_us, source)
        )

    def on_view(self, change: InstallView) -> None:
        """A configuration, at its place in the order."""
        after = Position.at(change.ring, change.seq)
        now_us = time.time_ns() // 1000
        self._keeper.add(
            layout.view_entry(change.view, change.members, change.transitional, after, now_us)
        )
        if not change.transitional:
            self._view = change
            self._changed.set()

    def known(self) -> list[Known]:
        """How far writers had come when this node ended, by its journal."""
        return [Known(*key, *reached) for key, reached in self._keeper.sources().items()]

    @property
    def crowded(self) -> bool:
        """Whether the disk is behind."""
        return self._keeper.crowded

    async def durable(self, place: Position) -> None:
        """Wait until everything up to ``place`` is on this node's disk."""
        await self._keeper.until(place)

    # --- what others ask -------------------------------------------------------------------

    async def _serve(self, question: Question) -> AsyncIterator[Answer]:
        match question:
            case Ask():
                async for answer in self._tell(question):
                    yield answer
            case Look(mark, place):
                (journal,) = (await asyncio.to_thread(self._shelves, False)).shelves
                last = min(journal.last, self._keeper.durable)
                yield Told(mark, last, journal.trimmed, journal.digest(place))
            case Seek(mark, after, upto, rows):
                shelves = await asyncio.to_thread(self._shelves, False)
                span = Span((after,), (min(upto, shelves.last, self._keeper.durable),))
                (place,) = shelves.after_rows(span, rows)
                yield Done(mark, place)
            case Commit(mark, reader, place):
                await asyncio.to_thread(commit, self.folder, reader, place)
                yield Done(mark, place)
            case Publish(mark, group, stream, batch, first, bodies):
                yield Done(mark, await self._publish(group, stream, batch, first, bodies))

    async def _tell(self, ask: Ask) -> AsyncIterator[Answer]:
        """The records asked for, in parts. A reader is not told what lies behind a gap, but a node
        that catches up has to take what there is, and to know where that begins."""
        await self._until(ask)
        shelves = await asyncio.to_thread(self._shelves, ask.waiting)
        journal, last = shelves.shelves[-1], min(shelves.last, self._keeper.durable)
        if not ask.waiting:
            shelves.check((ask.after,))
        for leaf in shelves.leaves(Range(ask.after, min(ask.upto, last))):
            for part in leaf.parts(PART_BYTES):
                yield told(ask.token, part)
        yield Told(ask.token, min(journal.last, last), journal.trimmed)

    async def _until(self, ask: Ask) -> None:
        """Wait for what is asked for: delivered here, and on disk."""
        keeper = self._keeper
        try:
            async with asyncio.timeout(ANSWER_S):
                while (keeper.added if ask.waiting else keeper.journal.last) < ask.upto:
                    await asyncio.sleep(0.02)
                await keeper.until(ask.upto)
        except TimeoutError:
            raise JournalError(
                f"node {self._me} has records up to {keeper.journal.last}, but they are "
                f"asked for up to {ask.upto}; it may still be catching up"
            ) from None

    def _shelves(self, waiting: bool) -> Shelves:
        """The journal, last, and what waits to be put into it. That comes first: if it is put
        there meanwhile, then the journal, looked at later, has it all."""
        if waiting:
            with contextlib.suppress(JournalError):
                return Shelves([self.folder / PENDING, self.folder])
        return Shelves([self.folder])

    # --- catching up -----------------------------------------------------------------------

    async def _catch_up(self) -> None:
        """Fill the gap; a node that cannot must not go on as if it had."""
        try:
            await self._ask_around()
        except Exception as error:  # whatever it is, nobody else would say it
            self._failed(str(error) or repr(error))

    async def _ask_around(self) -> None:
        """Ask everybody on the ring what was delivered while this node was away, once."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        companions = set(self._keeper.companions)
        while not self._keeper.caught_up:
            self._changed.clear()
            view = self._view
            others = [] if view is None else [id for id in view.members if id != self._me]
            some_missing = view is None or not others or not companions <= set(view.members)
            if view is None or (some_missing and loop.time() < deadline):
                with contextlib.suppress(TimeoutError):  # wait_for may swallow the end, in 3.11
                    async with asyncio.timeout(RETRY_S):
                        await self._changed.wait()
                continue
            upto = Position.at(view.view, -1)  # before the ring itself
            told = {peer: await self._fetch(peer, upto) for peer in others}
            if all(told.values()) or loop.time() > deadline:
                known = [each for each in told.values() if isinstance(each, Told)]
                silent = [id for id in others if not told[id] and (id, upto) not in self._refusals]
                missing = holes(self._keeper.journal.last, upto, known, bool(silent))
                await self._keeper.settle(others, upto, view.members, missing)
            else:
                await asyncio.sleep(RETRY_S)

    async def _fetch(self, peer: NodeId, upto: Position) -> Told | bool:
        """Whether a member has told all it has; one without a journal has nothing to tell.

        So it seems of a member that has just died, too: it must refuse twice on one ring.
        """
        address = self._addresses().get(peer)
        if address is None:
            return False
        try:
            line = await call(address, self._me, self._keys)
        except ConnectionRefusedError:
            again = (peer, upto) in self._refusals
            self._refusals.add((peer, upto))
            return again
        except (RingcastError, OSError, TimeoutError):
            return False
        scratch = self._keeper.scratch(peer)
        try:
            ask = Ask(token(), self._keeper.journal.last, upto, waiting=True)
            async for answer in answers(line, ask):
                if isinstance(answer, Records):
                    await asyncio.to_thread(scratch.take, heard(answer))
            assert isinstance(answer, Told), "the answer to this question"
            return answer
        except (JournalError, RingcastError, OSError):
            return False
        finally:
            line.close()
            scratch.close()

    async def _trim(self) -> None:
        """Remove what is not kept; a node that cannot would fill its disk without a word."""
        try:
            while True:
                await asyncio.sleep(TRIM_S)
                await self._keeper.trim()
        except Exception as error:
            self._failed(str(error) or repr(error))

    async def close(self) -> None:
        """End the conversations, write what has come, and end; once is enough."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.close()
        self._keeper.close()

    def metrics(self) -> dict[str, object]:
        """For the operator."""
        keeper = self._keeper
        return {
            "last": str(keeper.last),
            "durable": str(keeper.durable),
            "caught_up": keeper.caught_up,
            "records": keeper.journal.number,
            "cut_bytes": keeper.journal.cut_bytes,
            "error": keeper.error,
            "conversations_refused": self._server.refused,
        }


def holes(after: Position, upto: Position, told: Iterable[Told], silent: bool) -> list[Range]:
    """What nobody told of the records between two places, though it has been there.

    Who keeps less than others tells where its journal begins. If somebody was ``silent``, all that
    is not in anybody's journal may be missing.
    """
    found: list[Range] = []
    reached = after
    for begin, end in sorted((each.trimmed, each.last) for each in told):
        if reached < min(begin, upto):
            found.append(Range(reached, min(begin, upto)))
        reached = max(reached, begin, end)
    if silent and reached < upto:
        found.append(Range(reached, upto))
    return found
