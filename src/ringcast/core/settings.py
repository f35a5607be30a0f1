"""Settings that every protocol has: frames, messages and the queue, declared and checked once.

A protocol's ``Config`` extends ``GroupSettings``, or ``ListedSettings`` if it must know from the
start who may ever take part. The runtime, the API and the simulator use what is declared here and
nothing else of a protocol's settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, TypeAlias

import msgspec

from ringcast.core.ids import NodeId

MIB = 2**20

LEAST_BUDGET = 64
"""A frame with less room than this for contents is of no use."""

FILLED_IN = ("members",)
"""Settings that the world which runs a group fills in, and no user."""

Relation: TypeAlias = tuple[str, bool, str]
"""A setting, whether it is fine, and what it must be."""


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one group's members agree on, whatever the protocol."""

    rule: ClassVar[str] = ""
    """The rule that asks for the relations, cited when one does not hold."""

    max_packet: int = 1460
    """Largest frame on the wire."""
    packing: bool = True
    """Several small messages share a frame."""
    max_message: int = 64 * MIB
    """Largest message; also bounds what a receiver assembles from one sender."""
    max_queue: int = 300
    """Submissions are refused from here …"""
    min_queue: int = 250
    """… and accepted again from here."""
    max_queue_bytes: int = 128 * MIB
    """Submissions are refused when those that wait have so many bytes."""

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        for name, fine, why in self.relations():
            if not fine:
                cited = f" ({self.rule})" if self.rule else ""
                raise ValueError(f"{name} = {getattr(self, name)} {why}{cited}")

    def relations(self) -> Iterator[Relation]:
        """What must hold between settings; a protocol adds its own to these."""
        yield "max_packet", self.frame_budget >= LEAST_BUDGET, "leaves no room for contents"
        yield "max_message", self.max_message >= 1, "must be at least 1"
        yield "min_queue", 0 <= self.min_queue < self.max_queue, "must be below max_queue"
        yield (
            "max_queue_bytes",
            self.max_queue_bytes >= self.max_message,
            "must hold at least one message of max_message",
        )

    @property
    def patience_us(self) -> int:
        """How long a member may stand still before the others act on its silence."""
        raise NotImplementedError(f"{type(self)} does not say its patience_us")

    @property
    def frame_budget(self) -> int:
        """Room for contents in one frame."""
        raise NotImplementedError(f"{type(self)} does not say its frame_budget")

    def unfit(self, n: int) -> str:
        """Why a group of ``n`` processors could never go on with these settings; empty if it can.
        What depends on a list of members is among the relations."""
        return ""

    def least_part(self, n: int) -> int:
        """How many of ``n`` processors must be together to go on, cut off from the others."""
        return 1


class ListedSettings(GroupSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a group that knows from the start who may ever take part."""

    members: tuple[NodeId, ...] = ()
    """Everybody there will ever be; the world that runs the group fills it in."""

    @property
    def n(self) -> int:
        """How many members there are."""
        return max(1, len(self.members))

    @property
    def faults(self) -> int:
        """How many of them may be missing while the rest go on."""
        raise NotImplementedError(f"{type(self)} does not say how many faults it bears")

    def least_part(self, n: int) -> int:
        """All but those that may be missing."""
        return n - self.faults

    @property
    def steadfast(self) -> int:
        """How many of those that go on must never have crashed, for them to be sure to go on: what
        a protocol delivers may be remembered by so many alone."""
        return 0

    def survivors(self, members: int) -> int:
        """How many members of a view of so many must be left of it for another one to follow, where
        that depends on the view and not on the list."""
        return 0
