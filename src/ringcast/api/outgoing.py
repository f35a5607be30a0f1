"""From ``send`` to the ring: bodies wait here, bounded, and leave packed.

What is sent within one turn of the event loop leaves together in as few envelopes as possible,
so that the ring's work for a message is done once for many. Nothing waits for more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

import msgspec

from ringcast.core.errors import DeliveryUncertain, node_stopped
from ringcast.core.ids import Level, NodeId, Position
from ringcast.runtime.host import LiveHost
from ringcast.wire import envelope
from ringcast.wire.envelope import BODY_HEAD, EVERYTHING, Data, Enter, Envelope, Exit, interest

MOST_MESSAGES = 20_000
MOST_BYTES = 64 * 2**20

ENVELOPE_BYTES = 48 * 2**10
"""Bodies in one envelope, unless a frame takes more or one body is larger. Cut into frames it
leaves one of them partly empty; an envelope a frame would leave room in all of them, and cost
the receivers 3 us more a frame."""

MOST_INTERESTS = 256
"""Groups that a node lists for those who carry messages; in more, it is sent everything."""

AT_ONCE = 16
"""Envelopes given to the machine in one step."""

UNDER_WAY, LEAST_UNDER_WAY = 32 * 2**20, 2**20
"""What all members together may have given their machines that is not delivered, and each at
least. On a new ring a node's word about its groups comes behind that, and what is delivered before
it waits for it, bounded (``directory``)."""

PART_BODIES, PART_BYTES = 512, 2**20
"""A large ``send_many`` is taken in parts of this size, because a machine bounds what one
submission may bring; one larger body is a part of its own."""


class Item(msgspec.Struct, gc=False):
    """Bodies accepted from the application, and who waits for the last one's position."""

    group: str
    level: Level
    bodies: tuple[bytes, ...]
    done: asyncio.Future[Position] | None = None
    word: Envelope | None = None
    """A word of our own that must keep its place among the bodies."""
    to: tuple[NodeId, ...] = ()
    """The only members they are for; empty: all."""


class SubmissionQueue:
    """The queue between the application and the machine."""

    def __init__(self, host: LiveHost, budget: int, everything: bool = False) -> None:
        self._host = host
        self._everything = everything
        """Whether the messages of all groups have to come here."""
        self._in: set[str] = set()
        """The groups that this node is in, behind all that was submitted."""
        self._room_in_envelope = max(budget, ENVELOPE_BYTES) - envelope.OVERHEAD
        self._items: deque[Item] = deque()
        self._messages = self._bytes = 0
        self._submitted = self._delivered = 0
        self._under_way: deque[tuple[int, int]] = deque()
        """Last number and bytes of each submission that is not delivered yet."""
        self._under_way_bytes = 0
        self.share = UNDER_WAY
        """How many of them there may be before more is given to the machine."""
        self._waiters: dict[int, list[tuple[int, asyncio.Future[Position]]]] = {}
        """By submission number: index of the body in its envelope, and who waits for it."""
        self._words: dict[int, Envelope] = {}
        """By submission number: joins and leaves that are not delivered yet."""
        self._room = asyncio.Event()
        self._room.set()
        self._scheduled = False
        self._drained: asyncio.Future[None] | None = None

    @property
    def full(self) -> bool:
        """Whether the application must wait."""
        return self._messages >= MOST_MESSAGES or self._bytes >= MOST_BYTES

    async def room(self) -> None:
        """Wait until there is room."""
        while self.full:
            self._room.clear()
            await self._room.wait()
        self.check()

    def check(self) -> None:
        """Raise if nothing can be sent any more."""
        if self._host.stopped is not None:
            raise node_stopped(self._host.stopped)

    def put(self, item: Item) -> None:
        """Accept bodies. The first of a turn of the loop leave at once, for latency; what comes
        after them in the same turn leaves at its end together, for throughput."""
        self._messages += len(item.bodies)
        size = sum(map(len, item.bodies))
        self._bytes += size
        if len(item.bodies) <= PART_BODIES and size <= PART_BYTES:
            self._items.append(item)
        else:
            self._items.extend(parts(item))
        if not self._scheduled:
            self.flush()
            self._schedule()

    def put_first(self, item: Item) -> None:
        """Accept a word that goes ahead of what waits here."""
        self._items.appendleft(item)
        self._schedule()

    def _schedule(self) -> None:
        """Never flush from within an upcall: the machine's effects are being carried out."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Give the machine as much as it takes."""
        self._scheduled = False
        if not self._items:
            return
        while self._items and self._host.ready and self._under_way_bytes < self.share:
            if (word := self._items[0].word) is not None:
                item = self._items.popleft()
                if item.done is not None:
                    self._waiters[self._submitted + 1] = [(0, item.done)]
                if isinstance(word, Enter | Exit):
                    self._words[self._submitted + 1] = word
                if isinstance(word, Enter):
                    self._in.add(word.group)
                self._host.enter(self._interests())  # ahead of the place where it counts
                self._submit([word], item.level)
                if isinstance(word, Exit):
                    self._in.discard(word.group)
                    self._host.enter(self._interests())
            else:
                self._flush_some()
        if not self.full:
            self._room.set()

    def _interests(self) -> tuple[int, ...]:
        """Which groups' messages have to come here; of very many nobody makes a list."""
        if self._everything or len(self._in) > MOST_INTERESTS:
            return (EVERYTHING,)
        return tuple(sorted(set(map(interest, self._in))))

    def _flush_some(self) -> None:
        """Everything at the head that is for one group and the same members at one level,
        packed."""
        items = self._items
        group, level, to = items[0].group, items[0].level, items[0].to
        room = self._room_in_envelope - len(group.encode())
        if len(items) == 1 and self._bytes + len(items[0].bodies) * BODY_HEAD <= room:
            self._flush_last()
            return
        full: list[Envelope] = []
        bodies: list[bytes] = []
        left = room
        first = self._submitted + 1
        before = self._bytes
        while items and len(full) < AT_ONCE:
            item = items[0]
            if item.word is not None or item.group != group or item.level is not level:
                break
            if item.to != to:
                break
            taken = before - self._bytes
            if taken and taken + sum(map(len, item.bodies)) > PART_BYTES:
                break
            items.popleft()
            self._messages -= len(item.bodies)
            largest = max(map(len, item.bodies)) + BODY_HEAD
            at = 0
            while at < len(item.bodies):
                # As many as fit whatever their sizes, so that no work is done body by body.
                fit = left // largest
                if fit < 1 and bodies:
                    full.append(Data(group, tuple(bodies)))
                    bodies, left = [], room
                    continue
                some = item.bodies[at : at + max(fit, 1)]
                size = sum(map(len, some))
                self._bytes -= size
                bodies += some
                at += len(some)
                left -= size + len(some) * BODY_HEAD
            if item.done is not None:
                waiting = self._waiters.setdefault(first + len(full), [])
                waiting.append((len(bodies) - 1, item.done))
        if bodies:
            full.append(Data(group, tuple(bodies)))
        self._submit(full, level, to, interest(group))

    def _flush_last(self) -> None:
        """All there is is one item, and one envelope takes it: at light load that is the rule."""
        item = self._items.popleft()
        self._messages = self._bytes = 0
        if item.done is not None:
            self._waiters[self._submitted + 1] = [(len(item.bodies) - 1, item.done)]
        self._submit([Data(item.group, item.bodies)], item.level, item.to, interest(item.group))

    def _submit(
        self,
        envelopes: list[Envelope],
        level: Level,
        to: tuple[NodeId, ...] = (),
        group: int = 0,
    ) -> None:
        self._submitted += len(envelopes)
        bodies = tuple(map(envelope.encode, envelopes))
        size = sum(map(len, bodies))
        self._under_way.append((self._submitted, size))
        self._under_way_bytes += size
        self._host.submit(bodies, level, to, group)

    def on_ring(self, size: int) -> None:
        """A new ring of so many members."""
        self.share = max(UNDER_WAY // size, LEAST_UNDER_WAY)

    def _landed(self) -> None:
        """What was delivered, or never will be, is not under way."""
        under_way = self._under_way
        while under_way and under_way[0][0] <= self._delivered:
            self._under_way_bytes -= under_way.popleft()[1]

    def delivered(self, number: int, position: Position) -> None:
        """Our submission ``number`` was delivered, its first body at ``position``."""
        if number > self._submitted:
            return  # in our name, and not ours
        self._delivered = number
        self._landed()
        if self._drained is not None:
            self._check_drained()
        if self._words:
            self._words.pop(number, None)
        for index, done in self._waiters.pop(number, ()):
            if not done.done():
                done.set_result(position._replace(index=position.index + index))

    def uncertain(self, numbers: Iterable[int]) -> None:
        """These will not be delivered here. Who waits is told; joins and leaves, which may be
        said twice, are said again, ahead of what waits: a leave must not overtake its join."""
        error = DeliveryUncertain("the ring changed before the message was delivered; others may "
                                  "have delivered it")  # fmt: skip
        again: list[Item] = []
        for number in numbers:
            self._delivered = max(self._delivered, number)
            for _, done in self._waiters.pop(number, ()):
                if not done.done():
                    done.set_exception(error)
            if (word := self._words.pop(number, None)) is not None:
                again.append(Item("", Level.AGREED, (), word=word))
        self._landed()
        for item in reversed(again):
            self.put_first(item)
        self._check_drained()

    def fail(self, error: Exception) -> None:
        """The node has ended: nobody waits any longer."""
        for waiting in self._waiters.values():
            for _, done in waiting:
                if not done.done():
                    done.set_exception(error)
        for item in self._items:
            if item.done is not None and not item.done.done():
                item.done.set_exception(error)
        self._waiters.clear()
        self._items.clear()
        self._messages = self._bytes = 0
        self._delivered = self._submitted
        self._landed()
        self._room.set()
        self._check_drained()

    async def drained(self) -> None:
        """Wait until everything that was accepted is delivered here, or never will be."""
        while not self.idle:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def _check_drained(self) -> None:
        if self._drained is not None and self.idle and not self._drained.done():
            self._drained.set_result(None)

    @property
    def idle(self) -> bool:
        """Whether everything that was accepted has been delivered here."""
        return not self._items and self._delivered == self._submitted


def parts(item: Item) -> list[Item]:
    """A large item as several, in order; who waits, waits for the last."""
    cut: list[Item] = []
    at = 0
    while at < len(item.bodies):
        some = item.bodies[at : at + PART_BODIES]
        while len(some) > 1 and sum(map(len, some)) > PART_BYTES:
            some = some[: len(some) // 2]
        at += len(some)
        cut.append(Item(item.group, item.level, some, to=item.to))
    cut[-1].done = item.done
    return cut
