"""Node: this process's place on a ring, and the groups on it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from ringcast.api import envelope
from ringcast.api.directory import Directory
from ringcast.api.envelope import Groups
from ringcast.api.events import Position
from ringcast.api.group import Group
from ringcast.api.outgoing import Outgoing
from ringcast.core.effects import Batch, InstallView
from ringcast.core.ids import NodeId, ViewId
from ringcast.runtime.config import NodeConfig, load
from ringcast.runtime.errors import NodeStopped, RingcastError
from ringcast.runtime.host import Host

SOFT, HARD = 50_000, 500_000
"""Messages a reader may be behind before the ring slows down, and before events are lost."""

DRAIN_S = 2.0
"""Longest that ``close`` waits for what was sent to be delivered."""


class Node:
    """A processor of the group, in this process. Use ``async with Node.open(...)``."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config.check()
        self._directory = Directory(config.id)
        self._groups: dict[str, Group] = {}
        self._host: Host | None = None
        self._ring: InstallView | None = None
        self._changed = asyncio.Event()
        self.outgoing: Outgoing
        """The queue of what is to be sent, shared by the groups."""

    @classmethod
    def open(cls, config: str | Path | NodeConfig | dict[str, Any]) -> Node:
        """A node from a configuration file, a ``NodeConfig``, or its settings in a dict."""
        match config:
            case NodeConfig():
                return cls(config)
            case dict():
                return cls(msgspec.convert(config, NodeConfig))
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
        """Open sockets and storage, and look for the others."""
        self._host = host = Host(self.config, self)
        settings = self.config.protocol_config
        self.outgoing = Outgoing(host, settings.frame_budget)
        self.max_message: int = settings.max_message - 2**16  # room for the envelope
        await host.start()

    async def close(self) -> None:
        """Leave: groups first, then the ring."""
        for group in list(self._groups.values()):
            await group.leave()
        if self._host is not None:
            deadline = asyncio.get_running_loop().time() + DRAIN_S
            while self.running and not self.outgoing.idle:
                if asyncio.get_running_loop().time() > deadline:
                    break  # a ring that does not move must not keep the program from ending
                await asyncio.sleep(0.002)
            self._host.close()

    def join(self, name: str, soft: int = SOFT, hard: int = HARD) -> Group:
        """The group called ``name``, to be used with ``async with``.

        ``soft`` and ``hard`` bound how many messages its reader may be behind.
        """
        if not 1 <= len(name) <= 64:
            raise ValueError("a group's name has 1 to 64 characters")
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
            if self._host is None or self._host.stopped is not None:
                raise NodeStopped("the node has stopped")
            self._changed.clear()
            await self._changed.wait()
        return self.ring

    def members(self, group: str) -> tuple[NodeId, ...]:
        """The members of a group, as far as events have arrived."""
        return self._directory.members(group)

    def metrics(self) -> dict[str, object]:
        """Counters and state, for people and monitors."""
        return self._host.metrics() if self._host else {}

    # --- for groups ------------------------------------------------------------------------

    def register(self, group: Group) -> None:
        """A group of this process starts to listen."""
        if self._host is None:
            raise RingcastError("the node is not running: use 'async with Node.open(...)'")
        if group.name in self._groups:
            raise RingcastError(f"this node is in {group.name!r} already")
        self._groups[group.name] = group
        self._directory.sinks[group.name] = group

    def forget(self, group: Group) -> None:
        """A group of this process stops listening."""
        self._groups.pop(group.name, None)
        self._directory.sinks.pop(group.name, None)

    def relieved(self) -> None:
        """A reader has caught up; the ring may speed up again."""
        if self._host is not None and not any(g.crowded for g in self._groups.values()):
            self._host.slow = False

    # --- what the host tells ---------------------------------------------------------------

    def on_deliver(self, view: ViewId, batch: Batch) -> None:
        """Messages of the ring."""
        position = Position(batch.ring, batch.seq, 0)
        mine = batch.sender == self.config.id
        index = 0
        for number, body in enumerate(batch.bodies, batch.first):
            try:
                word = envelope.decode(body)
            except msgspec.DecodeError:
                continue  # another program's message on this ring
            if index:
                position = Position(batch.ring, batch.seq, index)
            self._directory.on_envelope(batch.sender, batch.level, position, word)
            if mine:
                self.outgoing.delivered(number, position)
            index += len(word.bodies) if type(word) is envelope.Data else 1

    def on_view(self, change: InstallView) -> None:
        """The ring changed."""
        self._directory.on_view(change.view, change.members, change.transitional)
        if not change.transitional:
            self._ring = change
            self.outgoing.say(Groups(tuple(sorted(self._groups))))
            self._changed.set()

    def on_quiet(self) -> None:
        """All that arrived has been handled: give the machine more, wake the readers."""
        self.outgoing.flush()
        for group in self._groups.values():
            group.wake()
            if group.crowded and self._host is not None:
                self._host.slow = True

    def on_stop(self, reason: str) -> None:
        """The node has ended."""
        self.outgoing.fail(NodeStopped(f"the node has stopped: {reason}"))
        for group in list(self._groups.values()):
            group.end(reason)
        self._changed.set()
