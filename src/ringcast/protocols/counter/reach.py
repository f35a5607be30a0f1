"""How far one frame may raise the numbers a member knows.

Epochs are kept on disk, and hops and rotations go on from the newest token. If a frame with the
last number were taken as it comes, no number would be left for anything after it.
"""

from __future__ import annotations

import msgspec

from ringcast.protocols.counter.membership import LISTS
from ringcast.protocols.counter.messages import (
    Ackd,
    Acpt,
    Ask,
    Join,
    Nack,
    Newl,
    Prep,
    Prom,
    Token,
)
from ringcast.protocols.counter.reformation import frozen_epoch
from ringcast.protocols.counter.state import Processor

LAST_EPOCH = 2**46
"""CB-37: the numbers of lists, 2^16 in each epoch, still fit here."""

REACH = 2**28
"""CB-37: how much one frame may raise the highest epoch known."""

REACH_HOPS = 2**16
"""CB-6: how far a token may be ahead in its epoch, in hops and in rotations; no rotation leaves a
member out."""


def epoch_of(frame: msgspec.Struct) -> int:
    """CB-37: the highest epoch that a frame tells of."""
    match frame:
        case Prep(ballot=ballot) | Ackd(ballot=ballot) | Acpt(ballot=ballot):
            return ballot.epoch
        case Prom(ballot=ballot, spent=spent, token=token, voted=voted):
            told = [spent, token.epoch if token else 0, voted.first.epoch if voted else 0]
            return max(ballot.epoch, *told)
        case Join(epoch=epoch, no=no):
            return max(epoch, no // LISTS)
        case Nack(epoch=epoch) | Ask(epoch=epoch) | Token(epoch=epoch):
            return epoch
        case Newl(value=value):
            return value.first.epoch
        case _:
            return 0


def out_of_reach(p: Processor, frame: msgspec.Struct) -> bool:
    """CB-6, CB-37: whether numbers are so far ahead that they would soon be used up."""
    epoch = epoch_of(frame)
    if epoch > min(LAST_EPOCH, frozen_epoch(p) + REACH):
        return True
    newest = p.newest
    if type(frame) is not Token or newest is None or epoch != newest.epoch:
        return False
    ahead = frame.hop > newest.hop + REACH_HOPS or frame.t > newest.t + REACH_HOPS
    return ahead or (frame.hop > newest.hop and frame.t < newest.t)  # rotations do not go back
