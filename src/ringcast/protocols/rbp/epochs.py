"""The seam between the log and the part that chooses the next epoch (rbp L3).

An epoch is a ring with a tag. The log and epoch core (``log``, ``ordering``, ``delivery``,
``install``) orders messages within one epoch, notices that it does not go on, and begins the next
one. Which one that is, somebody else decides: reformation, or the consensus on views of a protocol
that builds on this one. Both sides know only what is declared here.

A machine makes a ``Chooser`` and keeps it as ``chooser``. The core calls its methods; it calls the
methods of ``EpochCore``, which the machine itself offers. Frames and timers of the chooser are
cells of its machine's table, next to those of the core (``machine.core_cells``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, ClassVar, Protocol, TypeAlias

import msgspec

from ringcast.blocks.packing import Contents
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId, Seq, ViewId
from ringcast.protocols.rbp.config import MAX_MEMBERS, Config

NOBODY = ViewId(0, 1)
"""Before every view."""


class Epoch(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """The tag of an epoch, totally ordered (2.0).

    ``view`` is the regular view, which the application sees; DATA is tagged by it alone. ``step``
    counts the i-views within it: RBP has none, so there it is 0.
    """

    view: ViewId
    step: Seq = 0

    def __str__(self) -> str:
        return f"{self.view}" + (f".{self.step}" if self.step else "")


NEVER = Epoch(NOBODY)
"""The tag of what precedes every entry."""


class Seat(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member: a site, and which of its lives it is (A3). A life that was excluded or crashed
    never comes back; the site does, in another one."""

    node: NodeId
    life: Seq


class EpochConfig(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """config(e) of 2.0: all that begins with an epoch, the same at all its members.

    ``seats`` is M in its order, ``core`` is C in ring order and begins with first(e). Members that
    are not in the core are external. ``start`` and ``base`` are number and tag of the last entry
    before the epoch: numbers go on at start + 1 (G25), and whoever is a member and not new is
    *aligned* once its log reaches start with an entry of that tag.

    ``decided`` is how far everything may be delivered at once, in the view before: whoever chose
    the epoch has proof that every later one contains it. It is start if all members are known to
    be aligned or new, or the decision carries the entries (a regular view of consensus); 0 if the
    evidence of the new ring is needed (an i-view). ``parent`` is the view whose log this is, None
    if the group begins anew.
    """

    epoch: Epoch
    seats: Annotated[tuple[Seat, ...], msgspec.Meta(min_length=1, max_length=MAX_MEMBERS)]
    core: Annotated[tuple[NodeId, ...], msgspec.Meta(min_length=1, max_length=MAX_MEMBERS)]
    start: Seq
    base: Epoch
    decided: Seq
    parent: ViewId | None

    @property
    def members(self) -> tuple[NodeId, ...]:
        """M, in its order."""
        return tuple(seat.node for seat in self.seats)

    @property
    def lives(self) -> dict[NodeId, int]:
        """Which of its lives each member is in."""
        return {seat.node: seat.life for seat in self.seats}

    @property
    def external(self) -> tuple[NodeId, ...]:
        """X: members that hear and do not hold the token."""
        return tuple(node for node in self.members if node not in self.core)

    def after(self, node: NodeId) -> NodeId:
        """The successor in the ring."""
        core = self.core
        return core[(core.index(node) + 1) % len(core)]


class Ids(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive bodies of one source: its counters ``first .. last`` within the view."""

    source: NodeId
    first: Seq
    last: Seq


Key: TypeAlias = tuple[ViewId, NodeId, int]
"""The id of a body: the view, the source, and its counter there."""


class Data(msgspec.Struct, frozen=True, array_like=True, tag=140, gc=False):
    """DATA: body ``counter`` of ``source`` in ``view`` (R1). Counters begin at 1 in each view: the
    id of a body is (view, source, counter), and what a view leaves unordered is submitted to the
    next one anew (G43, G44)."""

    group: Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
    view: ViewId
    source: NodeId
    counter: Seq
    level: Level
    contents: Contents

    @property
    def key(self) -> Key:
        """Its id."""
        return self.view, self.source, self.counter

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return 32 + self.contents.wire_bytes()


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Entry ``number`` of the log, given in epoch ``tag``; a null one names nothing (G16). It is
    *held* by whoever has it and every body it names (2.0)."""

    number: Seq
    tag: Epoch
    ids: Annotated[tuple[Ids, ...], msgspec.Meta(max_length=MAX_MEMBERS)]

    def names(self) -> Iterator[Key]:
        """The ids of its bodies, in order."""
        view = self.tag.view
        for each in self.ids:
            for counter in range(each.first, each.last + 1):
                yield view, each.source, counter

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return 24 + 16 * len(self.ids)


class Extent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a log reaches, as its owner tells when it is frozen (F5, I6).

    ``tail`` is the tag of the last held entry and ``number`` its number, ``delivered`` how far it
    was delivered, ``floor`` the number up to which entries were let go.
    """

    tail: Epoch
    number: Seq
    delivered: Seq
    floor: Seq


class Trouble(StrEnum):
    """Why the core asks for another epoch (2.3)."""

    STALL = "no progress"
    """R18: no new number for too long; nobody in particular is suspected."""
    NEXT = "next is silent"
    """R19: the member that was passed the token does not answer."""
    ISSUER = "the issuer is silent"
    """R20: we are next, and nobody has the entries or bodies we need."""


class EpochCore(Protocol):
    """L3: what a chooser may ask of the core: its machine."""

    me: NodeId
    boot: int
    life: int
    """Which life of this site takes part."""
    config: Config
    current: EpochConfig | None
    """The epoch installed last, none before the first."""

    def freeze(self, env: Env) -> Extent:
        """F5, I5: issue nothing more in this epoch, ever; say how far the log reaches.

        Frozen already, it tells the same again, with what was filed since."""

    def extent(self) -> Extent:
        """How far the log reaches."""

    def aligned(self, config: EpochConfig) -> bool:
        """2.0: whether the log reaches the start of an epoch with the right tag there."""

    def read(self, after: int, to: int, most: int) -> tuple[Entry, ...] | None:
        """Held entries after ``after``, up to ``to``, the first ``most`` of them; None if they were
        let go (GONE)."""

    def bodies(self, entries: tuple[Entry, ...]) -> tuple[Data, ...]:
        """Every body that held entries name, in order."""

    def keep(self, env: Env, entries: tuple[Entry, ...], bodies: tuple[Data, ...] = ()) -> None:
        """File recovered entries, in ascending order and without gaps, and bodies of theirs.

        Entries that the log has are ignored; one with another tag proves that the log must be cut
        there (I11). Bodies that are missing the core asks for by itself; whenever the log has
        grown, it tells ``Chooser.grown``."""

    def install(self, env: Env, config: EpochConfig) -> None:
        """Begin an epoch: deliver up to ``decided`` in the view before, void what is above start,
        tell the application if the view is another, and order again (R14, I10, I13)."""

    def leave_epoch(self, env: Env, why: str) -> None:
        """The view goes on without this member, which has delivered all of it: take a new life,
        in no epoch (F15). Messages that were not ordered wait for the next view."""


class Chooser(ABC):
    """L3: the part that chooses the next epoch, as the core sees it."""

    judged_by: ClassVar[str]
    """What says that a member is silent, for the application (``Departure``)."""
    one_epoch: ClassVar[bool]
    """Whether a view has one epoch, so that a number of it has one entry. Otherwise our log may be
    void where the rings of our view went on without us, and is told to nobody before we know."""

    @abstractmethod
    def start(self, env: Env) -> None:
        """The processor has started, in no epoch."""

    @abstractmethod
    def trouble(self, env: Env, why: Trouble, node: NodeId | None) -> None:
        """The ring does not go on; ``node`` is suspected, if anybody is."""

    @abstractmethod
    def other_epoch(self, env: Env, src: NodeId, epoch: Epoch) -> None:
        """R16: ``src`` sent a frame of another epoch: of a lower one, so it should hear of ours, or
        of a higher one, so we should ask (CONFIG)."""

    @abstractmethod
    def grown(self, env: Env) -> None:
        """The log reaches further than before, by entries that were recovered."""

    @abstractmethod
    def installed(self, env: Env) -> None:
        """The core has begun ``current``."""

    def turn(self, env: Env) -> bool:
        """We hold the token and could issue a number. True if a change was begun instead, which has
        frozen the core: here is the one place where nobody else begins the same."""
        return False

    @abstractmethod
    def leaving(self, env: Env) -> None:
        """The application leaves for good (F15, I18): stop when the others can do without us."""

    @abstractmethod
    def snapshot(self) -> dict[str, object]:
        """State for people, at least ``blocked``: whether too few are here to go on (G46)."""
