"""Node: this process's place on a ring, and the groups on it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from ringcast.api.directory import Directory
from ringcast.api.group import CannotMulticast, Group, portions
from ringcast.api.outgoing import Item, SubmissionQueue
from ringcast.api.writer_dedup import Had
from ringcast.core.effects import InstallView, PackedMessages
from ringcast.core.errors import (
    UNREADABLE,
    ConfigError,
    NodeStopped,
    RingcastError,
    StorageError,
    node_stopped,
)
from ringcast.core.ids import Level, NodeId, Position, ViewId
from ringcast.core.registry import protocols
from ringcast.journal.format.layout import JournalError, Source
from ringcast.journal.node_journal import NodeJournal
from ringcast.runtime.config import NodeConfig, from_settings, load
from ringcast.runtime.host import LiveHost
from ringcast.runtime.platform import LIVE, Platform
from ringcast.wire import envelope
from ringcast.wire.envelope import (
    MOST_GROUPS,
    MOST_ROWS,
    NAME_HEAD,
    ROOM,
    Data,
    Enter,
    Exit,
    NumberedRows,
)

SOFT, HARD = 50_000, 500_000
"""Messages a reader may be behind before the ring slows down, and before events are lost."""

DRAIN_S = 2.0
"""Longest that ``close`` waits for what was sent to be delivered."""


class Node:
    """A processor of the group, in this process. Use ``async with Node.open(...)``.

    A test may give it another ``platform`` than this machine.
    """

    def __init__(self, config: NodeConfig, platform: Platform = LIVE) -> None:
        self.config = config.check()
        self._platform = platform
        self._changed = asyncio.Event()
        """Another ring, or all have spoken on it, or the node has ended."""
        self._directory = Directory(config.id, self._changed.set, config.sheet.fixed)
        self._groups: dict[str, Group] = {}
        self._grown = False
        """Whether anything was delivered since it was looked who is behind."""
        self._unreadable: Counter[NodeId] = Counter()
        self._host: LiveHost | None = None
        self._journal: NodeJournal | None = None
        self._ring: InstallView | None = None
        self._narrowed: set[ViewId] = set()
        """The views that only lost members since, up to the present one."""
        self.outgoing: SubmissionQueue
        """The queue of what is to be sent, shared by the groups."""
        self.max_message = 0
        """Largest body that can be sent."""

    @classmethod
    def open(cls, config: str | Path | NodeConfig | dict[str, Any]) -> Node:
        """A node from a configuration file, a ``NodeConfig``, or its settings in a dict."""
        match config:
            case NodeConfig():
                return cls(config)
            case dict():
                return cls(from_settings(config))
            case _:
                return cls(load(config))

    async def __aenter__(self) -> Node:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Open sockets and storage, and look for the others. A node is started once."""
        if self._host is not None:
            raise RingcastError("the node was started before: open a new one")
        self._host = host = LiveHost(self.config, self, self._platform)
        settings = self.config.protocol_config
        # A journal is of all that was said, and the same at all nodes that keep one.
        everything = bool(self.config.journal)
        self.outgoing = SubmissionQueue(host, settings.frame_budget, everything)
        self.max_message = settings.max_message - ROOM
        try:
            if self.config.journal:
                self._journal = NodeJournal(
                    self.config.id,
                    Path(self.config.journal),
                    self.config.journal_limits,
                    self.config.journal_patience_s,
                    host.ports,
                    host.fail,
                    self.publish,
                    settings.max_message,
                )
                self._directory.remember(self._journal.known())
                await self._journal.start()
            await host.start()
        except BaseException as error:
            host.close("it could not start")
            if self._journal:
                await self._journal.close()
            if isinstance(error, JournalError):
                raise StorageError(str(error)) from None
            raise

    async def close(self) -> None:
        """Leave: groups first, then the ring, when what was sent has been delivered."""
        for group in list(self._groups.values()):
            await group.leave()
        if self._host is not None:
            try:
                # A ring that does not move must not keep the program from ending.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(DRAIN_S if self.running else 0):
                        await self.outgoing.drained()
            finally:
                self._host.leave()
                if self._journal:
                    await self._journal.close()

    def join(self, name: str, soft: int = SOFT, hard: int = HARD) -> Group:
        """The group called ``name``, to be used with ``async with``.

        ``soft`` and ``hard`` bound how many messages its reader may be behind.
        """
        if not isinstance(name, str):
            raise TypeError(f"a group's name is text, not {type(name).__name__}")
        if not 1 <= len(name) <= 64:
            raise ValueError("a group's name has 1 to 64 characters")
        name.encode()  # what cannot be written on the wire is refused here (a ValueError)
        if not 1 <= soft < hard:
            raise ValueError(f"soft {soft}, hard {hard}: soft is 1 or more, and hard is larger")
        return Group(self, name, soft, hard)

    @property
    def running(self) -> bool:
        """Whether the node is on a ring."""
        return self._host is not None and self._host.stopped is None

    @property
    def ring(self) -> tuple[NodeId, ...]:
        """The processors of the present ring."""
        return self._ring.members if self._ring else ()

    async def wait_for_ring(self, size: int) -> tuple[NodeId, ...]:
        """Wait until the ring has at least ``size`` members; put a timeout around it."""
        while len(self.ring) < size:
            self._check_running()
            self._changed.clear()
            await self._changed.wait()
        return self.ring

    async def caught_up(self) -> None:
        """Wait until the journal holds what was delivered while this node was away, as far as the
        others could tell; put a timeout around it. A node without a journal waits for nothing."""
        self._check_running()
        while self._journal is not None and not self._journal.caught_up:
            self._check_running()
            await self._journal.grown()

    def _check_running(self) -> None:
        if self._host is None:
            raise RingcastError("the node is not running: use 'async with Node.open(...)'")
        if self._host.stopped is not None:
            raise node_stopped(self._host.stopped)

    def members(self, group: str) -> tuple[NodeId, ...]:
        """The members of a group, as far as events have arrived."""
        return self._directory.members(group)

    @property
    def complete(self) -> bool:
        """Whether views count all members of the ring that are in the group, as far as known."""
        return self._directory.complete

    @property
    def blocked(self) -> str:
        """Why nothing is ordered here, in words; empty while it goes on (``Group.blocked``)."""
        return self._host.blocked if self._host is not None else ""

    @property
    def external(self) -> tuple[NodeId, ...]:
        """Members of the ring's view that hear and send, and do not order for the moment."""
        host = self._host
        return host.machine.external if host is not None and host.stopped is None else ()

    def metrics(self) -> dict[str, object]:
        """Counters and state, for people and monitors."""
        if self._host is None:
            return {}
        found = self._host.metrics()
        found["groups_wait_for"] = list(self._directory.waits_for())
        found["left_aside"] = self._directory.left_aside
        found["messages_unreadable"] = {str(node): n for node, n in self._unreadable.items()}
        return found | {"journal": self._journal.metrics()} if self._journal else found

    # --- for groups ------------------------------------------------------------------------

    def enter(self, group: Group) -> None:
        """Say that this process joins a group, and listen from there on."""
        if self._host is None:
            raise RingcastError("the node is not running: use 'async with Node.open(...)'")
        self.outgoing.check()
        if group.name in self._groups:
            raise RingcastError(f"this node is in {group.name!r} already: leave it there first")
        if len(self._groups) >= MOST_GROUPS // 2:  # groups that were left may not be gone yet
            raise RingcastError(f"this node is in {len(self._groups)} groups: leave some first")
        names = sum(len(name.encode()) + NAME_HEAD for name in (*self._groups, group.name))
        if names > (self.max_message + ROOM) // 4:  # all go into one message on a new ring
            raise RingcastError(
                f"the names of this node's {len(self._groups) + 1} groups take {names} bytes, more "
                f"than a quarter of max_message: leave some, or give shorter names"
            )
        self._groups[group.name] = group
        self._directory.enter(group.name, group)
        self.outgoing.put(Item(group.name, Level.AGREED, (), word=Enter(group.name)))

    def exit(self, group: Group) -> None:
        """Say that this process leaves a group, behind what it sent there."""
        self._groups.pop(group.name, None)
        if self.running:
            self.outgoing.put(Item(group.name, Level.AGREED, (), word=Exit(group.name)))

    async def publish(
        self, group: str, stream: str, batch: int, first: int, bodies: tuple[bytes, ...]
    ) -> Position:
        """Broadcast rows of a writer's batch in a group, unless they were before; a position at
        or behind them, once they are delivered and, with a journal, on disk here. With a journal
        that does not get rows that others say came before, RingcastError.

        They are safe: what this node remembers as delivered, nobody who lives on can lack.
        """
        if not (0 <= batch <= MOST_ROWS and 0 <= first <= MOST_ROWS - len(bodies)):
            raise RingcastError(f"batch {batch}, row {first}: they are numbered from 0 to 2^62")
        for some in list(portions(bodies, self.max_message)):  # all or, with an error, nothing
            position = await self._publish(group, stream, batch, first, some)
            first += len(some)
        return position

    async def _publish(
        self, group: str, stream: str, batch: int, first: int, bodies: tuple[bytes, ...]
    ) -> Position:
        """As many as fit one message of the ring."""
        while True:
            await self.outgoing.room()
            while not self._directory.open or self._ring is None:
                self.outgoing.check()
                self._changed.clear()
                await self._changed.wait()
            self._directory.streams.check(group, stream, batch)
            ring = self._ring.view
            word = NumberedRows(ring, group, stream, batch, first, bodies)
            done: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
            self.outgoing.put(Item(group, Level.SAFE, (), done, word))
            position = await done
            if self._counts(ring):  # otherwise, or before that, nobody may have taken them
                if self._journal:
                    rows = Had(batch, first, first + len(bodies))
                    await self._keep(group, stream, rows)
                    await self.durable(position)
                return position

    async def _keep(self, group: str, stream: str, rows: Had) -> None:
        """Wait until the journal has got rows of a writer, if it gets them at all."""
        assert self._journal is not None
        streams = self._directory.streams
        if streams.has(group, stream, rows):
            return
        await self.caught_up()
        # Of this writer alone: of another one, what a member told would count as evidence (check).
        told = self._journal.completed()
        streams.hold(each for each in told if (each.group, each.stream) == (group, stream))
        if not streams.has(group, stream, rows):
            raise RingcastError(
                f"batch {rows.batch} of writer {stream!r} is not published in group {group!r}: "
                "another member says that its rows came before, and this node's journal does not "
                "have them. Repeat the batch at a node whose journal has them; if there is none, "
                "choose another name for the writer"
            )

    def check_multicast(self) -> None:
        """Raise if the node's protocol cannot send to some members only."""
        sheet = self.config.sheet
        if not sheet.multicast:
            able = " or ".join(repr(each.name) for each in protocols() if each.multicast)
            raise CannotMulticast(
                f"{sheet.name!r} sends every message to all; protocols that need not: {able}"
            )

    def check_durable(self) -> None:
        """Raise if nothing can be made durable here."""
        if self._journal is None:
            raise ConfigError("durable = True needs a journal: name a folder in the configuration")

    async def durable(self, position: Position) -> None:
        """Wait until the journal holds everything up to ``position``, on disk."""
        assert self._journal is not None
        try:
            await self._journal.durable(position)
        except JournalError as error:
            raise NodeStopped(str(error)) from None

    # --- what the host tells ---------------------------------------------------------------

    def on_deliver(self, view: ViewId, batch: PackedMessages) -> None:
        """Messages of the ring, one by one: decode, deduplicate, wake the sender, record, route.
        Wake senders before readers, who may take a while.

        All in one loop on purpose: with a method for what is done to one message this path took 4
        to 9 % longer, measured with 16 messages in a frame."""
        self._grown = True
        start = batch.position
        mine = batch.sender == self.config.id
        index = 0
        for number, data in enumerate(batch.bodies, batch.first):
            try:
                came = word = envelope.decode(data)
            except UNREADABLE:
                self._lose(batch.sender)
                continue
            if (batch.to or batch.group) and type(came) is not Data:
                self._lose(batch.sender)  # all must hear it, or nobody
                continue
            position = start._replace(index=index) if index else start
            source: Source | None = None
            if type(came) is NumberedRows:
                word, source = self._deduplicated(came)
                data = envelope.encode(word)
                position = position._replace(index=index + len(came.bodies) - len(word.bodies))
            if mine:
                self.outgoing.delivered(number, position)
            if type(word) is not Data:
                self._directory.on_envelope(batch.sender, batch.level, position, word)
                index += 1
                continue
            if word.bodies:
                if self._journal and not batch.to:  # journals of all members hold the same
                    self._journal.on_messages(view, position, batch, word, data, source)
                writer = source[0] if source else ""
                self._directory.on_envelope(
                    batch.sender, batch.level, position, word, writer, batch.to, batch.group != 0
                )
            index += len(came.bodies)

    def _lose(self, sender: NodeId) -> None:
        """A message that no member can read, or that was given up for its size: whose group it was
        for is not known."""
        self._unreadable[sender] += 1
        for group in self._groups.values():
            group.lost(1)

    def _deduplicated(self, word: NumberedRows) -> tuple[Data, Source]:
        """The rows of a writer that did not come before, and the number of the first."""
        known = len(word.bodies)
        if self._counts(word.ring):
            known = self._directory.streams.fresh(word, not self._directory.open)
        source = (word.stream, word.batch, word.first + known)
        return Data(word.group, word.bodies[known:]), source

    def _counts(self, ring: ViewId) -> bool:
        """Whether rows that were sent on a ring are taken, by all who are on the present one."""
        if self._ring is not None and ring == self._ring.view:
            return self._directory.open
        return ring in self._narrowed

    def on_view(self, change: InstallView) -> None:
        """The ring changed."""
        self._grown = True
        if not change.transitional:
            agreed = {self._ring.view} if self._ring and self._directory.open else set()
            self._narrowed = self._narrowed | agreed if change.narrows else set()
        if self._journal:
            self._journal.on_view(change)
        self._directory.on_view(change)
        if not change.transitional:
            self._ring = change
            self.outgoing.on_ring(len(change.members))
            word = self._directory.word(self.max_message + ROOM)
            self.outgoing.put_first(Item("", Level.AGREED, (), word=word))
            self._changed.set()

    def on_uncertain(self, first: int, count: int) -> None:
        """Some of what was sent will not be delivered here."""
        self.outgoing.uncertain(range(first, first + count))

    def on_quiet(self) -> None:
        """All that arrived has been handled: give the machine more, slow down if need be."""
        self.outgoing.flush()
        host = self._host
        if host is not None and (self._grown or host.slow):
            self._grown = False
            if (word := self._directory.give_up()) is not None:
                self.outgoing.put_first(Item("", Level.AGREED, (), word=word))
            host.slow = self._crowded()

    def _crowded(self) -> bool:
        """Whether a reader, the journal or the directory is behind with what was delivered."""
        return (
            self._directory.crowded
            or (self._journal is not None and self._journal.crowded)
            or any(group.crowded for group in self._groups.values())
        )

    def on_stop(self, reason: str) -> None:
        """The node has ended."""
        self.outgoing.fail(node_stopped(reason))
        for group in list(self._groups.values()):
            group.end(reason)
        self._changed.set()
        if self._journal:
            self._journal.wake()
