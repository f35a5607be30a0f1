"""The frames of TOTAL (dossier 2.2), under the names of the source's appendix.

All carry the view they belong to (A2). The group below has frames of its own (``blocks.views``).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ringcast.blocks.packing import Contents
from ringcast.core.ids import LIMIT, Level, NodeId, Seq, ViewId

HEADER_BYTES = 88
"""Room for the common header and a frame's fixed fields (the longest, Bcast's)."""

LAST = LIMIT - 2**20
"""Largest number accepted from others: it leaves room for those that follow it."""

MOST_NUMBERS = 4096

Numbers = Annotated[tuple[Seq, ...], msgspec.Meta(max_length=MOST_NUMBERS)]


class Unicast(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """TOTAL_UNICAST: point to point, passed through untouched (TL-16)."""

    view: ViewId
    payload: bytes


class Bcast(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """TOTAL_BCAST: a numbered message, from the sequencer to all or, sent again, to one."""

    view: ViewId
    seq: Seq
    first: Seq  # first number of the view, so that NEW_VIEW may be lost (TL-9); 0: not told
    stable: Seq  # what every member is known to have (TL-25)
    origin: NodeId
    request: Seq  # the origin's own number r
    level: Level
    contents: Contents

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return HEADER_BYTES + self.contents.wire_bytes()


class Request(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """TOTAL_REQUEST: please number and broadcast this."""

    view: ViewId
    request: Seq
    lowest: Seq  # the origin's lowest request that is not delivered (TL-14)
    level: Level
    contents: Contents

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return HEADER_BYTES + self.contents.wire_bytes()


class NewView(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """TOTAL_NEW_VIEW: numbers of this view begin with ``first`` (TL-5)."""

    view: ViewId
    first: Seq


class NewViewAck(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """TOTAL_NEW_VIEW_ACK: the sender knows it (TL-9)."""

    view: ViewId


class CumSeqAck(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """TOTAL_CUM_SEQ_ACK: the sender has everything of this view up to ``upto`` (TL-25)."""

    view: ViewId
    upto: Seq

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return 24


class SeqAck(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """TOTAL_SEQ_ACK: the sender has number ``seq``, whatever it lacks below (TL-13 ext)."""

    view: ViewId
    seq: Seq


class Resend(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """TOTAL_RESEND: please send these numbers again (TL-17)."""

    view: ViewId
    numbers: Numbers


class Status(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """STATUS (ours): the last number given out, and what every member has (TL-26)."""

    view: ViewId
    last: Seq
    stable: Seq


MESSAGES = (Unicast, Bcast, Request, NewView, NewViewAck, CumSeqAck, SeqAck, Resend, Status)


def malformed(frame: msgspec.Struct) -> bool:
    """Whether no correct processor sends such a frame; types and ranges are checked already."""
    match frame:
        case Bcast():
            return not (
                frame.contents.bodies
                and max(1, frame.first) <= frame.seq <= LAST
                and frame.stable < frame.seq
                and frame.request > 0
            )
        case Request():
            return not (frame.contents.bodies and 0 < frame.lowest <= frame.request <= LAST)
        case NewView():
            return not 0 < frame.first <= LAST
        case Status():
            return not frame.stable <= frame.last <= LAST
        case _:
            return False
