"""What a machine can be told. One input is handled at a time, to completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from ringcast.core.ids import Level, NodeId

Message: TypeAlias = msgspec.Struct
"""Anything a protocol sends: a frozen, tagged, array-like ``msgspec.Struct``."""

Timer: TypeAlias = str
"""Each protocol names its timers in a ``StrEnum`` of its own (fast to hash, readable in traces);
those of a part with a scope carry its path (``core.owned``)."""


class Started(msgspec.Struct, frozen=True, gc=False):
    """The processor starts or restarts. ``stable`` is what earlier incarnations persisted.

    ``ports`` holds the processor's id in the broadcast domain at each port; empty: one port, and
    the id that the machine was made with.
    """

    boot: int
    stable: Mapping[str, int]
    ports: tuple[NodeId, ...] = ()


class Received(msgspec.Struct, frozen=True, gc=False):
    """A frame arrived. ``src`` put it on the wire, in the incarnation that drew ``boot``.

    ``port`` is the broadcast domain it arrived from, as the receiver counts its own.
    """

    src: NodeId
    boot: int
    message: Message
    port: int = 0


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    """A timer that was set, and neither cancelled nor set again, has run out."""

    timer: Timer


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """The application asks for these bodies to be broadcast, in this order, at this level.

    ``to`` names the only processors that are to deliver them, ascending; empty: all members do.
    ``group``: those that are in this group at their place in the order, which is for machines that
    say so (``Machine.filters``); 0: all.

    With ``wants`` it has no bodies: from now on this processor is in these groups.
    """

    bodies: tuple[bytes, ...]
    level: Level = Level.AGREED
    to: tuple[NodeId, ...] = ()
    group: int = 0
    wants: tuple[int, ...] | None = None


class Leaving(msgspec.Struct, frozen=True, gc=False):
    """The application leaves for good: the machine tells the others and asks to be stopped."""


Input: TypeAlias = Started | Received | TimerFired | Submitted | Leaving
