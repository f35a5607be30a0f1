"""Settings of iRBP: those of RBP's log and ring, the two limits of the detector, and views."""

from __future__ import annotations

from collections.abc import Iterator

from ringcast.blocks import channel, detector
from ringcast.core.settings import LEAST_BUDGET, Relation
from ringcast.protocols.rbp.config import MS, Resiliency
from ringcast.protocols.rbp.config import Config as RbpConfig


class Config(RbpConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One group's settings. The defaults suit a handful of processes on a LAN."""

    beat_us: int = 20 * MS
    """D1, T_hb: everybody says that it lives this often."""
    suspect_us: int = 100 * MS
    """D2, T_aggr: after so much silence the ring goes round a member, which keeps its place …"""
    suspect_max_us: int = 500 * MS
    """… D3: at most, after mistakes."""
    exclude_us: int = 2_000 * MS
    """D2, T_cons: after so much silence a member loses its place …"""
    exclude_max_us: int = 10_000 * MS
    """… D3: at most, after mistakes."""
    dwell_us: int = 200 * MS
    """I23, T_dwell: an external member that is back comes into the ring no sooner than this …"""
    dwell_max_us: int = 5_000 * MS
    """… and no later, however often it was away."""
    resend_us: int = 20 * MS
    """C1: a payload of the channel that is not acknowledged is sent again after so long."""

    def relations(self) -> Iterator[Relation]:
        """Relations between the settings that the protocol relies on."""
        yield from super().relations()
        yield (
            "max_packet",
            self.channel.piece_bytes >= LEAST_BUDGET,
            "leaves no room for pieces of what a change carries (irbp C5)",
        )
        for name in ("beat_us", "dwell_us", "resend_us"):
            yield name, getattr(self, name) > 0, "must be positive"
        yield (
            "suspect_us",
            self.suspect_us >= 3 * self.beat_us,
            "must be at least three times beat_us (irbp D6)",
        )
        yield (
            "suspect_max_us",
            self.suspect_us <= self.suspect_max_us <= self.exclude_max_us,
            "must be within suspect_us and exclude_max_us (irbp D2)",
        )
        yield (
            "exclude_us",
            10 * self.suspect_us <= self.exclude_us <= self.exclude_max_us,
            "must be at least ten times suspect_us and at most exclude_max_us (irbp D6)",
        )
        yield "dwell_max_us", self.dwell_max_us >= self.dwell_us, "must be at least dwell_us"

    @property
    def detector(self) -> detector.Settings:
        """The two limits."""
        return detector.Settings(
            beat_us=self.beat_us,
            suspect_us=self.suspect_us,
            suspect_max_us=self.suspect_max_us,
            exclude_us=self.exclude_us,
            exclude_max_us=self.exclude_max_us,
            at_once=True,
        )

    @property
    def channel(self) -> channel.Settings:
        """C5: contributions and decisions carry bodies, so they may need several frames."""
        return channel.Settings(
            resend_us=self.resend_us,
            resend_max_us=8 * self.resend_us,
            piece_bytes=self.frame_budget - 64,
        )

    def contributions(self, members: int) -> int:
        """I7, K3: contributions that a change needs, in a view of so many."""
        majority = members // 2 + 1
        if self.resiliency is Resiliency.NUMBER:
            return max(majority, members - self.tolerated)
        return majority

    def survivors(self, members: int) -> int:
        """A5: as many as a change needs."""
        return self.contributions(members)

    @property
    def catch(self) -> int:
        """I8, W_catch: how far behind a member may be that is given the token."""
        return 2 * self.n

    @property
    def patience_us(self) -> int:
        """How long a member may stand still before it loses its place."""
        return self.exclude_us


PROFILES = {
    "lan": Config(),
    "majority": Config(resiliency=Resiliency.MAJORITY),
    "paper": Config(batch=1),
    "unsafe": Config(resiliency=Resiliency.UNSAFE),
}
"""``paper`` is the source's own protocol, repaired: one message for each ACK."""


def progress_bound_us(config: Config, n: int) -> int:
    """Time after the last fault until all live members deliver together, and between deliveries.

    The silent are excluded, one change after another at worst; whoever was excluded learns of it,
    catches up, and is taken in by another change.
    """
    change_us = 10 * config.resend_us + 4 * config.suspect_max_us + config.act_us
    exclude_us = config.exclude_max_us + config.beat_us
    rejoin_us = 8 * config.join_us + 40 * config.nack_us + config.dwell_max_us
    order_us = 10 * (config.data_us + n * (config.token_us + config.nack_us)) + config.idle_us
    return 2 * exclude_us + (n + 4) * (change_us + rejoin_us) + 4 * order_us
