"""Settings of the counter-based protocol: the token's times, order, counting and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated
from zlib import crc32

import msgspec

from ringcast.core.settings import MIB, ListedSettings, Relation

MS = 1_000

HEADER_BYTES = 96
"""Room for the common header and the fixed fields of a frame with a body."""

MAX_MEMBERS = 64
"""A token lists every member, and every entry the members that hold it."""

MOST_WINDOW = 8192
"""Frames of one member under way, at most; the place in the order has room for so many."""


class CycleOrder(StrEnum):
    """How the messages of one cycle follow each other (CB-20, CB-21)."""

    FIXED = "fixed"
    """By their senders' places in the token-passing-list."""
    ROTATING = "rotating"
    """The same, beginning at another sender in each cycle."""


class Counting(StrEnum):
    """How a token tells that everybody holds a message (CB-35, CB-36)."""

    SET = "set"
    """By the ids of those that hold it."""
    COUNTER = "counter"
    """By their number; after a crash all count anew."""


class Config(ListedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One group's settings. The defaults suit a handful of processes on a LAN."""

    order: CycleOrder = CycleOrder.FIXED
    """CB-20, CB-21: whose messages come first in a cycle: fixed or rotating."""
    first_sender: Annotated[int, msgspec.Meta(ge=0, lt=MAX_MEMBERS)] = 0
    """CB-21, r0: with the rotating order, the place at which cycle 0 begins."""
    counting: Counting = Counting.SET
    """CB-35, CB-36: how a token tells that everybody holds a message: set or counter."""

    token_us: int = 0
    """CB-4, T: how long an owner keeps the token while there is something to do."""
    idle_us: int = 5 * MS
    """A24: how long it keeps an idle one; 0 = not at all."""
    reissue_us: int = 50 * MS
    """CB-25: after so long without progress the last owner sends its token again …"""
    reissues: int = 3
    """… L: so often, before it calls for a list without the next owner (CB-27)."""
    request_us: int = 10 * MS
    """CB-10: what is missing is asked for again after so long."""
    answer_us: int = 2 * MS
    """CB-15, delta: holders of a lost sender's message wait one such time for each place."""
    grace_us: int = 50 * MS
    """CB-38: how long to wait for the promises of members that are not suspected."""
    join_us: int = 100 * MS
    """CB-31: a processor that is not a member asks to become one this often."""

    leave_us: int = 0
    """CB-33: how long one that leaves may take to see its messages held by all; 0: it goes at once,
    and says so."""

    window: int = 64
    """CB-1 ext: frames of one member that are stamped and not committed, at most."""
    most_held: int = 0
    """CB-28: frames held from which on the others are told to wait; 0 = half of all windows."""
    most_listed: int = 0
    """CB-28: ids in a token from which on everybody waits; 0 = half of all windows."""
    history_bytes: int = 16 * MIB
    """CB-42: how much of what was committed is kept for members that come back."""

    def relations(self) -> Iterator[Relation]:
        """Relations between the settings that the protocol relies on."""
        yield from super().relations()
        for name in ("reissue_us", "request_us", "answer_us", "grace_us", "join_us"):
            yield name, getattr(self, name) > 0, "must be positive"
        for name in ("token_us", "idle_us", "leave_us", "most_held", "most_listed"):
            yield name, getattr(self, name) >= 0, "must not be negative"
        yield "history_bytes", self.history_bytes >= 0, "must not be negative"
        yield "reissues", 1 <= self.reissues <= 100, "must be within 1..100"
        yield "window", 1 <= self.window <= MOST_WINDOW, f"must be within 1..{MOST_WINDOW}"
        yield (
            "members",
            len(self.members) <= MAX_MEMBERS,
            f"are more than the {MAX_MEMBERS} that a token has room for",
        )

    @property
    def faults(self) -> int:
        """How many of them may be missing: a majority must be there."""
        return (self.n - 1) // 2

    @property
    def majority(self) -> int:
        """CB-37: how many make one part the primary one. Every list has so many members, and every
        decision so many votes, so that no two parts go on."""
        return self.n // 2 + 1

    @property
    def period_us(self) -> int:
        """Longest time from one release of the token to the next, if nothing is lost."""
        return self.reissue_us + max(self.token_us, self.idle_us)

    @property
    def patience_us(self) -> int:
        """How long a member may stand still before the others go on without it."""
        return (self.reissues + 1) * self.period_us

    @property
    def frame_budget(self) -> int:
        """Room for contents in one frame."""
        return self.max_packet - HEADER_BYTES - 4 * len(self.members)

    @property
    def held_limit(self) -> int:
        """CB-28: the buffer is nearly full from here."""
        return self.most_held or max(2, self.n * self.window // 2)

    @property
    def listed_limit(self) -> int:
        """CB-28: the network is overloaded from here."""
        return self.most_listed or max(2, self.n * self.window // 2)

    @property
    def group(self) -> int:
        """What members must have in common to understand each other, in 32 bits."""
        common = (self.members, self.order, self.first_sender, self.counting)
        return crc32(repr(common).encode())


LAN = Config()

PAPER = Config(token_us=10 * MS, idle_us=0, counting=Counting.COUNTER)
"""The source's own protocol, repaired: bare counters, and an owner time that is always kept."""

ROTATING = Config(order=CycleOrder.ROTATING)


def progress_bound_us(config: Config, n: int) -> int:
    """Time after the last fault until all live members deliver together, and between deliveries.

    Silence is noticed; a reformation succeeds after some that clash; those who were excluded learn
    of it, catch up, and are taken in again one after the other.
    """
    silence_us = config.patience_us * (2 + n)
    reform_us = (n + 6) * 4 * config.grace_us + config.patience_us
    rejoin_us = 16 * config.join_us + 8 * n * config.period_us
    requests_us = 10 * (config.request_us + n * config.answer_us)
    return 3 * (silence_us + reform_us) + (n + 2) * rejoin_us + requests_us
