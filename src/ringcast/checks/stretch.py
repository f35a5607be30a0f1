"""Stretch: many frames at once that every member of a ring delivered alike.

Nearly all of a large trace is of this kind. Whoever has compared the members (the pipeline does
it with arrays) need not show those frames one by one: a stretch stands for their submissions,
originations and deliveries, and leaves the checks as the single events would have.

It may stand anywhere between the last installation of its ring and the first departure from it,
as long as every member's deliveries keep their order, and no message of it, by place or by number,
occurs elsewhere. That a sender then seems to have known more
when it originated is of no consequence: whatever it seems to have known, all had delivered before.
The first frame of each sender, and of each that originated for it, is shown in full, since it
carries what its originator knew from earlier rings, and since with it a member that lacks
something from before is found out.
"""

from __future__ import annotations

import msgspec

from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Delivered, Originated, Submit


class Share(msgspec.Struct, frozen=True):
    """One sender's frames of a stretch."""

    sender: NodeId
    frames: int
    """How many, without its heads."""
    first: int
    """Number of their first message; the others, heads or not, follow without a gap, ..."""
    last: int
    """... up to this one."""
    seq: int
    """Place of its last frame, be it a head or not."""


class Stretch(msgspec.Struct, frozen=True):
    """Frames of ``ring`` that all its members delivered in it, in one order and as originated."""

    ring: ViewId
    frames: int
    """How many, without the heads."""
    seq: int
    """Place of the last frame, be it a head or not. All places ascend."""
    heads: tuple[Submit | Originated | Delivered, ...] = ()
    """All events of the first frame of each sender and originator, in order."""
    shares: tuple[Share, ...] = ()
    """Empty if only the order of messages is judged, not who sent them."""
    by: NodeId = 0
    """Who delivered the last frame first; 0 likewise."""
