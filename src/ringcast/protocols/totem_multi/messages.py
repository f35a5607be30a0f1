"""What the multiple-ring layer says to its like, inside frames of single rings (dossier 2.1).

All messages of a frame are of one sort. The frame's stamp has the sort, the timestamp (of the first
Ack or Bound, if there are several) and, with an application's messages, their number. It is put
there when the ring transmits the frame (MR-9); a message that is cut into frames has it in the last
of them, with which it has its place in the order. An application's messages travel as they are,
everything else is a Struct as MessagePack. Whatever a peer sent is looked at by ``legible`` and
``read`` first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from hashlib import blake2b
from typing import Annotated, NamedTuple, Self, TypeAlias

import msgspec

from ringcast.core.errors import UNREADABLE
from ringcast.core.ids import Level, NodeId, Seq, ViewId
from ringcast.protocols.totem_single.messages import LAST, RingId

FORWARDED_BYTES = 56
"""What Forwarded adds to an application's messages, unless its numbers are very large."""

LAST_TIMESTAMP = 2**40
"""Largest timestamp accepted from others: views have room for it, and for a ring's number."""

NO_RING = RingId(0, 1)
"""The conf_id of what changes no configuration."""

MOST_RINGS = 4096
"""Rings, gateways or changes that one message may list; a network of this size would not work."""


ACK, BOUND, WANTS = 2, 3, 10
"""Tags of what is stamped where it is said."""


class Sort:
    """What the messages of a frame are. Plain numbers, as they come from the wire: to compare and
    to look up members of an Enum takes longer, and every frame has one."""

    AGREED = 0  # an application's
    SAFE = 1  # an application's
    SAID = 2  # the protocol's own
    SOME = 3  # F1, F6: an application's, not for all; each has a timestamp and a number


LEVELS = (Level.AGREED, Level.SAFE)
"""The level of an application's messages, by sort."""


MOST_NAMED = 1024
"""Processors that one message may be for."""


class Rank(IntEnum):
    """The type of an ordered message, as it counts in the order (dossier 1.4).

    A Configuration Change and its Topology Change have one place, that of the latter (A9): nothing
    is delivered between them.
    """

    SHRINK = 0  # a Transitional Topology Change, just before the safe message
    REGULAR = 1
    CHANGE = 3
    UNHEARD = 4  # deletes a ring from which nothing was heard


class Key(NamedTuple):
    """A place in the order of the whole network: the dossier's four fields, and A9's digest."""

    timestamp: Seq
    ring: RingId
    rank: int = Rank.REGULAR
    conf: RingId = NO_RING
    digest: Seq = 0

    def __str__(self) -> str:
        name = Rank(self.rank).name.lower()
        return f"{self.timestamp}@{self.ring}" + ("" if name == "regular" else f" {name}")


SafeKey: TypeAlias = tuple[Seq, RingId]
"""Names a safe message, or any other: timestamp and ring are enough."""

Keys = Annotated[tuple[SafeKey, ...], msgspec.Meta(max_length=MOST_RINGS)]


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One interface on a ring: its id there, the processor it belongs to, and whether that has
    further interfaces, which makes it a gateway."""

    pid: NodeId
    node: NodeId
    gateway: bool


Members = Annotated[tuple[Member, ...], msgspec.Meta(max_length=MOST_RINGS)]

Receipts = Annotated[tuple[tuple[NodeId, Keys, Keys], ...], msgspec.Meta(max_length=MOST_RINGS)]
"""Which safe messages the members of a ring acknowledged, and refused, in its stream."""


Processors = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MOST_NAMED)]


GroupKey = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
"""F6: which group a message is for; 0: everybody."""

MOST_WANTED = 1024
"""Groups that one word lists; a processor that is in more says that it wants everything."""


class Addressed(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """F1, F6: a message of an application for some processors, ascending, or for a group."""

    level: Level
    to: Processors
    body: bytes
    group: GroupKey = 0

    def __post_init__(self) -> None:
        if bool(self.to) == bool(self.group):
            raise ValueError("for some processors, or for a group")


class Data(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Messages of an application, numbers ``first`` .. of their sender's life."""

    sender: NodeId
    level: Level
    first: Seq
    bodies: tuple[bytes, ...]
    to: Processors = ()
    """F1: the only processors that deliver them, ascending; empty: all."""
    group: GroupKey = 0
    """F6: the group that they are for."""

    @property
    def hollow(self) -> bool:
        """F7: whether it is the place of a group's message; its sender is who withheld that."""
        return bool(self.group) and not self.bodies


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=ACK, gc=False):
    """A1: the sender has stored these safe messages. It is not forwarded.

    A4 ext: and it has refused those, for they came from rings that it has not joined.
    """

    keys: Keys
    refused: Keys = ()


class Bound(msgspec.Struct, frozen=True, array_like=True, tag=BOUND, gc=False):
    """The Guarantee Vector, MR-16: nothing older will come from the ring that stamps it.

    Instead of a vector it has what was acknowledged in the stream of ``speaks_for`` (4.7).
    """

    speaks_for: RingId
    receipts: Receipts


class Wants(msgspec.Struct, frozen=True, array_like=True, tag=WANTS, gc=False):
    """F6: from here on this processor is in these groups and in no others; in 0: it wants all."""

    node: NodeId
    groups: Annotated[tuple[GroupKey, ...], msgspec.Meta(max_length=MOST_WANTED)]


class Forwarded(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """MR-12: what a gateway passes on, with the stamp and the ring it was given at its origin.

    ``via`` is the transitional ring in which it was handed up there, if it was in one (G-9).
    ``since`` is the change by which that stream came to who passes it on; None: it is known there
    from its beginning. ``late``: it waited for a change there, while what follows it was passed on
    (MR-12 ext).
    """

    timestamp: Seq
    ring: RingId
    via: RingId | None
    message: Data | Bound | Wants
    since: SafeKey | None = None
    late: bool = False

    @property
    def words(self) -> tuple[RingId, Receipts]:
        """Who has which safe message, and in which stream they said so. MR-15: a Bound that waited
        while its ring changed speaks for the ring before: its words are not noted, and must not
        stay news."""
        ring, bound = self.via or self.ring, self.message
        if isinstance(bound, Bound) and bound.speaks_for in (ring, self.ring):
            return ring, bound.receipts
        return ring, ()


WITHHELD = Bound(NO_RING, ())
"""F2: forwarded in place of a message that is for nobody beyond: its place as a bound, no more."""


class Denied(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """A4 ext: a gateway refused this safe message, so it does not pass it on. Those beyond, which
    others may count on, refuse it as well unless it comes to them another way.

    It is no part of its ring's stream: what was agreed before it is not told.
    """

    timestamp: Seq
    ring: RingId
    via: RingId | None

    @property
    def key(self) -> Key:
        """The place of the message."""
        return Key(self.timestamp, self.ring)


class Admitted(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """T2: the sender has delivered the change to this ring, so it takes what all gateways on it
    pass on. It is not forwarded, and has no place in the order."""

    ring: RingId


Withheld: TypeAlias = tuple[
    RingId,
    RingId | None,
    GroupKey,
    NodeId,
    SafeKey | None,
    Annotated[tuple[Seq, ...], msgspec.Meta(max_length=MOST_RINGS)],
]
"""F8: of one stream and one group, what one gateway withheld: the timestamps of messages."""

Passed: TypeAlias = tuple[Seq, RingId, RingId | None, SafeKey | None]
"""F3: how far a stream has come."""


class Promises(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """F3: how far streams have come of which the latest messages were withheld. F8: and where
    those of groups are."""

    places: Annotated[tuple[Passed, ...], msgspec.Meta(max_length=MOST_RINGS)]
    groups: Annotated[tuple[Withheld, ...], msgspec.Meta(max_length=MOST_RINGS)] = ()

    @classmethod
    def of(cls, withheld: Iterable[Forwarded]) -> Self:
        """As one message."""
        places: list[Passed] = []
        groups: dict[tuple[RingId, RingId | None, int, NodeId, SafeKey | None], list[Seq]] = {}
        for each in withheld:
            if isinstance(each.message, Data):
                of = each.message
                stream = (each.ring, each.via, of.group, of.sender, each.since)
                groups.setdefault(stream, []).append(each.timestamp)
            else:
                places.append((each.timestamp, each.ring, each.via, each.since))
        return cls(tuple(places), tuple((*key, tuple(at)) for key, at in groups.items()))

    def each(self) -> Iterator[Forwarded]:
        """What each of them would have been by itself, in the order of their places."""
        found = [Forwarded(at, ring, via, WITHHELD, since) for at, ring, via, since in self.places]
        for ring, via, group, by, since, stamps in self.groups:
            hollow = Data(by, Level.AGREED, 0, (), (), group)
            found += (Forwarded(at, ring, via, hollow, since) for at in stamps)
        return iter(sorted(found, key=lambda each: (each.timestamp, each.ring)))


class Change(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """The Configuration Change: members of ``conf`` are on ``ring`` from ``timestamp`` on."""

    timestamp: Seq
    ring: RingId
    conf: RingId
    members: Members
    transitional: bool
    receipts: Receipts = ()  # acknowledged in the stream of conf, and in no Bound of it
    since: SafeKey | None = None  # as in Forwarded, of conf

    @property
    def key(self) -> Key:
        """Its place, but for the digest of what it leads to."""
        return Key(self.timestamp, self.ring, Rank.CHANGE, self.conf)

    @property
    def words(self) -> tuple[RingId, Receipts]:
        """As in Forwarded, of conf."""
        return self.conf, self.receipts

    @property
    def is_older_than_its_stream(self) -> bool:
        """A11 ext: it came late with a gateway that a later change joined (``since``). Whoever has
        not applied that one would take this one ahead of it, and others behind it."""
        return self.since is not None and (self.timestamp, self.ring) < self.since

    def lists(self, pid: NodeId) -> bool:
        """Whether an interface is on the new ring."""
        return any(member.pid == pid for member in self.members)


class RingEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A ring of a topology, and its members."""

    ring: RingId
    members: Members


Ends = Annotated[tuple[tuple[NodeId, RingId], ...], msgspec.Meta(max_length=MOST_RINGS)]


class NetworkGraph(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Rings, and gateways with the ring at each of their interfaces."""

    rings: Annotated[tuple[RingEntry, ...], msgspec.Meta(max_length=MOST_RINGS)]
    gateways: Annotated[tuple[tuple[NodeId, Ends], ...], msgspec.Meta(max_length=MOST_RINGS)]
    late: Annotated[tuple[Change, ...], msgspec.Meta(max_length=MOST_RINGS)] = ()
    cut: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MOST_RINGS)] = ()
    """G-20 ext: those of the gateways of which an interface was lost."""


class NetworkTopology(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """MR-24: what a gateway of the new ring ``ring`` can reach, for the others on that ring."""

    timestamp: Seq
    ring: RingId
    gateway: NodeId
    graph: NetworkGraph


class TopologyChange(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """MR-25: what the change of ``conf`` to ``ring`` leads to, for those far from that ring."""

    timestamp: Seq
    ring: RingId
    conf: RingId
    graph: NetworkGraph

    @property
    def key(self) -> Key:
        """Its place, but for the digest."""
        return Key(self.timestamp, self.ring, Rank.CHANGE, self.conf)

    @property
    def change(self) -> tuple[RingId, RingId]:
        """Which Configuration Change it belongs to."""
        return self.ring, self.conf


Said: TypeAlias = (
    Addressed
    | Admitted
    | Ack
    | Bound
    | Denied
    | Wants
    | Forwarded
    | Promises
    | Change
    | NetworkTopology
    | TopologyChange
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Said).decode


def written(said: Said) -> bytes:
    """As one message of a ring."""
    return _encode(said)


def fresh(bodies: tuple[bytes, ...]) -> int:
    """How many of these are stamped here: Ack, Bound and Wants. The others bring their timestamps
    along. The tag of a Struct is the second byte."""
    return sum(body[1] in (ACK, BOUND, WANTS) for body in bodies)


def read(body: bytes) -> Said | None:
    """What is said in a message; None if malformed."""
    try:
        said: Said = _decode(body)
    except (*UNREADABLE, ValueError):
        return None
    return said


def legible(stamp: tuple[int, int, int]) -> bool:
    """Whether a peer's stamp is one."""
    sort, timestamp, first = stamp
    return sort <= Sort.SOME and 0 < timestamp <= LAST_TIMESTAMP and first <= LAST


def digest(reported: tuple[tuple[RingId, tuple[NodeId, ...]], ...]) -> int:
    """A9: 31 bits that tell one list of rings and members from another, never 0."""
    text = ";".join(f"{ring}:{members}" for ring, members in reported)
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest()) >> 1 or 1


RING_BITS = 22
"""In a view's number the ring's own stands behind the timestamp, so that views rise."""


def view_of(key: Key, reported: tuple[tuple[RingId, tuple[NodeId, ...]], ...]) -> ViewId:
    """G-8: a topology is named by the place of its change and by what is in it."""
    number = key.timestamp << RING_BITS | key.ring.seq % 2**RING_BITS
    return ViewId(number, digest(((key.ring, ()), *reported)))
