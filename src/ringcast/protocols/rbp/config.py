"""Settings of RBP: levels of resiliency, times and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from zlib import crc32

from ringcast.core.settings import MIB, ListedSettings, Relation

MS = 1_000

HEADER_BYTES = 72
"""Room for the common header and the fixed fields of a frame with a body."""

MAX_MEMBERS = 64
MOST_BATCH = 1024
MOST_WINDOW = 1024


class Resiliency(StrEnum):
    """K4: how many members of the ring must hold an entry before anybody delivers it."""

    TOTAL = "total"
    """All of the ring."""
    MAJORITY = "majority"
    """As few as a change by a majority cannot miss (K3)."""
    NUMBER = "number"
    """``tolerated`` and one more; a change then waits for all but so many."""
    UNSAFE = "unsafe"
    """The member itself: what it delivers may be void (G23)."""


class Config(ListedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One group's settings. The defaults suit a handful of processes on a LAN."""

    resiliency: Resiliency = Resiliency.TOTAL
    """K4: how many members of the ring must hold an entry before anybody delivers it."""
    tolerated: int = 1
    """K3, f: with resiliency ``number``, how many members may fail without a loss."""
    batch: int = 64
    """R7: bodies that one ACK may name; 1 in the original protocol."""

    token_us: int = 20 * MS
    """R8, T_tok: an ACK that nobody answers is repeated after so long …"""
    retries: int = 5
    """… R19: so often, before its issuer suspects the next one. All repeats together must take
    longer than a round trip."""
    data_us: int = 40 * MS
    """R1, T_data: a body without a number is repeated after so long."""
    nack_us: int = 5 * MS
    """R9, T_nack: what is missing is asked for again after so long."""
    idle_us: int = 20 * MS
    """R17, T_idle: a token with nothing to do rests so long."""
    act_us: int = 300 * MS
    """R18, T_act: so long without a new number, and the list is formed anew."""
    vote_us: int = 60 * MS
    """F6: how long an originator waits for votes; with less than a round trip no list is ever
    formed."""
    backoff_us: int = 30 * MS
    """F13: how long at least it waits before it tries again."""
    join_us: int = 100 * MS
    """F1: a site that is in no list asks for one this often."""

    window: int = 64
    """K6, W: own bodies that are sent and not delivered, at most."""
    history_bytes: int = 16 * MIB
    """K7: how much of what all hold is kept for members that were away."""

    def relations(self) -> Iterator[Relation]:
        """Relations between the settings that the protocol relies on."""
        yield from super().relations()
        for name in ("token_us", "data_us", "nack_us", "vote_us", "backoff_us", "join_us"):
            yield name, getattr(self, name) > 0, "must be positive"
        yield "idle_us", self.idle_us >= 0, "must not be negative"
        yield "history_bytes", self.history_bytes >= 0, "must not be negative"
        yield "retries", 1 <= self.retries <= 100, "must be within 1..100"
        yield "batch", 1 <= self.batch <= MOST_BATCH, f"must be within 1..{MOST_BATCH}"
        yield "window", 1 <= self.window <= MOST_WINDOW, f"must be within 1..{MOST_WINDOW}"
        yield "tolerated", 0 <= self.tolerated < MAX_MEMBERS, f"must be within 0..{MAX_MEMBERS - 1}"
        if self.members and self.resiliency is Resiliency.NUMBER:
            yield (
                "tolerated",
                self.tolerated < self.n,
                f"with resiliency = number must be below {self.n}, the number of members: that "
                "many and one more must hold what is delivered (rbp K3)",
            )
        yield (
            "act_us",
            self.act_us >= self.idle_us + 5 * self.token_us,
            "must be at least idle_us and five times token_us (rbp D6)",
        )
        yield (
            "members",
            len(self.members) <= MAX_MEMBERS,
            f"are more than the {MAX_MEMBERS} that a list has room for",
        )

    @property
    def majority(self) -> int:
        """q: how many sites are more than half of the group (F7)."""
        return self.n // 2 + 1

    def holders(self, ring: int) -> int:
        """K2 to K4, h: members of a ring that must be known to hold an entry."""
        match self.resiliency:
            case Resiliency.TOTAL:
                return ring
            case Resiliency.MAJORITY:
                return min(ring, self.n - self.majority + 1)
            case Resiliency.NUMBER:
                return min(ring, self.tolerated + 1)
            case Resiliency.UNSAFE:
                return 1

    def awaited(self, ring: int) -> int:
        """F8, K3: of the members of the last list, how many must take part in a change: with fewer,
        an entry that was delivered could have all its holders among the others."""
        return ring - self.holders(ring) + 1 if self.uniform else 1

    @property
    def voters(self) -> int:
        """F7, F8: sites of a whole group that must take part in a change."""
        return max(self.majority, self.awaited(self.n))

    @property
    def uniform(self) -> bool:
        """K4: whether what anybody delivers is never void."""
        return self.resiliency is not Resiliency.UNSAFE

    @property
    def faults(self) -> int:
        """How many members may be missing while the rest go on."""
        return self.n - self.voters

    @property
    def steadfast(self) -> int:
        """F8: logs are in memory, so that many must never have crashed (A5)."""
        return self.voters

    @property
    def patience_us(self) -> int:
        """How long a member may stand still before the others go on without it."""
        return min(self.retries * self.token_us, self.act_us)

    @property
    def frame_budget(self) -> int:
        """Room for contents in one frame."""
        return self.max_packet - HEADER_BYTES

    @property
    def group(self) -> int:
        """What members must have in common to understand each other, in 32 bits."""
        common = (type(self).__module__, self.members, self.resiliency, self.tolerated)
        return crc32(repr(common).encode())


LAN = Config()

PROFILES = {
    "lan": LAN,
    "majority": Config(resiliency=Resiliency.MAJORITY),
    "paper": Config(batch=1),
    "unsafe": Config(resiliency=Resiliency.UNSAFE),
}
"""``paper`` is the source's own protocol, repaired: one message for each ACK."""


def progress_bound_us(config: Config, n: int) -> int:
    """Time after the last fault until all live members deliver together, and between deliveries.

    Silence is noticed; a reformation succeeds after some that clash; whoever was excluded learns of
    it, catches up, and is taken in by another one.
    """
    silence_us = config.act_us + (config.retries + 1) * config.token_us
    reform_us = (n + 6) * (3 * config.vote_us + 4 * config.backoff_us)
    rejoin_us = 8 * config.join_us + 40 * config.nack_us
    order_us = 10 * (config.data_us + n * (config.token_us + config.nack_us)) + config.idle_us
    return 3 * (silence_us + reform_us) + (n + 2) * rejoin_us + 4 * order_us
