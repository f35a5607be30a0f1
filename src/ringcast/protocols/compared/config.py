"""Settings of the protocols that the counter-based one was compared with."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from ringcast.core.settings import ListedSettings, Relation

MS = 1_000
HEADER_BYTES = 96
MAX_MEMBERS = 64
MOST_WINDOW = 4096


class Config(ListedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all four have."""

    repair_us: int = 20 * MS
    """What is missing is asked for, or sent again, after so long."""
    window: int = 64
    """Frames of one member that are sent and not delivered by it, at most."""

    def relations(self) -> Iterator[Relation]:
        """Relations between the settings that the protocols rely on."""
        yield from super().relations()
        yield "repair_us", self.repair_us > 0, "must be positive"
        yield "window", 1 <= self.window <= MOST_WINDOW, f"must be within 1..{MOST_WINDOW}"

    @property
    def faults(self) -> int:
        """Nobody may be missing."""
        return 0

    @property
    def patience_us(self) -> int:
        """Nobody is ever given up; this is how soon somebody asks."""
        return self.repair_us

    @property
    def frame_budget(self) -> int:
        """Room for contents in one frame."""
        return self.max_packet - HEADER_BYTES

    @property
    def group(self) -> int:
        """What members must have in common to understand each other, in 32 bits."""
        return crc32(repr((type(self).__name__, self.members)).encode())


class CentralisedConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the centralised protocol."""

    relay: bool = False
    """For networks of links between two: bodies go to the site alone, which passes them on."""


class RingConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of those with a token."""

    token_us: int = 1 * MS
    """T: how long an owner keeps the token."""
    each_time: int = 1
    """Messages of one member: with a token that allows the owner to send, in one visit; where all
    may send, in one token period."""

    def relations(self) -> Iterator[Relation]:
        """Relations between the settings that the protocols rely on."""
        yield from super().relations()
        yield "token_us", self.token_us >= 0, "must not be negative"
        yield "each_time", 1 <= self.each_time <= 1024, "must be within 1..1024"


def progress_bound_us(config: Config, n: int) -> int:
    """Time after the last fault until all deliver, and between deliveries."""
    token_us = config.token_us if isinstance(config, RingConfig) else 0
    return 60 * (config.repair_us + n * token_us) + 8 * n * config.repair_us
