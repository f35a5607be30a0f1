"""Packing and fragmentation: many small messages in a frame, one large message in many.

The same for every protocol, below the ordering and above the wire. A frame takes one place in
the order whatever it carries. ``Outbox`` is the sender's half, ``Assembler`` the receiver's.
Rules: R78, R79, R81, R83, R96-R100 of the book that names this block (``RuleBook.blocks``); other
protocols that pack owe them nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain, islice, repeat
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from ringcast.core.ids import NodeId, Seq

L = TypeVar("L")


class Contents(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one frame carries: whole messages, or one piece of a message too large for a frame.

    ``first`` is the sender's number of the first message; those in one frame are consecutive.
    A frame of whole messages has ``part`` 0 and ``last`` True.
    """

    first: Seq
    bodies: tuple[bytes, ...]
    part: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    last: bool = True

    def piece_of(self, sender: NodeId) -> tuple[NodeId, int, int]:
        """Whose message this is, its number, and which piece; a whole one is known by its last."""
        return sender, self.first, 0 if self.last else self.part + 1

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        sizes = list(map(len, self.bodies))
        if max(sizes, default=0) < 256:  # many in a frame, so without a call for each
            return 12 + sum(sizes) + 2 * len(sizes)
        return 12 + sum(map(item_bytes, self.bodies))

    def exceeds(self, most: int) -> bool:
        """Whether no frame of ``most`` bytes has room for it."""
        return self.size + len(self.bodies) > most

    @property
    def size(self) -> int:
        """Bytes of the messages alone. To copy them takes less time than to ask each."""
        return len(b"".join(self.bodies))


def item_bytes(body: bytes) -> int:
    """Bytes a body takes in a frame: itself and MessagePack's length prefix."""
    size = len(body)
    return size + (2 if size < 256 else 3 if size < 65536 else 5)


MOST_AT_ONCE = 1024
"""R79: messages that one submission may bring; with the upper mark it bounds the queue."""


class QueueBounds:
    """R79: when a queue of submissions is full: from the upper mark on, until the lower one."""

    __slots__ = ("_full", "high", "low", "max_bytes")

    def __init__(self, high: int, low: int, max_bytes: int) -> None:
        self.high, self.low, self.max_bytes = high, low, max_bytes
        self._full = False

    def full(self, count: int, size: int) -> bool:
        """Whether a queue of ``count`` messages and ``size`` bytes takes no more for now."""
        if self._full:
            self._full = count > self.low or size > self.max_bytes // 2
        else:
            self._full = count >= self.high or size >= self.max_bytes
        return self._full

    def full_any(self, queues: Iterable[Outbox[Any]]) -> bool:
        """Whether the longest of several queues takes no more for now."""
        count = size = 0
        for queue in queues:
            if len(queue._queue) > count:
                count = len(queue._queue)
            if queue.size > size:
                size = queue.size
        return self.full(count, size)

    def allow(self, bodies: tuple[bytes, ...], max_message: int) -> bool:
        """Whether a submission is small enough for an empty queue."""
        if len(bodies) == 1:
            return len(bodies[0]) <= max_message and len(bodies[0]) <= self.max_bytes
        sizes = list(map(len, bodies))
        few = len(sizes) <= MOST_AT_ONCE and sum(sizes) <= self.max_bytes
        return few and max(sizes, default=0) <= max_message


class Outbox(Generic[L]):
    """The paper's ``new_message_queue``: what the application submitted and has no number yet.

    ``L`` is what messages must have in common to share a frame: their level, in most protocols.

    One FIFO queue, so a sender's messages keep their order across configurations (R81). It is
    bounded in messages and bytes: ``ready`` turns False at the upper mark and True again at the
    lower one (R79), so that a waiting sender is not woken for every free place.

    An owner may let some of what it says itself go first (``put_first``). A few of the others may
    be *held*: what goes first from then on goes behind them. So is one that has been cut, for its
    pieces come without a gap, and so are those that ``hold`` chooses.
    """

    __slots__ = (
        "_after",
        "_ahead",
        "_bounds",
        "_held",
        "_offset",
        "_part",
        "_queue",
        "_taken",
        "packing",
        "size",
        "yields",
    )

    def __init__(self, high: int, low: int, max_bytes: int, packing: bool = True) -> None:
        self.packing = packing
        self.size = 0
        """Bytes of the messages in the queue."""
        self._bounds = QueueBounds(high, low, max_bytes)
        self._queue: deque[tuple[bytes, L]] = deque()
        self._taken = 0  # messages that left the queue; the head is number _taken + 1
        self._offset = 0  # how far the head message has been cut up
        self._part = 0
        self._ahead = 0  # messages at the head that go first
        self._held = 0  # the next ones, which are none of these
        self._after = 0  # messages that go first, and came after those were held
        self.yields = 0
        """``hold``: one of the others for so many that go first; 0: none."""

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def ready(self) -> bool:
        """R79: refuse at the upper mark, accept again at the lower one."""
        return not self._bounds.full(len(self._queue), self.size)

    def takes(self, bodies: tuple[bytes, ...], max_message: int) -> bool:
        """R79: whether this submission is within the bounds, and there is room for it now."""
        return self.ready and self._bounds.allow(bodies, max_message)

    def put(self, bodies: tuple[bytes, ...], level: L) -> None:
        """R78: append; a call that was accepted is accepted whole."""
        self._queue.extend(zip(bodies, repeat(level)))
        self.size += sum(map(len, bodies))

    def put_first(self, body: bytes, level: L) -> None:
        """Ahead of all that was put; behind what went first before, and what is held."""
        self._queue.insert(self._ahead + self._held + self._after, (body, level))
        if self._held:
            self._after += 1
        else:
            self._ahead += 1
        self.size += len(body)

    def hold(self) -> None:
        """A share of what waits behind those that go first is overtaken by no more of them."""
        if self._ahead and self.yields and not self._held:
            waiting = len(self._queue) - self._ahead
            self._held = min(waiting, -(-self._ahead // self.yields))

    @property
    def ahead(self) -> int:
        """Messages in the queue that go first."""
        return self._ahead + self._after

    def bytes_ahead(self) -> int:
        """Their bytes, counted one by one."""
        begin, end = self._ahead, self._ahead + self._held
        first = islice(self._queue, begin), islice(self._queue, end, end + self._after)
        return sum(len(body) for body, _ in chain(*first))

    @property
    def delays_first(self) -> bool:
        """Whether what goes first waits for some that do not."""
        return self._after > 0

    @property
    def next(self) -> L:
        """The level of the next frame; there must be one."""
        return self._queue[0][1]

    @property
    def number(self) -> int:
        """The sender's number of the message at the head, if there is one."""
        return self._taken + 1

    def skip(self) -> None:
        """The message at the head keeps its number, and does not leave."""
        body, _ = self._queue.popleft()
        self.size -= len(body)
        self._taken += 1

    def put_back(self, messages: Iterable[tuple[bytes, L]]) -> None:
        """Messages that left the queue last, in their order, are to leave it again, whole."""
        self.rewind()
        back = list(messages)
        self._queue.extendleft(reversed(back))
        self.size += sum(len(body) for body, _ in back)
        self._taken -= len(back)

    def take(self, budget: int) -> tuple[L, Contents, tuple[bytes, ...]] | None:
        """The next frame of at most ``budget`` bytes, or None when there is nothing to send.

        The level, the contents, and the messages that are whole with this frame (none while a
        large one is still being cut). R96: consecutive messages of the same level share the
        frame while they fit. R97: what is queued now is packed; nothing waits for more.
        """
        queue = self._queue
        if not queue:
            return None
        body, level = queue[0]
        room = budget - item_bytes(body)
        if room < 0 or self._part:
            contents = self._take_part(body, budget)
            return level, contents, (body,) if contents.last else ()
        queue.popleft()
        bodies = [body]
        taken = len(body)
        if self.packing:
            for body, next_level in queue:
                size = len(body)  # item_bytes written out, since this is done for every message
                room -= size + (2 if size < 256 else 3 if size < 65536 else 5)
                if room < 0 or next_level is not level:
                    break
                bodies.append(body)
                taken += size
            for _ in range(len(bodies) - 1):
                queue.popleft()
        if self._ahead or self._held:
            self._left(len(bodies))
        self.size -= taken
        first = self._taken + 1
        self._taken += len(bodies)
        packed = tuple(bodies)
        return level, Contents(first, packed), packed

    def _take_part(self, body: bytes, budget: int) -> Contents:
        """R98: the next piece of the message at the head; the queue keeps it until the last."""
        if not self._ahead and not self._held:
            self._held = 1
        piece = body[self._offset : self._offset + budget - 5]
        end = self._offset + len(piece)
        contents = Contents(self._taken + 1, (piece,), self._part, end == len(body))
        if contents.last:
            self._queue.popleft()
            self.size -= len(body)
            self._taken += 1
            self._offset = self._part = 0
            self._left(1)
        else:
            self._offset = end
            self._part += 1
        return contents

    def _left(self, count: int) -> None:
        """So many have left; when none is held any more, what waited for these goes first."""
        ahead = min(count, self._ahead)
        held = min(count - ahead, self._held)
        self._ahead -= ahead
        self._held -= held
        if not self._held:
            self._ahead += max(0, self._after - (count - ahead - held))
            self._after = 0

    def rewind(self) -> None:
        """R99: a message whose last piece was not numbered on the old ring starts again whole."""
        self._offset = self._part = 0
        if self._held:
            queue, begin, end = list(self._queue), self._ahead, self._ahead + self._held
            first = queue[end : end + self._after]
            rest = queue[end + self._after :]
            self._queue = deque((*queue[:begin], *first, *queue[begin:end], *rest))
            self._ahead, self._held, self._after = self._ahead + self._after, 0, 0


MOST_SENDERS = 255
"""Senders whose large messages are put together at the same time: no ring has more members."""


class Pieces:
    """The beginning of a large message: its sender's number for it, and what came so far."""

    __slots__ = ("first", "parts", "size")

    def __init__(self, first: Seq) -> None:
        self.first = first
        self.parts: list[bytes] = []
        self.size = 0


GIVEN_UP = b""
"""What is delivered in the place of a message larger than ``max_message``, which no correct member
sends: readers get to know that something is missing there."""


class Assembler:
    """R98-R100: puts the pieces of each sender's message together again, in bounded memory.

    A sender's pieces come in order and without gap or not at all, so a piece that does not
    continue what is there ends the assembly (R73: a message that is not whole is dropped whole).

    Senders refuse what is larger than ``max_message``, so with that setting the same everywhere
    no message of a correct sender is given up for its size, and a ring of n members holds at most
    n times ``max_message`` here. A bound on the sum would have to drop a message that already has
    its place in the order: all members could drop the same one, since what is held follows from
    the order alone, but its sender would miss its own message (D3). Memory is bounded by choosing
    ``max_message``.
    """

    __slots__ = ("begun", "dropped", "max_message")

    def __init__(self, max_message: int) -> None:
        self.max_message = max_message
        self.dropped = 0
        """Messages given up, and pieces that continue nothing."""
        self.begun: dict[NodeId, Pieces] = {}
        """By sender, what is not whole yet."""

    @property
    def held(self) -> int:
        """Bytes of messages that are not whole yet."""
        return sum(begun.size for begun in self.begun.values())

    def add(self, sender: NodeId, contents: Contents) -> tuple[bytes, ...] | None:
        """The messages that are whole with this frame, or None while one is still in pieces."""
        if contents.last and contents.part == 0:
            if self.begun:
                self._drop(sender)
            return contents.bodies
        begun = self._continued(sender, contents)
        if begun is None:
            self.dropped += 1
            return None
        (piece,) = contents.bodies
        begun.parts.append(piece)
        begun.size += len(piece)
        if begun.size > self.max_message:
            self._drop(sender)
            return (GIVEN_UP,)
        if not contents.last:
            return None
        del self.begun[sender]
        return (b"".join(begun.parts),)

    def _continued(self, sender: NodeId, contents: Contents) -> Pieces | None:
        """What this piece is added to: a new message, or the very one it is the next part of."""
        begun = self.begun.get(sender)
        if (
            begun is not None
            and contents.first == begun.first
            and contents.part == len(begun.parts)
            and len(contents.bodies) == 1
        ):
            return begun
        self._drop(sender)
        if contents.part != 0 or len(contents.bodies) != 1 or len(self.begun) >= MOST_SENDERS:
            return None
        begun = self.begun[sender] = Pieces(contents.first)
        return begun

    def _drop(self, sender: NodeId) -> None:
        if self.begun.pop(sender, None) is not None:
            self.dropped += 1
