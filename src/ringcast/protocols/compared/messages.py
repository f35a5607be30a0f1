"""The frames of the compared protocols. Each group speaks one of them, so tags may be the same."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ringcast.blocks.packing import Contents
from ringcast.core.ids import Level, NodeId, Seq
from ringcast.protocols.compared.config import MAX_MEMBERS, MOST_WINDOW

Group = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Numbers = Annotated[tuple[Seq, ...], msgspec.Meta(max_length=MOST_WINDOW)]
Each = Annotated[tuple[Seq, ...], msgspec.Meta(max_length=MAX_MEMBERS)]
"""A number for each member, in the order of their ids."""


class Data(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Message ``k`` of ``sender``. ``seq`` is its place in the order if it is known, else 0;
    ``have`` the last place that the sender of this frame has delivered."""

    group: Group
    sender: NodeId
    k: Seq
    level: Level
    contents: Contents
    seq: Seq = 0
    have: Seq = 0

    @property
    def key(self) -> tuple[NodeId, int]:
        """What tells it from all other messages."""
        return self.sender, self.k

    def wire_bytes(self) -> int:
        """Encoded size, to within a few bytes."""
        return 30 + self.contents.wire_bytes()


# --- centralised --------------------------------------------------------------------------------


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """The site gives message ``k`` of ``sender`` the place ``seq``; with ``asks`` it wants to know
    how far each is."""

    group: Group
    seq: Seq
    sender: NodeId
    k: Seq
    asks: bool = False


class Nack(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """Please send what has these places again."""

    group: Group
    places: Numbers


class Have(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """I have delivered up to this place."""

    group: Group
    seq: Seq


# --- two-phase ----------------------------------------------------------------------------------


class Propose(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """A destination's priority for message ``k`` of the receiver; of its messages up to ``done``
    the final ones are known here."""

    group: Group
    k: Seq
    priority: Seq
    done: Seq


class Final(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """The highest priority of message ``k`` of its sender. ``asks``: say which of mine you know."""

    group: Group
    k: Seq
    priority: Seq
    asks: bool = False


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """Please send your messages ``ks`` again, or what was decided of them."""

    group: Group
    ks: Numbers


# --- tokens -------------------------------------------------------------------------------------


class FastToken(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """Fast message: from ``c`` to ``n``; ``seq`` is the last place given, ``have`` how far each
    member has all, ``rtr`` what somebody lacks."""

    group: Group
    hop: Seq
    c: NodeId
    n: NodeId
    seq: Seq
    have: Each
    rtr: Numbers


class BatchToken(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """Optimistic: from ``c`` to ``n``. ``order`` has the messages from place ``base + 1`` on, as
    sender, number, sender, number …; ``listed`` the last one listed of each member, ``have`` how
    far each has all."""

    group: Group
    hop: Seq
    c: NodeId
    n: NodeId
    base: Seq
    order: Annotated[tuple[Seq, ...], msgspec.Meta(max_length=2 * MAX_MEMBERS * MOST_WINDOW)]
    listed: Each
    have: Each


class Rollback(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """Optimistic: the messages with these places, as triples of place, sender and number, are
    missing here: undo what was not committed, and send them again."""

    group: Group
    lost: Annotated[tuple[Seq, ...], msgspec.Meta(max_length=3 * MOST_WINDOW)]
