"""Settings of TOTAL: the mode, the times of the group below, flow of messages."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from ringcast.blocks import channel, detector
from ringcast.blocks import view_change as changing
from ringcast.blocks.channel import PACKET_BYTES
from ringcast.blocks.view_messages import MAX_MEMBERS
from ringcast.core.settings import GroupSettings, Relation
from ringcast.protocols.total.messages import HEADER_BYTES

MS = 1_000

MOST_WINDOW = 4096
"""Largest window: a flush may have to send as much to one member, and once more if it starts over,
so the channel's queue holds twice that."""


class Mode(StrEnum):
    """How much a view's end promises (dossier 1.1); the same at all members."""

    PREFIX = "prefix"
    """As the source has it: no flush, so the last messages of a view may reach some only."""
    AGREED = "agreed"
    """Flush: who goes on together has delivered the same."""
    UNIFORM = "uniform"
    """Flush and stability: what anybody delivered, even one that crashed then, all deliver."""


class Config(GroupSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One group's settings. The defaults suit a handful of processes on a LAN."""

    mode: Mode = Mode.AGREED
    """What the end of a view promises: prefix, agreed or uniform."""
    quorum: int = 0
    """0: every part of a divided group goes on. Else views of fewer members than this do not
    deliver: with more than half of all processors there is one primary part at most (G-5). What was
    numbered before the group divided is no exception in uniform mode and for safe messages. An
    agreed message is promised to those alone who are together: a part that is cut off delivers it
    at the end of the old view if one of its members has it, and the primary part may never."""

    beat_us: int = 60 * MS
    """Heartbeats come this often."""
    suspect_us: int = 300 * MS
    """Least silence after which a member is suspected …"""
    suspect_max_us: int = 2_000 * MS
    """… and the most, where delays vary that much."""
    change_us: int = 600 * MS
    """Longest wait for one member to get ready for a new view."""
    announce_us: int = 500 * MS
    """How often a view says that it exists, for others to go together with it."""
    merge_us: int = 5 * MS
    """Views that have found each other wait so long for more of them before they become one."""
    away_us: int = 100 * MS
    """How long a member that was lost is not taken in again: this, doubling …"""
    away_max_us: int = 4_000 * MS
    """… up to this."""
    join_us: int = 300 * MS
    """A processor that starts looks for others so long before it serves itself alone."""
    retry_us: int = 10 * MS
    """Least time before the membership's own words are sent again …"""
    retry_max_us: int = 300 * MS
    """… and the most."""

    window_size: int = 256
    """W of TL-28: numbers given out that some member has not acknowledged."""
    request_window: int = 32
    """Requests of one member under way."""
    queue_size: int = 1024
    """Q of TL-24: how far ahead of what it expects a member keeps numbers."""
    request_us: int = 30 * MS
    """TL-15: a request is repeated after this, doubling …"""
    request_max_us: int = 500 * MS
    """… up to this."""
    ack_every: int = 16
    """k of TL-25."""
    ack_us: int = 5 * MS
    """τ_ack of TL-25."""
    status_us: int = 20 * MS
    """τ_st of TL-26."""
    tick_us: int = 2 * MS
    """TL-17: a hole is asked for when it is older than this."""
    resend_us: int = 10 * MS
    """TL-21: least time before a number is asked for again …"""
    resend_max_us: int = 200 * MS
    """… and the most, after doubling."""
    resend_window: int = 64
    """w of TL-21: numbers asked for at a time."""
    first_in_bcast: bool = True
    """TL-9: each BCAST tells the first number of its view; False = the source, where only
    NEW_VIEW does."""

    def relations(self) -> Iterator[Relation]:
        """Relations between the settings that the protocol relies on."""
        yield "quorum", 0 <= self.quorum <= MAX_MEMBERS, f"must be within 0..{MAX_MEMBERS}"
        yield "beat_us", 0 < 2 * self.beat_us <= self.suspect_us, "must be half suspect_us at most"
        yield (
            "suspect_max_us",
            self.suspect_max_us >= self.suspect_us,
            "must not be below suspect_us",
        )
        yield "retry_us", 0 < self.retry_us <= self.retry_max_us, "must be within retry_max_us"
        yield "resend_us", 0 < self.resend_us <= self.resend_max_us, "must be within the most"
        yield "request_us", 0 < self.request_us <= self.request_max_us, "must be within the most"
        yield "away_us", 0 < self.away_us <= self.away_max_us, "must be within away_max_us"
        within = f"must be within 1..{MOST_WINDOW}"
        yield "window_size", 1 <= self.window_size <= MOST_WINDOW, within
        # What is requested is no longer queued, so this bounds what a sender holds.
        yield "request_window", 1 <= self.request_window <= MOST_WINDOW, within
        yield "join_us", self.join_us >= 0, "must not be negative"
        yield "queue_size", 1 <= self.queue_size <= 2**15, "must be within 1..32768"
        yield "ack_every", self.ack_every >= 1, "must be at least 1"
        yield "resend_window", 1 <= self.resend_window <= 4096, "must be within 1..4096"
        for name in ("change_us", "announce_us", "merge_us", "ack_us", "status_us", "tick_us"):
            yield name, getattr(self, name) > 0, "must be positive"
        yield from super().relations()

    @property
    def patience_us(self) -> int:
        """How long a member may stand still before the others suspect it."""
        return self.suspect_us

    @property
    def frame_budget(self) -> int:
        """Room for contents in one frame."""
        return self.max_packet - HEADER_BYTES - PACKET_BYTES - 12

    def unfit(self, n: int) -> str:
        """G-5: a quorum that is never reached."""
        if self.quorum <= n:
            return ""
        return f"quorum = {self.quorum} is never reached: the group has {n} members"

    def least_part(self, n: int) -> int:
        """G-5: a quorum; all of them, if they are fewer than one."""
        return max(1, min(self.quorum, n))

    @property
    def group(self) -> changing.Settings:
        """What concerns the membership and its parts."""
        return changing.Settings(
            detector=detector.Settings(
                beat_us=self.beat_us,
                suspect_us=self.suspect_us,
                suspect_max_us=self.suspect_max_us,
            ),
            channel=channel.Settings(
                resend_us=self.retry_us, resend_max_us=self.retry_max_us, queue=2 * MOST_WINDOW
            ),
            change_us=self.change_us,
            announce_us=self.announce_us,
            merge_us=self.merge_us,
            away_us=self.away_us,
            away_max_us=self.away_max_us,
        )


PROFILES: dict[str, GroupSettings] = {
    "agreed": Config(),
    "uniform": Config(mode=Mode.UNIFORM),
    "prefix": Config(mode=Mode.PREFIX),
}


def progress_bound_us(config: Config, n: int) -> int:
    """Time from the last fault until n live processors share a view that works.

    Silence must be noticed, and each member may at worst be lost in an attempt of its own; then
    views find each other, kept away for as long as that lasts, and each may be taken in by an
    attempt of its own.
    """
    notice_us = config.suspect_max_us + 2 * config.beat_us
    attempt_us = 3 * config.change_us + config.retry_max_us
    meet_us = config.away_max_us + 4 * config.announce_us + config.merge_us
    return notice_us + 2 * n * attempt_us + 3 * (meet_us + attempt_us) + config.request_max_us * 4
