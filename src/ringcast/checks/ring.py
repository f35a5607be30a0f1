"""Rings, and what is known of frames, processors and their stays in a ring.

A *ring* is a regular configuration, a *span* is a
processor's stay in a ring: from its ``conf`` of the ring to its next regular one, so the ring and
the transitional configuration after it. Each frame of a ring gets an ``index`` 1, 2, … in the
order in which frames appear in the trace, so that what a processor delivered is one interval
nearly always, whatever numbers the protocol passed over silently.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.seqset import SeqSet
from ringcast.core.trace import Delivered, Installed, Originated


class State(IntEnum):
    """Where a member stands with a ring; from ``LEFT`` on it will never deliver in it again."""

    WAITING = 0
    OPEN = 1
    LEFT = 2
    SKIPPED = 3
    CRASHED = 4
    STRAY = 5


class PlacedFrame:
    """Messages of one sender that share a place ``(ring, seq)`` in the order.

    The first event that names the place says what it holds. Index 0 stands for a frame that was
    trimmed and now turns up again.
    """

    __slots__ = (
        "digests",
        "first",
        "incarnation",
        "index",
        "level",
        "losses",
        "marks",
        "origin_us",
        "ring",
        "sender",
        "seq",
        "told_by",
    )

    told_by: NodeId
    losses: int
    sender: NodeId
    incarnation: int
    level: Level
    first: int
    digests: tuple[int, ...]

    def __init__(self, ring: CheckedRing, seq: int, index: int) -> None:
        self.ring = ring
        self.seq = seq
        self.index = index
        self.origin_us: int | None = None  # None: nobody originated it (so far)
        self.marks: dict[str, Any] = {}  # what properties keep with it, by tag

    def fill(
        self, event: Originated | Delivered, sender: NodeId, incarnation: int, losses: int
    ) -> None:
        """Take over whose it is and what it holds."""
        self.told_by = event.node
        self.losses = losses  # of storage, by anybody, when it was told
        self.sender = sender
        self.incarnation = incarnation
        self.level = event.level
        self.first = event.first
        self.digests = event.digests

    def holds(self, event: Originated | Delivered, sender: NodeId) -> bool:
        """Whether the event tells the same of it: sender, number, level and contents."""
        return (
            self.digests == event.digests
            and self.sender == sender
            and self.first == event.first
            and self.level == event.level
        )

    def __str__(self) -> str:
        return f"{self.ring.view}:{self.seq}.0"


class RingStay:
    """The stay of one processor in one ring, and what it delivered there."""

    __slots__ = (
        "conf",
        "count",
        "earlier",
        "former",
        "highest",
        "incarnation",
        "node",
        "prefix",
        "regular",
        "ring",
        "state",
        "stray",
        "then",
        "transitional",
    )

    def __init__(self, ring: CheckedRing, node: CheckedMember, state: State) -> None:
        self.ring = ring
        self.node = node.id
        self.incarnation = node.incarnation
        self.state = state
        self.conf: Installed | None = None  # how the processor itself told of the ring
        self.regular = SeqSet()  # indices delivered in the ring itself
        self.then: Installed | None = None  # the transitional configuration after it
        self.transitional = SeqSet()  # indices delivered there
        # What a wrong trace may have besides: indices delivered before the processor went to the
        # same ring, or to another transitional configuration; and those delivered elsewhere.
        self.earlier = SeqSet()
        self.former = SeqSet()  # in the transitional configuration before the present one
        self.stray = SeqSet()
        self.count = 0  # deliveries in the present configuration of the span
        self.prefix = 0  # every index up to here was delivered
        self.highest = 0  # and none above this one

    def holds(self, index: int) -> bool:
        """Whether the frame with this index was delivered."""
        if index <= self.prefix:
            return True
        return index <= self.highest and any(index in each for each in self.delivered)

    def keeps(self, index: int) -> bool:
        """Whether it was delivered inside the span, and not before or after it."""
        if not self.stray:
            return self.holds(index)
        return any(index in each for each in (self.regular, self.transitional, self.earlier))

    @property
    def delivered(self) -> tuple[SeqSet, ...]:
        """All indices that were delivered."""
        return self.regular, self.transitional, self.earlier, self.stray

    def follow(self, before: RingStay) -> None:
        """The processor was in the ring before, and left it for the same one."""
        for each in before.delivered[:-1]:
            self.earlier.add_all(each)
        self.stray = before.stray
        self.prefix, self.highest = before.prefix, before.highest

    def enter(self, then: Installed | None) -> None:
        """The processor is in another configuration of the span: in the ring itself, or in a
        transitional one, of which a wrong trace may have several."""
        if self.then is not None:
            self.earlier.add_all(self.transitional)
            self.former = self.transitional
            self.transitional = SeqSet()  # who made the same step is compared with the former one
        self.then = then
        self.count = 0

    def add(self, index: int) -> None:
        """The frame with this index is delivered, in the present configuration."""
        if self.state is not State.OPEN:
            self.stray.add(index)
        elif self.then is None:
            self.regular.add(index)
        else:
            self.transitional.add(index)
        self.count += 1
        if self.prefix == self.highest == index - 1:  # the usual case: the next one
            self.prefix = self.highest = index
            return
        self.highest = max(self.highest, index)
        while self.prefix < self.highest and self.holds(self.prefix + 1):
            self.prefix += 1

    def add_range(self, low: int, high: int) -> None:
        """The frames with these indices, new ones, are delivered in the ring itself."""
        self.regular.add_range(low, high)
        self.count += high - low + 1
        if self.prefix == low - 1:
            self.prefix = high
        self.highest = high

    def lacks(self, low: int, high: int) -> int | None:
        """The lowest index of ``low .. high`` that was not delivered, if any."""
        index = max(low, self.prefix + 1)
        while index <= high:
            end = max(each.all_up_to(index - 1) for each in self.delivered)
            if end < index:
                return index
            index = end + 1
        return None


class CheckedRing:
    """A regular configuration: its members' spans and the frames originated in it."""

    __slots__ = (
        "frames",
        "last_index",
        "marks",
        "members",
        "spans",
        "stretched_seq",
        "trimmed",
        "trimmed_seq",
        "view",
    )

    def __init__(self, view: ViewId, members: tuple[NodeId, ...]) -> None:
        self.view = view
        self.members = members
        self.spans: dict[NodeId, RingStay] = {}
        self.frames: dict[int, PlacedFrame] = {}  # by seq, in order of appearance
        self.last_index = 0
        self.trimmed = 0  # frames up to this index are forgotten: all members delivered them
        self.trimmed_seq = 0  # the highest number of them
        self.stretched_seq = 0  # and of stretches, of which nothing is told again
        self.marks: dict[str, Any] = {}  # what properties keep with it, by tag

    @property
    def over(self) -> bool:
        """Whether nobody can deliver in it any more."""
        return all(span.state >= State.LEFT for span in self.spans.values())

    def frame(self, index: int) -> PlacedFrame | None:
        """The frame with this index, unless it is forgotten. For explanations: it searches."""
        return next((f for f in self.frames.values() if f.index == index), None)

    def name(self, index: int) -> str:
        """The message id of the frame with this index."""
        return str(self.frame(index) or f"{self.view}, frame {index}")


class CheckedMember:
    """What is known of one processor."""

    __slots__ = (
        "born_seq",
        "crashes",
        "current",
        "id",
        "incarnation",
        "last_seq",
        "left",
        "previous",
        "span",
        "up",
        "waiting",
    )

    def __init__(self, id: NodeId) -> None:
        self.id = id
        self.up = True
        self.incarnation = 1
        self.crashes = 0
        self.current: Installed | None = None  # the configuration it is in
        self.previous: Installed | None = None  # the one before, of the same incarnation
        self.span: RingStay | None = None
        self.left: RingStay | None = None  # the span that its latest conf ended
        self.last_seq = 0  # largest regular sequence number, over all incarnations
        self.born_seq = 0  # that of this incarnation's first configuration
        self.waiting: dict[ViewId, RingStay] = {}  # rings that count on it and it did not install
