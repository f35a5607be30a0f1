"""Group: send into and read from one named group."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from ringcast.api.events import Batch, Event, EventsLost, Message, View
from ringcast.api.inbox import Inbox
from ringcast.api.outgoing import Item
from ringcast.core.errors import CLOSED, RingcastError, node_stopped
from ringcast.core.ids import Level, NodeId, Position
from ringcast.core.ids import level as level_of
from ringcast.wire.envelope import BODY_HEAD, MOST_BODIES

if TYPE_CHECKING:
    from ringcast.api.node import Node

Bytes: TypeAlias = bytes | bytearray | memoryview
"""What may be sent. A copy is taken of what the caller could still change."""


class WouldBlock(RingcastError):
    """``send_nowait`` found no room; await ``send`` instead, or try again later."""


class NotJoined(RingcastError):
    """The group was used outside its ``async with`` block."""


class MessageTooLarge(RingcastError):
    """A body is larger than the ring's ``max_message``."""


class CannotMulticast(RingcastError):
    """A message to some members only, where every message is for all: the node's protocol knows no
    other, or the group is that of a replica."""


class Batches:
    """Lists of events, for ``async for``; goes on after a cancellation, as the group itself."""

    def __init__(self, take: Callable[[], Awaitable[list[Batch | View | EventsLost]]]) -> None:
        self._take = take

    def __aiter__(self) -> Batches:
        return self

    def __anext__(self) -> Awaitable[list[Batch | View | EventsLost]]:
        return self._take()


class Group:
    """A named group on the node's ring; made by ``node.join(name)``.

    All members see the same messages and views in the same order. One task at a time may read.
    """

    def __init__(self, node: Node, name: str, soft: int, hard: int) -> None:
        self.name = name
        self._node = node
        self._bounds = (soft, hard)
        self._inbox = Inbox(soft, hard)
        self._joined = False
        self._in: asyncio.Future[None] | None = None
        self.replicated = False
        """A replica reads it, and every message must be for all."""
        self._ready: deque[Event] = deque()
        """Taken from the inbox, not yet read: a reader may stop in the middle of a batch."""

    # --- membership ------------------------------------------------------------------------

    async def __aenter__(self) -> Group:
        await self.join()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.leave()

    async def join(self) -> None:
        """Become a member; returns when the group's members know. A group is joined once."""
        if self._in is not None:
            raise RingcastError(f"{self.name!r} was joined before: call node.join() again")
        self._in = asyncio.get_running_loop().create_future()
        self._node.enter(self)
        self._joined = True
        try:
            await self._in
        except BaseException:
            await self.leave()
            raise

    async def leave(self) -> None:
        """Leave the group; what was sent before is delivered to the others first."""
        if self._joined:
            self._joined = False
            self._node.exit(self)
            self._inbox.close()

    def anew(self) -> Group:
        """The same group, to be joined again."""
        group = self._node.join(self.name, *self._bounds)
        group.replicated = self.replicated
        return group

    @property
    def me(self) -> NodeId:
        """The id under which this process is a member."""
        return self._node.config.id

    @property
    def listed(self) -> frozenset[NodeId]:
        """The ids of all nodes that the settings list in ``peers``, and of this one, which need not
        be there, and which has other ids in other domains."""
        ids = (id for port in self._node.config.domains for id in port.peer_addresses)
        return frozenset((self.me, *ids))

    @property
    def max_message(self) -> int:
        """Largest body that can be sent."""
        return self._node.max_message

    @property
    def members(self) -> tuple[NodeId, ...]:
        """The members as of the newest event that has arrived."""
        return self._node.members(self.name)

    @property
    def blocked(self) -> str:
        """Why nothing is ordered here: until others come back, or because the node has stopped;
        empty while it goes on, and for as long as an ordinary change of the group may take.

        Where one part of a parted group alone goes on, the members of the others say so here. What
        they send waits, and is sent when the group is whole again.
        """
        return self._node.blocked

    @property
    def external(self) -> tuple[NodeId, ...]:
        """Members that hear everything and may send, and do not order for the moment.

        A protocol may leave a member that it suspects out of its ring and keep it in the view: no
        ``View`` tells of that. The others are the core.
        """
        here = set(self.members)
        return tuple(node for node in self._node.external if node in here)

    # --- sending ---------------------------------------------------------------------------

    async def send(
        self,
        body: Bytes,
        level: Level | str = Level.AGREED,
        durable: bool = False,
        to: Iterable[NodeId] | None = None,
    ) -> Position:
        """Broadcast ``body``; its position in the order, once it is delivered here.

        ``durable``: and once it is in this node's journal, on disk. With level safe every member
        has received it by then.

        A level may be given by its name; "fifo" and "causal" are served as agreed.
        Waits while the ring's window is full. When cancelled, the message may still be sent.

        ``to``: these members get it, and this one; the others do not. It has its place in the one
        order all the same, and is in no journal. Only some protocols can: ``CannotMulticast``.
        """
        return await self.send_many((body,), level, durable, to)

    async def send_many(
        self,
        bodies: Iterable[Bytes],
        level: Level | str = Level.AGREED,
        durable: bool = False,
        to: Iterable[NodeId] | None = None,
    ) -> Position:
        """Broadcast several bodies in this order, packed; the position of the last one."""
        taken, served_as = all_bytes(bodies), level_of(level)
        self._check(taken)
        some = () if to is None else self._some(to)
        if durable:
            if some:
                raise ValueError("durable = True: a message to some members is in no journal")
            self._node.check_durable()
        await self._node.outgoing.room()
        self._check_joined()  # the group may have been left while this waited
        done: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._node.outgoing.put(Item(self.name, served_as, taken, done, to=some))
        position = await done
        if durable:
            await self._node.durable(position)
        return position

    def send_nowait(
        self,
        body: Bytes,
        level: Level | str = Level.AGREED,
        to: Iterable[NodeId] | None = None,
    ) -> None:
        """Broadcast ``body`` without waiting for anything; WouldBlock if there is no room."""
        self.send_many_nowait((body,), level, to)

    def send_many_nowait(
        self,
        bodies: Iterable[Bytes],
        level: Level | str = Level.AGREED,
        to: Iterable[NodeId] | None = None,
    ) -> None:
        """The same for several bodies, packed: all of them, or none."""
        taken, served_as = all_bytes(bodies), level_of(level)
        self._check(taken)
        some = () if to is None else self._some(to)
        self._node.outgoing.check()
        if self._node.outgoing.full:
            raise WouldBlock(f"too much is queued for {self.name!r}; await group.send() instead")
        self._node.outgoing.put(Item(self.name, served_as, taken, to=some))

    def _some(self, to: Iterable[NodeId]) -> tuple[NodeId, ...]:
        """Whom a message is for, this member included."""
        if self.replicated:
            raise CannotMulticast(f"{self.name!r} is a replica's group: all copies get the same")
        self._node.check_multicast()
        ids = tuple(to) if isinstance(to, Iterable) else None
        if ids is None or not all(isinstance(each, int) for each in ids):
            raise TypeError(
                f"to = {to!r}: it takes the ids of members, which are numbers, as in to={{2, 3}}"
            )
        some = {*ids}
        if not some:
            raise ValueError("to names nobody: leave it out to send to all")
        if strangers := some.difference(self.members):
            raise ValueError(
                f"to = {sorted(some)}: {sorted(strangers)} are not in {self.name!r}, whose members "
                f"are {list(self.members)}"
            )
        return tuple(sorted({*some, self.me}))

    def _check_joined(self) -> None:
        if not self._joined:
            raise NotJoined(f"not a member of {self.name!r}: use 'async with node.join(...)'")

    def _check(self, bodies: tuple[bytes, ...]) -> None:
        self._check_joined()
        if not bodies:
            raise ValueError("nothing to send")
        check_size(max(map(len, bodies)), self.max_message)

    # --- reading ---------------------------------------------------------------------------

    def __aiter__(self) -> Group:
        return self

    async def __anext__(self) -> Event:
        """The next message or view; the end when the group is left or the node ends.

        No generator, which would end for good when a timeout or a cancellation meets it.
        """
        while not self._ready:
            for event in await self._inbox.take():
                if type(event) is Batch:
                    self._ready.extend(event)
                else:
                    self._ready.append(event)  # type: ignore[arg-type]
        return self._ready.popleft()

    def batches(self) -> Batches:
        """All that has arrived, at once: the fast way to read."""
        return Batches(self._take)

    def _take(self) -> Awaitable[list[Batch | View | EventsLost]]:
        """Everything not yet read, at least one event; the end when there will be no more."""
        return self._rest() if self._ready else self._inbox.take()

    async def _rest(self) -> list[Batch | View | EventsLost]:
        rest = [alone(event) for event in self._ready]
        self._ready.clear()
        return rest

    # --- for the node ----------------------------------------------------------------------

    def push(self, event: Batch | View) -> None:
        """An event in order. The first view that holds us completes ``join``, unless the ring broke
        before all had said which groups they are in: then a later one does."""
        self._inbox.push(event)
        if type(event) is not View or self._in is None or self._in.done():
            return
        if self._node.complete:
            self._in.set_result(None)

    def lost(self, count: int) -> None:
        """Messages went by that the group could not be given."""
        self._inbox.lost(count)

    @property
    def crowded(self) -> bool:
        """Whether the reader has fallen behind."""
        return self._inbox.crowded

    def end(self, reason: str) -> None:
        """The node has ended."""
        error = node_stopped(reason)
        if self._in is not None and not self._in.done():
            self._in.set_exception(error)
        self._inbox.close(None if reason == CLOSED else error)


def all_bytes(bodies: Iterable[Bytes]) -> tuple[bytes, ...]:
    """The bodies as they travel; anything that is not bytes is refused before it is queued."""
    taken = tuple(bodies)
    if {*map(type, taken)} <= {bytes}:  # the usual case, at little cost for many small bodies
        return taken  # type: ignore[return-value]
    for body in taken:
        if not isinstance(body, bytes | bytearray | memoryview):
            raise TypeError(f"a body is bytes, not {type(body).__name__}: encode it first")
    return tuple(map(bytes, taken))


def check_size(size: int, most: int, bound: str = "max_message is") -> None:
    """Raise if a body is larger than the ring takes; ``bound`` says what ``most`` is."""
    if size > most:
        raise MessageTooLarge(
            f"{size} bytes, but {bound} {most}; send it in pieces or raise the setting on every "
            "node"
        )


def portions(bodies: tuple[bytes, ...], most: int) -> Iterator[tuple[bytes, ...]]:
    """Bodies in their order, as many at a time as one message of the ring holds."""
    some: list[bytes] = []
    size = 0
    for body in bodies:
        check_size(len(body), most)
        if some and (len(some) == MOST_BODIES or size + len(body) + BODY_HEAD > most):
            yield tuple(some)
            some, size = [], 0
        some.append(body)
        size += len(body) + BODY_HEAD
    yield tuple(some)


def alone(event: Event) -> Batch | View | EventsLost:
    """A message as a batch of one; anything else as it is."""
    if type(event) is Message:
        bodies = (event.body,)
        return Batch(event.sender, bodies, event.position, event.level, event.writer, event.to)
    return event  # type: ignore[return-value]
