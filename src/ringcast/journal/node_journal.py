"""NodeJournal: from what a node delivers to its journal, and from the others what it missed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ringcast.core.effects import InstallView, PackedMessages
from ringcast.core.errors import RingcastError
from ringcast.core.ids import NodeId, Position, ViewId
from ringcast.journal.format import layout
from ringcast.journal.format.frame import Range
from ringcast.journal.format.layout import Entry, JournalError, Source
from ringcast.journal.format.message import digest
from ringcast.journal.group_commit import PENDING, GroupCommit, read_sources
from ringcast.journal.merged_reader import MergedReader, Span
from ringcast.journal.service import (
    PART_BYTES,
    Answer,
    Ask,
    Commit,
    Done,
    Extent,
    Look,
    Publish,
    Question,
    Records,
    Seek,
    Server,
    Tellers,
    UntoldRecords,
    answers,
    call,
    from_records,
    token,
)
from ringcast.journal.writer import Journal, Limits, commit
from ringcast.wire.address import Address
from ringcast.wire.envelope import Data, Known
from ringcast.wire.keys import KeyFile
from ringcast.wire.line import LEAST_RATE, LONG, LONGEST

T = TypeVar("T")

TRIM_S = 5.0
"""How often old segments are looked for."""

ANSWER_S = 10.0
"""Longest that somebody who asks waits for what this node does not have yet."""

SLOW_S = 20.0
"""After a while a member tells a node that catches up ``LEAST_RATE`` bytes a second: whoever drips
its records would keep it from ever having caught up."""

LEAST_MESSAGE = 64 * 2**20
"""Bytes of a message that are taken from a member, at least: ``max_message`` may have been larger
when it was delivered. To open and decode records stops the ring's loop."""

SWITCH_S = 1e-4
"""How long a thread that tells keeps the interpreter from the ring's loop, which wants it each time
the token comes. By Python's own 5 ms one reader made a ring forty times as slow."""

RETRY_S = 0.5
"""After a member could not tell what it has, until it is asked again."""


class Domain(Protocol):
    """A broadcast domain of the node: where it listens, and who else is there."""

    @property
    def id(self) -> NodeId:
        """The node's id in it."""

    @property
    def keys(self) -> KeyFile | None:
        """The keys of the domain."""

    @property
    def network(self) -> str:
        """The name that its nodes have in common."""

    @property
    def address(self) -> Address:
        """Where the node listens."""

    def addresses(self) -> dict[NodeId, Address]:
        """Where the others are."""

    def hosts(self) -> set[str]:
        """Their hosts, as numbers."""


class NodeJournal:
    """The journal of one node, written, served and completed."""

    def __init__(
        self,
        me: NodeId,
        folder: Path,
        limits: Limits,
        patience_s: float,
        domains: Sequence[Domain],
        failed: Callable[[str], None],
        publish: Callable[[str, str, int, int, tuple[bytes, ...]], Awaitable[Position]],
        max_message: int = LONGEST,
    ) -> None:
        self._publish, self._failed = publish, failed
        self._me, self._domains = me, domains
        self._patience_s = patience_s
        self.folder = folder
        self._commits = GroupCommit(folder, limits, failed)
        self._tellers = Tellers(*(ThreadPoolExecutor(1, "ringcast-telling") for _ in range(2)))
        # Whoever publishes sends one largest message at most, and what shares a question with it.
        longest = min(LONGEST, max_message + LONG)
        self._longest_answer = min(LONGEST, max(max_message, LEAST_MESSAGE) + LONG)
        self._servers = [
            Server(
                each.id, each.keys, self._serve, each.network, self._tellers, longest, each.hosts
            )
            for each in domains
        ]
        self._tasks: set[asyncio.Task[None]] = set()
        self._view: InstallView | None = None
        self._refusals: set[tuple[NodeId, Position]] = set()
        self._changed = asyncio.Event()
        self._closed = False

    async def start(self) -> None:
        """Listen where the node does, in each of its domains, and begin to catch up."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
        for server, domain in zip(self._servers, self._domains, strict=True):
            server.start(domain.address)
        for work in (self._catch_up(), self._trim()):
            self._tasks.add(asyncio.get_running_loop().create_task(work))

    # --- what the node tells ---------------------------------------------------------------

    def on_messages(
        self,
        view: ViewId,
        position: Position,
        batch: PackedMessages,
        word: Data,
        data: bytes,
        source: Source | None,
    ) -> None:
        """Messages of a group, at their place in the order; ``data`` is how they came."""
        content = (array("i", map(len, word.bodies)), data, digest(data))
        sent = (batch.sender, batch.level, word.group, ())
        now_us = time.time_ns() // 1000
        self._commits.add(Entry(position, view, layout.MESSAGE, *sent, *content, now_us, source))

    def on_view(self, change: InstallView) -> None:
        """A configuration, at its place in the order."""
        what = (change.position, change.view, change.members, change.transitional)
        self._commits.add(layout.view_entry(*what, time.time_ns() // 1000))
        if not change.transitional:
            self._view = change
            self._changed.set()

    def known(self) -> list[Known]:
        """How far writers had come when this node ended, by its journal."""
        return [Known(*key, *reached) for key, reached in self._commits.sources().items()]

    def completed(self) -> list[Known]:
        """How far they had come, by what was there when it had caught up."""
        return [Known(*key, *reached) for key, reached in read_sources(self.folder).items()]

    @property
    def crowded(self) -> bool:
        """Whether the disk is behind."""
        return self._commits.crowded

    @property
    def caught_up(self) -> bool:
        """Whether it has what was delivered while the node was away, as far as others told."""
        return self._commits.caught_up

    async def grown(self) -> None:
        """Wait until records have come or have got to their final place, or ``wake``."""
        await self._commits.grown()

    def wake(self) -> None:
        """The node has ended."""
        self._commits.wake()

    async def durable(self, place: Position) -> None:
        """Wait until everything up to ``place`` is on this node's disk."""
        await self._commits.until(place)

    # --- what others ask -------------------------------------------------------------------

    async def _serve(self, question: Question) -> AsyncIterator[Answer | UntoldRecords]:
        match question:
            case Ask():
                async for answer in self._tell(question):
                    yield answer
            case Look(mark, place):
                yield await self._aside(self._look, mark, place, self._commits.durable)
            case Seek(mark):
                yield Done(mark, await self._aside(self._seek, question, self._commits.durable))
            case Commit(mark, reader, place):
                await self._aside(commit, self.folder, reader, place)
                yield Done(mark, place)
            case Publish(mark, group, stream, batch, first, bodies):
                yield Done(mark, await self._publish(group, stream, batch, first, bodies))

    async def _tell(self, ask: Ask) -> AsyncIterator[Answer | UntoldRecords]:
        """The records asked for, in parts. A reader is not told what lies behind a gap, but a node
        that catches up has to take what there is, and to know where that begins."""
        await self._until(ask)
        told = self._told(ask, self._commits.durable)
        while (answer := await self._aside(next, told, None, member=ask.waiting)) is not None:
            yield answer

    async def _aside(self, work: Callable[..., T], *args: Any, member: bool = False) -> T:
        """Done by a thread that tells: all that reads files, and all that is long."""
        thread = self._tellers.members if member else self._tellers.guests
        return await asyncio.get_running_loop().run_in_executor(thread, work, *args)

    def _told(self, ask: Ask, durable: Position) -> Iterator[Answer | UntoldRecords]:
        reader = self._reader(ask.waiting)
        journal, last = reader.journals[-1], min(reader.last, durable)
        if not ask.waiting:
            reader.check((ask.after,))
        for frame in reader.frames(Range(ask.after, min(ask.upto, last))):
            for part in frame.parts(PART_BYTES):
                yield UntoldRecords(ask.token, part)
        yield Extent(ask.token, min(journal.last, last), journal.trimmed)

    def _look(self, mark: int, place: Position, durable: Position) -> Extent:
        (journal,) = self._reader(False).journals
        last = min(journal.last, durable)
        behind = journal.count(Range(min(place, last), last))
        return Extent(mark, last, journal.trimmed, journal.digest(place), behind)

    def _seek(self, seek: Seek, durable: Position) -> Position:
        reader = self._reader(False)
        span = Span((seek.after,), (min(seek.upto, reader.last, durable),))
        (place,) = reader.after_rows(span, seek.rows, seek.wanted)
        return place

    async def _until(self, ask: Ask) -> None:
        """Wait for what is asked for: delivered here, and on disk."""
        commits = self._commits
        try:
            async with asyncio.timeout(ANSWER_S):
                while (commits.added if ask.waiting else commits.journal.last) < ask.upto:
                    await commits.grown()
                await commits.until(ask.upto)
        except TimeoutError:
            raise JournalError(
                f"node {self._me} has records up to {commits.journal.last}, but they are "
                f"asked for up to {ask.upto}; it may still be catching up"
            ) from None

    def _reader(self, waiting: bool) -> MergedReader:
        """The journal, last, and what waits to be put into it. That comes first: if it is put
        there meanwhile, then the journal, looked at later, has it all."""
        if waiting:
            with contextlib.suppress(JournalError):
                return MergedReader([self.folder / PENDING, self.folder])
        return MergedReader([self.folder])

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
        companions = self._commits.companions
        while not self._commits.caught_up:
            self._changed.clear()
            view = self._view
            others, asked = ([], []) if view is None else self._near(view)
            some_missing = view is None or not others or not companions <= set(view.members)
            if view is None or (some_missing and loop.time() < deadline):
                await self._change_until(None if view is None else deadline)
                continue
            # Rings that merge change one after the other at one number, each at its own index.
            upto = view.position._replace(index=0, branch=0).before
            told = {peer: await self._fetch(peer, upto) for peer in asked}
            if all(told[id] for id in others) or loop.time() > deadline:
                known = [each for each in told.values() if isinstance(each, Extent)]
                silent = [id for id in others if not told[id] and (id, upto) not in self._refusals]
                missing = holes(self._commits.journal.last, upto, known, bool(silent))
                await self._commits.settle(asked, upto, missing)
            else:
                await self._change_until(loop.time() + RETRY_S)

    def _near(self, view: InstallView) -> tuple[list[NodeId], list[NodeId]]:
        """Members of the view that have to be heard, and all that are asked.

        Where rings are joined, those on other rings are out of reach. Whoever is on mine has
        delivered the same; a gateway may have another id here than in the view, and then it is
        asked, too, but nobody waits for it as long as there are others.
        """
        mine = {self._me, *(domain.id for domain in self._domains)}
        members = [id for id in view.members if id not in mine]
        if view.at is None:
            return members, members
        near = sorted({id for each in self._domains for id in each.addresses()} - mine)
        known = [id for id in near if id in view.members]
        return (known or near) if members else [], near

    async def _change_until(self, deadline: float | None) -> None:
        """Wait for another view, but not longer."""
        with contextlib.suppress(TimeoutError):  # wait_for may swallow the end, in 3.11
            async with asyncio.timeout_at(deadline):
                await self._changed.wait()

    async def _fetch(self, peer: NodeId, upto: Position) -> Extent | bool:
        """Whether a member has told all it has; one without a journal has nothing to tell.

        So it seems of a member that has just died, too: it must refuse twice on one ring.
        """
        domain = next((each for each in self._domains if peer in each.addresses()), None)
        if domain is None:
            return False
        try:
            at = domain.addresses()[peer]
            line = await call(at, domain.id, domain.keys, domain.network, peer)
        except ConnectionRefusedError:
            again = (peer, upto) in self._refusals
            self._refusals.add((peer, upto))
            return again
        except (RingcastError, OSError, TimeoutError):
            return False
        line.longest = self._longest_answer
        scratch = self._commits.scratch(peer)
        try:
            ask = Ask(token(), self._commits.journal.last, upto, waiting=True)
            clock, got = asyncio.get_running_loop().time, 0
            begun = clock()
            async for answer in answers(line, ask):
                if isinstance(answer, Records):
                    await asyncio.to_thread(keep, answer, scratch)
                    got += len(answer.data) + len(answer.section)
                    if clock() - begun > SLOW_S + got / LEAST_RATE:
                        return False
            return answer if isinstance(answer, Extent) else False  # a Done answers no Ask
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
                await self._commits.trim()
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
        for server in self._servers:
            await server.close()
        for thread in self._tellers:
            if thread is not None:
                thread.shutdown(wait=False, cancel_futures=True)
        self._commits.close()

    def metrics(self) -> dict[str, object]:
        """For the operator."""
        commits = self._commits
        return {
            "last": str(commits.last),
            "durable": str(commits.durable),
            "caught_up": commits.caught_up,
            "records": commits.journal.number,
            "cut_bytes": commits.journal.cut_bytes,
            "error": commits.error,
            "conversations_refused": sum(server.refused for server in self._servers),
            "calls_refused": sum(server.listener.refused for server in self._servers),
            "calls_paused": sum(server.listener.pauses for server in self._servers),
        }


def keep(answer: Records, scratch: Journal) -> None:
    """What a member told, for later; JournalError if it makes no sense."""
    scratch.take(from_records(answer))


def holes(after: Position, upto: Position, told: Iterable[Extent], silent: bool) -> list[Range]:
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
