"""The frames of the counter-based protocol, and what makes one bad."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated

import msgspec

from ringcast.blocks.packing import Contents
from ringcast.core.ids import Level, NodeId, Seq
from ringcast.protocols.counter.config import MAX_MEMBERS, MOST_WINDOW

Group = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Cycle = Annotated[int, msgspec.Meta(ge=0, lt=2**34)]
Nodes = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_MEMBERS)]

MOST_RANGES = 2 * MOST_WINDOW
MOST_ENTRIES = 64 * MAX_MEMBERS
MOST_LISTS = 64
AHEAD = 2
"""CB-40: a list is in force from so many cycles after the rotation of its token on, at most."""

Ids = Annotated[tuple[Seq, ...], msgspec.Meta(max_length=MOST_RANGES)]
"""Message numbers as first, last, first, last, … in ascending order."""

LAST = 2**62
"""No number of a correct member comes near this."""


class Seat(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member in a list: ``since`` which cycle it counts (CB-31), and which of its lives it is."""

    node: NodeId
    since: Cycle
    life: Seq


class PassingList(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The token-passing-list: number ``no`` of all, in force from cycle ``first`` on."""

    no: Seq
    first: Cycle
    seats: Annotated[tuple[Seat, ...], msgspec.Meta(max_length=MAX_MEMBERS)]

    @property
    def members(self) -> tuple[NodeId, ...]:
        """The ids, in the order of the list."""
        return tuple(seat.node for seat in self.seats)

    def seat(self, node: NodeId) -> Seat | None:
        """The member's seat, if it is one."""
        return next((seat for seat in self.seats if seat.node == node), None)

    @property
    def lives(self) -> dict[NodeId, int]:
        """Which of its lives each member is in."""
        return {seat.node: seat.life for seat in self.seats}

    def after(self, node: NodeId) -> NodeId:
        """The member that comes next."""
        members = self.members
        return members[(members.index(node) + 1) % len(members)]


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One element of the system state S: what ``sender`` sent in ``cycle``, to whom, and who holds
    all of it. ``base`` is the first number it gave in that cycle, to whomever."""

    sender: NodeId
    cycle: Cycle
    base: Seq
    ids: Ids
    to: Nodes
    acks: Nodes
    counter: Annotated[int, msgspec.Meta(ge=0, le=MAX_MEMBERS)]

    @property
    def key(self) -> tuple[NodeId, int, tuple[NodeId, ...]]:
        """What tells it from the other entries."""
        return self.sender, self.cycle, self.to

    def numbers(self) -> Iterator[int]:
        """The message numbers."""
        return numbers(self.ids)


class Msg(msgspec.Struct, frozen=True, array_like=True, tag=70, gc=False):
    """Message ``k`` of ``sender``, stamped with its cycle ``p``; ``to`` nobody: to everybody."""

    group: Group
    sender: NodeId
    p: Cycle
    k: Seq
    to: Nodes
    level: Level
    contents: Contents

    @property
    def key(self) -> tuple[NodeId, int, int]:
        """What tells it from all other messages."""
        return self.sender, self.p, self.k

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return 30 + 4 * len(self.to) + self.contents.wire_bytes()


class Token(msgspec.Struct, frozen=True, array_like=True, tag=71, gc=False):
    """T: from ``c``, its owner so far, to ``n``, the next one (A1), in rotation ``t``.

    ``lists`` are the lists in force for cycles that somebody may still have to commit, the present
    one last. ``local`` names the members whose buffers are nearly full and ``local_c`` the cycles
    in which they said so; ``global_c`` is the cycle in which the network was overloaded, or 0.
    """

    group: Group
    epoch: Seq
    hop: Seq
    c: NodeId
    n: NodeId
    t: Cycle
    S: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=MOST_ENTRIES)]
    lists: Annotated[tuple[PassingList, ...], msgspec.Meta(min_length=1, max_length=MOST_LISTS)]
    local: Nodes = ()
    local_c: Annotated[tuple[Cycle, ...], msgspec.Meta(max_length=MAX_MEMBERS)] = ()
    global_c: Cycle = 0

    @property
    def list(self) -> PassingList:
        """The present token-passing-list."""
        return self.lists[-1]

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        entries = sum(24 + 3 * len(e.ids) + 2 * len(e.acks) + 2 * len(e.to) for e in self.S)
        return 40 + entries + sum(12 + 8 * len(each.seats) for each in self.lists)


class Req(msgspec.Struct, frozen=True, array_like=True, tag=72, gc=False):
    """CB-9: please send messages of ``sender``: triples of cycle, number and request number."""

    group: Group
    sender: NodeId
    wanted: Annotated[tuple[Seq, ...], msgspec.Meta(max_length=3 * MOST_WINDOW)]

    @property
    def requests(self) -> int:
        """How many messages it asks for: the source sends a frame for each."""
        return len(self.wanted) // 3


class Join(msgspec.Struct, frozen=True, array_like=True, tag=73, gc=False):
    """CB-31: a processor that is no member asks to become one, in its life ``life``. It acts in no
    epoch below ``epoch``, and ``no`` is the last list that was a view of its own."""

    group: Group
    life: Seq
    epoch: Seq
    no: Seq


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=82, gc=False):
    """CB-33 ext: a member goes at once; the others are not to wait for it."""

    group: Group
    life: Seq


class Ballot(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """CB-37: b; the attempt of ``node`` to begin ``epoch``."""

    epoch: Seq
    node: NodeId


class Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """CB-38: V: the last token of the old epoch, none if nobody remembers it, and the first one of
    the new epoch."""

    base: Token | None
    first: Token


class Held(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """CB-37: messages of one sender and cycle that a member holds."""

    sender: NodeId
    cycle: Cycle
    ids: Ids


class Prep(msgspec.Struct, frozen=True, array_like=True, tag=74, gc=False):
    """CB-37: whoever initiates a reformation asks for promises."""

    group: Group
    ballot: Ballot


class Prom(msgspec.Struct, frozen=True, array_like=True, tag=75, gc=False):
    """CB-37: a promise, with all its maker knows: the newest token, none if it remembers nothing;
    how far it has committed; what it holds beyond; the value it voted for last. ``spent`` is the
    last epoch for which it voted, if it has forgotten the value."""

    group: Group
    ballot: Ballot
    life: Seq
    spent: Seq
    token: Token | None
    committed: Annotated[int, msgspec.Meta(ge=-1, lt=2**34)]
    held: Annotated[tuple[Held, ...], msgspec.Meta(max_length=MOST_ENTRIES)]
    voted: Value | None


class Nack(msgspec.Struct, frozen=True, array_like=True, tag=83, gc=False):
    """CB-37: no promise: there is one for ``epoch``."""

    group: Group
    epoch: Seq


class Acpt(msgspec.Struct, frozen=True, array_like=True, tag=76, gc=False):
    """CB-38: the initiator proposes a value."""

    group: Group
    ballot: Ballot
    value: Value


class Ackd(msgspec.Struct, frozen=True, array_like=True, tag=77, gc=False):
    """CB-38: a vote for it."""

    group: Group
    ballot: Ballot


class Newl(msgspec.Struct, frozen=True, array_like=True, tag=78, gc=False):
    """CB-38: what was decided."""

    group: Group
    value: Value


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=79, gc=False):
    """CB-38: please tell what was decided for ``epoch``, of which I have missed the news."""

    group: Group
    epoch: Seq


class Stranger(msgspec.Struct, frozen=True, array_like=True, tag=84, gc=False):
    """CB-42: the incarnation ``boot`` is not the one that was a member: it lost its storage."""

    group: Group
    boot: Seq


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag=80, gc=False):
    """CB-42: please tell what comes after the place ``after`` in the view of list ``no``."""

    group: Group
    no: Seq
    after: Seq


class Past(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """CB-42: a message that was committed: the list of its view, and its place."""

    no: Seq
    place: Seq
    msg: Msg


class Told(msgspec.Struct, frozen=True, array_like=True, tag=81, gc=False):
    """CB-42: what comes after ``after`` in the view of ``no``; with ``following``, nothing more
    comes there, and this is the list of the next view. Without ``known``, the sender does not keep
    that any more."""

    group: Group
    no: Seq
    after: Seq
    known: bool
    following: PassingList | None
    items: Annotated[tuple[Past, ...], msgspec.Meta(max_length=MOST_WINDOW)]


MESSAGES = (
    Msg,
    Token,
    Req,
    Join,
    Leave,
    Prep,
    Prom,
    Nack,
    Acpt,
    Ackd,
    Newl,
    Ask,
    Fetch,
    Told,
    Stranger,
)


# --- numbers as ranges --------------------------------------------------------------------------


def numbers(ids: tuple[int, ...]) -> Iterator[int]:
    """The numbers in ``ids``."""
    for at in range(0, len(ids), 2):
        yield from range(ids[at], ids[at + 1] + 1)


def ranges(ascending: list[int]) -> tuple[int, ...]:
    """Ascending numbers as ranges."""
    found: list[int] = []
    for number in ascending:
        if found and found[-1] == number - 1:
            found[-1] = number
        else:
            found += (number, number)
    return tuple(found)


def size(ids: tuple[int, ...]) -> int:
    """How many numbers there are."""
    return sum(ids[1::2]) - sum(ids[::2]) + len(ids) // 2


# --- bad frames ---------------------------------------------------------------------------------


def malformed(frame: msgspec.Struct, members: tuple[NodeId, ...]) -> str | None:
    """Why a frame must not be acted upon in a group of ``members``, or None."""
    match frame:
        case Msg():
            return "malformed message" if _bad_msg(frame, members) else None
        case Token():
            return "malformed token" if _bad_token(frame, members) else None
        case Req(sender=sender, wanted=wanted):
            bad = len(wanted) % 3 != 0 or sender not in members
            return "malformed request" if bad else None
        case Prom(token=token, held=held, voted=voted):
            bad = (
                (token is not None and _bad_token(token, members))
                or any(_bad_ids(each.ids) for each in held)
                or (voted is not None and _bad_value(voted, members))
            )
            return "malformed promise" if bad else None
        case Acpt(ballot=ballot, value=value):
            bad = _bad_value(value, members) or value.first.epoch != ballot.epoch
            return "malformed list" if bad else None
        case Newl(value=value):
            return "malformed list" if _bad_value(value, members) else None
        case Told(items=items, following=following):
            bad = any(_bad_msg(item.msg, members) for item in items)
            bad = bad or (following is not None and _bad_list(following, set(members)))
            return "malformed answer" if bad else None
        case _:
            return None


def _bad_ids(ids: tuple[int, ...]) -> bool:
    """Whether these are no ascending ranges, or too long ones."""
    if len(ids) % 2 or any(a >= b for a, b in zip(ids[1:-1:2], ids[2::2], strict=True)):
        return True
    if any(a > b for a, b in zip(ids[::2], ids[1::2], strict=True)):
        return True
    return bool(ids) and (ids[-1] >= LAST or size(ids) > MOST_WINDOW)


def _bad_msg(msg: Msg, members: tuple[NodeId, ...]) -> bool:
    """Whether it is nobody's, or empty, or to strangers."""
    return (
        msg.sender not in members
        or not 0 < msg.k < LAST
        or not msg.contents.bodies
        or (bool(msg.to) and strange(msg.to, set(members)))
    )


def strange(to: tuple[NodeId, ...], known: set[NodeId]) -> bool:
    """Whether these are no destinations in ascending order."""
    return not known.issuperset(to) or any(a >= b for a, b in pairwise(to))


def _bad_token(token: Token, members: tuple[NodeId, ...]) -> bool:
    """Whether it is no token of this group."""
    known = set(members)
    nos = [each.no for each in token.lists]
    return (
        token.hop >= LAST
        or token.epoch >= LAST
        or token.n not in token.list.members
        or token.c not in known
        or len(token.local) != len(token.local_c)
        or any(a >= b for a, b in pairwise(nos))
        or any(each.first > token.t + AHEAD or _bad_list(each, known) for each in token.lists)
        or any(_bad_entry(entry, known, token.lists) for entry in token.S)
        or len({entry.key for entry in token.S}) < len(token.S)
    )


def _bad_list(each: PassingList, known: set[NodeId]) -> bool:
    """Whether it is empty, or names strangers, or somebody twice."""
    members = each.members
    return not members or len(set(members)) < len(members) or not known.issuperset(members)


def _bad_entry(entry: Entry, known: set[NodeId], lists: tuple[PassingList, ...]) -> bool:
    """Whether it lists no messages of a member of its cycle, or holders that are strangers."""
    return (
        entry.sender not in known
        or not entry.ids
        or _bad_ids(entry.ids)
        or entry.ids[0] < entry.base
        or entry.ids[-1] - entry.base >= MOST_WINDOW
        or not known.issuperset(entry.acks)
        or (bool(entry.to) and strange(entry.to, known))
        or entry.sender not in in_force(lists, entry.cycle).members
    )


def _bad_value(value: Value, members: tuple[NodeId, ...]) -> bool:
    """Whether it does not lead from one epoch to the next."""
    base, first = value.base, value.first
    if _bad_token(first, members):
        return True
    return base is not None and (_bad_token(base, members) or base.epoch >= first.epoch)


def in_force(lists: tuple[PassingList, ...], cycle: int) -> PassingList:
    """CB-21, A20: the list of a cycle."""
    found = lists[0]
    for each in lists[1:]:
        if each.first <= cycle:
            found = each
    return found


def followed(lists: tuple[PassingList, ...], new: PassingList) -> tuple[PassingList, ...]:
    """``lists``, and then ``new``. A list that ``new`` replaces before it was ever in force goes,
    or a group that changes again and again within a cycle has more of them than a token holds."""
    return (lists[0], *(each for each in lists[1:] if each.first < new.first), new)
