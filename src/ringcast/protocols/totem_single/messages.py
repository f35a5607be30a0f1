"""The frames of the Totem single-ring protocol (dossier section 2.2), and what makes one bad.

The same objects travel by reference in the simulator and as MessagePack on the wire; msgspec
checks types and ranges when it decodes, ``malformed`` checks what types cannot say (R4).
"""

from __future__ import annotations

import itertools
from typing import Annotated, TypeAlias

import msgspec

from ringcast.blocks.packing import Contents
from ringcast.core.ids import LIMIT, Level, NodeId, Seq, ViewId

RingId: TypeAlias = ViewId
"""The paper's ring identifier: sequence number first, then the representative (G26)."""

MAX_MEMBERS = 100
"""Largest ring; the paper's max_proc_ring is 60. A Join carries a row of who hears whom for each
member, which for 100 members is 50 kB at worst: below the largest datagram."""

Ids = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_MEMBERS)]
"""A set of processors, as a sorted tuple."""

LAST = LIMIT - 2**20
"""Largest number accepted from others: it leaves room for those that follow it (G28)."""


Ride: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=8192)] | None
"""What a rider adds to token, Commit token and Join (rider.py); None without one."""

Stamp: TypeAlias = tuple[Seq, Seq, Seq] | None
"""What a rider adds to messages: numbers, since every frame has them; None without one."""

STAMP_BYTES = 19
"""What a stamp takes in a frame, at most."""

REACH = 2**40
"""R32: how much one frame may raise the largest ring number known. Rings formed every millisecond
take nine years for that, and a member that was away hears of more by several Joins."""


class Regular(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A message, or several packed, or a piece of one, with its place on a ring."""

    sender_id: NodeId
    ring_id: RingId
    seq: Seq
    service: Level
    contents: Contents
    stamp: Stamp = None

    def wire_bytes(self) -> int:
        """Encoded size with the common header, to within a few bytes."""
        size = HEADER_BYTES + self.contents.wire_bytes()
        return size + STAMP_BYTES if self.stamp else size


class Encapsulated(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """An old-ring message sent again on the ring that is being formed (R60).

    ``rank`` is the place on that ring of the member that put it there, whose old ring it is of: the
    name of a ring may be used twice if somebody lost its storage (G38 ext).
    """

    ring_id: RingId
    seq: Seq
    inner: Regular
    rank: Annotated[int, msgspec.Meta(ge=0, lt=MAX_MEMBERS)]

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return ENCAPSULATION_BYTES + self.inner.wire_bytes()


class Token(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The regular token: whoever has it may number and broadcast messages."""

    ring_id: RingId
    token_seq: Seq  # tells a new token from a copy sent again (R10)
    seq: Seq  # highest number given to a message on this ring
    aru: Seq  # all received up to, over the ring
    aru_id: NodeId | None  # who lowered aru; None when nobody lags
    rtr: Annotated[tuple[Seq, ...], msgspec.Meta(max_length=4096)]  # numbers somebody misses
    retrans_round: Seq  # retransmissions in the last rotation (R85)
    retrans_flg: bool  # somebody still has old-ring messages to send again (R61)
    ride: Ride = None

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return HEADER_BYTES + 5 * len(self.rtr) + len(self.ride or b"")


class Hearing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Whom one processor hears: a row of the who-hears-whom matrix, with the row's age.

    ``(ring_seq, count)`` orders the rows of one processor over all its incarnations, because
    ring sequence numbers survive a crash (R5).
    """

    node: NodeId
    ring_seq: Seq
    count: Seq
    hears: Ids


class Join(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """A proposal for the next membership (R33)."""

    sender_id: NodeId
    ring_seq: Seq  # of the ring the sender gave up (G9)
    proc_set: Ids
    fail_set: Ids
    rotation_count: Seq
    window_size: Seq = 0  # R90: for the report of a mismatch
    hearing: Annotated[tuple[Hearing, ...], msgspec.Meta(max_length=MAX_MEMBERS)] = ()
    ride: Ride = None

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        rest = sum(12 + 3 * len(row.hears) for row in self.hearing) + len(self.ride or b"")
        return HEADER_BYTES + 3 * (len(self.proc_set) + len(self.fail_set)) + rest


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one member tells the others about its old ring in the Commit token.

    ``old_memb_crc`` guards against a processor that lost its stable storage and used the number
    of an earlier ring again (G38 ext): a ring is the same only if its members are, since all of
    them had to sign, and one that remembers the first would not have signed the second.
    """

    my_old_ring_id: RingId
    old_memb_crc: Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
    old_ring_my_aru: Seq
    my_received_flg: bool
    my_high_delivered: Seq
    received_in: RingId | None  # the ring whose recovery completed the exchange (G17)
    boot: Seq  # the incarnation that signs; frames of another are not of this ring (G38 ext)


class CommitToken(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """Goes round twice: the first rotation collects the entries, the second shows them to all."""

    ring_id: RingId
    token_seq: Seq
    memb: Ids  # representative first, then ascending
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=MAX_MEMBERS)]
    ride: Ride = None

    @property
    def memb_index(self) -> int:
        """Entries filled so far."""
        return len(self.entries)

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        rest = 40 * len(self.entries) + len(self.ride or b"")
        return HEADER_BYTES + 3 * len(self.memb) + rest


class Announce(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """Says that a ring exists, so that idle rings find each other (R94).

    ``heard`` names outsiders heard lately and ``apart`` the links (who does not hear whom) that
    keep others out of this ring: that is how two rings separated by a bad link stay apart in
    peace, and learn that it is whole again (R43 ext). ``calls`` asks the members of the ring for a
    token that rests (R92 ext).
    """

    ring_id: RingId
    sender_id: NodeId
    memb: Ids = ()
    heard: Ids = ()
    apart: Annotated[tuple[tuple[NodeId, NodeId], ...], msgspec.Meta(max_length=4096)] = ()
    calls: bool = False

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return HEADER_BYTES + 3 * (len(self.memb) + len(self.heard)) + 7 * len(self.apart)


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """A member says that it leaves its ring for good, so that nobody waits for it (ext)."""

    ring_id: RingId
    sender_id: NodeId

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return HEADER_BYTES


Frame: TypeAlias = Regular | Encapsulated | Token | Join | CommitToken | Announce | Leave

HEADER_BYTES = 64
"""Room for the common header and a frame's fixed fields (the longest, Regular's, is 58)."""

ENCAPSULATION_BYTES = 24
"""What Encapsulated adds; kept free in every Regular so that it can be sent again (R83)."""


def malformed(frame: msgspec.Struct, src: NodeId) -> str | None:
    """R4: why a frame must not be acted upon, as a fixed phrase, or None."""
    if isinstance(frame, Regular):
        return "malformed message" if frame.seq == 0 or not frame.contents.bodies else None
    if isinstance(frame, Token):
        return "malformed token" if _bad_token(frame) else None
    match frame:  # the others are rare
        case Encapsulated():
            bad = frame.seq == 0 or frame.inner.seq == 0 or not frame.inner.contents.bodies
            return "malformed encapsulated message" if bad else None
        case Join():
            return "malformed Join" if _bad_join(frame, src) else None
        case CommitToken():
            memb = frame.memb
            bad = not memb or memb[0] != min(memb) or not ascending(memb)
            bad = bad or memb[0] != frame.ring_id.rep or not 0 < frame.memb_index <= len(memb)
            bad = bad or max(frame.token_seq, frame.ring_id.seq) > LAST
            bad = bad or any(_bad_entry(entry, frame.ring_id) for entry in frame.entries)
            return "malformed Commit token" if bad else None
        case Announce() | Leave():
            return "malformed notice" if frame.sender_id != src else None
        case _:
            return None


def _bad_token(token: Token) -> bool:
    """Counters out of order or out of range, requests unsorted or for what does not exist."""
    rtr, seq = token.rtr, token.seq
    if rtr and (rtr[0] == 0 or rtr[-1] > seq or not ascending(rtr)):
        return True
    return token.aru > seq or seq > LAST or token.token_seq > LAST


def _bad_entry(entry: Entry, ring_id: RingId) -> bool:
    """An old ring that is not older, or more delivered than received."""
    received_in = entry.received_in
    return (
        entry.my_old_ring_id.seq >= ring_id.seq
        or entry.my_high_delivered > entry.old_ring_my_aru
        or (received_in is not None and received_in.seq >= ring_id.seq)
    )


def _bad_join(join: Join, src: NodeId) -> bool:
    """Sets that no correct processor sends: itself failed, failed but no candidate, unsorted."""
    proc, fail = join.proc_set, join.fail_set
    return (
        join.sender_id != src
        or src not in proc
        or src in fail
        or not ascending(proc)
        or not ascending(fail)
        or not set(fail) <= set(proc)
        or join.ring_seq > LAST
    )


def ascending(numbers: tuple[int, ...]) -> bool:
    """Whether the numbers strictly ascend."""
    return all(a < b for a, b in itertools.pairwise(numbers))
