"""Small ordered value types that name things: processors, configurations, messages."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec

LIMIT = 2**63 - 1
"""Largest number a sequence may reach on the wire: no wrap logic anywhere."""

NodeId = Annotated[int, msgspec.Meta(ge=1, le=2**32 - 1)]
"""A processor's permanent identifier. 0 is never legal, so it can mean *nobody* on the wire."""

Seq = Annotated[int, msgspec.Meta(ge=0, le=LIMIT)]
"""A sequence number: 64 bits on the wire, non-negative."""


class ViewId(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """Names a configuration: a sequence number and the representative that chose it.

    Compared by ``seq`` first, which makes the identifiers of configurations, and
    the message identifiers built on them, one total order over the whole life of a group.
    """

    seq: Seq
    rep: NodeId

    def __str__(self) -> str:
        return f"({self.seq},{self.rep})"


class MessageId(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """A message's place in the total order: ring, number on it, index in the frame."""

    ring: ViewId
    seq: Seq
    index: int = 0

    def __str__(self) -> str:
        return f"{self.ring}:{self.seq}.{self.index}"


class Level(IntEnum):
    """How much must be known before a message is delivered.

    ``AGREED``: everything before it in the order has been delivered here.
    ``SAFE``: besides, every member of the configuration is known to hold it.
    """

    AGREED = 0
    SAFE = 1


LEVELS = {
    "reliable": Level.AGREED,
    "fifo": Level.AGREED,
    "causal": Level.AGREED,
    "agreed": Level.AGREED,
    "safe": Level.SAFE,
}
"""Every service that may be asked for, and the level that serves it."""


def level(name: Level | str) -> Level:
    """The level of a service by its name; one total order contains all the weaker orders.

    So reliable, fifo and causal are served, and reported, as agreed.
    """
    if isinstance(name, Level):
        return name
    found = LEVELS.get(name)
    if found is None:
        raise ValueError(
            f"{name!r} is no level: say agreed or safe (reliable, fifo and causal are agreed)"
        )
    return found
