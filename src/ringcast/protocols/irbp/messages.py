"""The frames and timers of iRBP beside those of RBP's log and ring, and what makes a frame bad."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Annotated, Any, TypeAlias

import msgspec

from ringcast.blocks import channel
from ringcast.blocks.channel import Packet, Piece
from ringcast.blocks.consensus import Adopted, Begin, Estimate, Proposal
from ringcast.blocks.detector import Heartbeat
from ringcast.blocks.reliable_broadcast import Relay
from ringcast.core.ids import NodeId, Seq, ViewId
from ringcast.core.owned import Scoped
from ringcast.protocols.rbp.config import MAX_MEMBERS, MOST_WINDOW
from ringcast.protocols.rbp.epochs import NEVER, Data, Entry, Epoch, EpochConfig, Extent, Seat
from ringcast.protocols.rbp.messages import LAST, MOST_ENTRIES, ORDERING, Group, News
from ringcast.protocols.rbp.messages import malformed as malformed_in_ring
from ringcast.protocols.rbp.reach import LAST_VIEW, out_of_reach

Seats = Annotated[tuple[Seat, ...], msgspec.Meta(max_length=MAX_MEMBERS)]

MOST_UNSTABLE = 4 * MOST_WINDOW
"""Entries that were not delivered where a change began: the ring has no more under way."""

Entries = Annotated[tuple[Entry, ...], msgspec.Meta(max_length=MOST_UNSTABLE)]
Bodies = Annotated[tuple[Data, ...], msgspec.Meta(max_length=MAX_MEMBERS * MOST_WINDOW)]


class ViewTimer(StrEnum):
    """The timers of the choice of views; those of its blocks are theirs."""

    JOIN = "irbp join"
    """I17, I18: ask again to be a member, or to leave."""
    CATCH = "irbp catch"
    """I11: what was asked for has not come."""
    READY = "irbp ready"
    """I23: say that we have caught up."""


class Kind(IntEnum):
    """I2: what a change changes."""

    IVIEW = 0
    """The ring alone: cheap, and nobody loses its place."""
    REGULAR = 1
    """The members."""


class Change(msgspec.Struct, frozen=True, array_like=True, tag=120, gc=False):
    """CHANGE (I4): end ``epoch``. ``avoid`` is a member where the ring stood still twice (I3), or
    0."""

    epoch: Epoch
    kind: Kind
    avoid: Seq = 0


class Contribution(msgspec.Struct, frozen=True, array_like=True, tag=121, gc=False):
    """CONTRIB (I6): how far the sender's log reaches, after it was frozen in ``epoch``; for a
    regular view, what it has not delivered of it as well."""

    group: Group
    epoch: Epoch
    kind: Kind
    extent: Extent
    entries: Entries
    bodies: Bodies
    before: Epoch = NEVER
    """The tag of the entry before these."""


class Successor(msgspec.Struct, frozen=True, array_like=True, tag=122, gc=False):
    """I8, I9: the epoch that follows, and for a regular view what may be held by one member
    alone."""

    config: EpochConfig
    entries: Entries
    bodies: Bodies
    before: Epoch = NEVER
    """The tag of the entry before these, which a log must have for them to follow it (2.0)."""


class Join(msgspec.Struct, frozen=True, array_like=True, tag=123, gc=False):
    """JOIN (I17): a site that is in no view would like to be in one, in its life ``life``. The last
    view that it knows of has the number ``highest``."""

    group: Group
    life: Seq
    highest: Seq


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=124, gc=False):
    """LEAVE (I18, I22): a member goes for good, in ``gap`` because of what it cannot catch up."""

    group: Group
    life: Seq
    gap: bool


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=125, gc=False):
    """READY (I23): an external member has caught up in ``epoch``."""

    group: Group
    epoch: Epoch


class Stranger(msgspec.Struct, frozen=True, array_like=True, tag=128, gc=False):
    """A3: incarnation ``boot`` of yours is not the one that is a member here."""

    group: Group
    boot: Seq


class Catch(msgspec.Struct, frozen=True, array_like=True, tag=126, gc=False):
    """I11: please tell entries after ``after``, if you are aligned with ``epoch``."""

    group: Group
    epoch: Epoch
    after: Seq


class Caught(msgspec.Struct, frozen=True, array_like=True, tag=127, gc=False):
    """I11: what follows ``after`` in the log of ``epoch``; GONE if it is not kept (I21)."""

    group: Group
    epoch: Epoch
    after: Seq
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=MOST_ENTRIES)]


Payload: TypeAlias = (
    Contribution
    | Scoped[
        Estimate[Successor] | Proposal[Successor] | Adopted | Begin | Relay[Change | Successor]
    ]
)
"""What the reliable channel carries."""

CONSENSUS = "consensus:"
"""The scope of an instance is this, and the number of the view and the step that it ends."""

CHOOSING: tuple[Any, ...] = (News, Join, Leave, Ready, Stranger, Catch, Caught, Heartbeat)
"""Frames of the choice of views; ``Packet`` and its acknowledgement are the channel's."""

MESSAGES: tuple[Any, ...] = (*ORDERING, *CHOOSING, Packet[Payload | Piece], channel.Ack)


def epoch_of(payload: msgspec.Struct) -> Epoch | None:
    """Z8: the epoch that a payload is about, if it says so."""
    match payload:
        case Contribution():
            return payload.epoch
        case Scoped(path, _) if path.startswith(CONSENSUS):
            seq, _, step = path.removeprefix(CONSENSUS).partition(".")
            if seq.isdecimal() and step.isdecimal():
                return Epoch(ViewId(int(seq), 1), int(step))
        case Scoped(_, Relay(_, _, Change() as change)):
            return change.epoch
    return None


# --- bad frames ---------------------------------------------------------------------------------


def malformed(frame: msgspec.Struct, members: tuple[NodeId, ...]) -> str | None:
    """Why a frame must not be acted upon in a group of ``members``, or None."""
    match frame:
        case Caught():
            bad = any(e.number != frame.after + 1 + i for i, e in enumerate(frame.entries))
            return "malformed answer" if bad else None
        case _:
            return malformed_in_ring(frame, members)


def bad_payload(payload: msgspec.Struct, members: tuple[NodeId, ...]) -> str | None:
    """The same of what came through the channel."""
    match payload:
        case Contribution():
            extent = payload.extent
            bad = not extent.floor <= extent.number < LAST or extent.delivered > extent.number
            bad = bad or bad_entries(payload.entries, extent.number)
            return "malformed contribution" if bad else None
        case Scoped(_, Estimate(_, _, Successor() as value) | Proposal(_, Successor() as value)):
            return bad_successor(value, members)
        case Scoped(_, Relay(_, _, Successor() as value)):
            return bad_successor(value, members)
        case _:
            return None


def bad_successor(value: Successor, members: tuple[NodeId, ...]) -> str | None:
    """Why it is no epoch of this group."""
    news = News(0, value.config)
    why = malformed_in_ring(news, members)
    if why is None and out_of_reach(LAST_VIEW, news):
        why = "a view far ahead"
    if why is None and bad_entries(value.entries, value.config.start):
        why = "malformed list"
    return why


def bad_entries(entries: tuple[Entry, ...], last: int) -> bool:
    """Whether they are not a run of entries that ends with ``last``."""
    if not entries:
        return False
    first = entries[0].number
    return entries[-1].number != last or any(
        entry.number != first + at for at, entry in enumerate(entries)
    )
