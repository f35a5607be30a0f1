"""Settings of Totem multiple-ring: those of each ring, and a few for what is between them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ringcast.core.settings import Relation
from ringcast.protocols.totem_multi.messages import FORWARDED_BYTES
from ringcast.protocols.totem_single.config import MS
from ringcast.protocols.totem_single.config import Config as RingConfig
from ringcast.protocols.totem_single.config import progress_bound_us as ring_bound_us
from ringcast.protocols.totem_single.messages import STAMP_BYTES

MIB = 2**20

OUR_BYTES = 4096
"""What this layer adds to the largest message, generously."""


class Config(RingConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of every ring (``protocols/totem_single/config.py``), and these. ``adaptive`` is for
    flow control between rings as well: by queue length, or on and off (W1)."""

    timestamp_interval: int = 1_000_000
    """MR-6: the clock is written to stable storage once in so many ticks."""
    gv_min_us: int = 5 * MS
    """G-33: a gateway speaks for a silent ring at most this often."""
    acyclic: bool = False
    """G-15: there is one way between any two rings, so messages are handed on before all members
    of their ring have them; else, on a ring with several gateways, after that. F2, F7: and only
    then do gateways withhold messages to some processors where none of these is, and messages of
    groups where nobody is in them."""

    def relations(self) -> Iterator[Relation]:
        """What must hold between these."""
        yield "timestamp_interval", self.timestamp_interval >= 2, "must be at least 2"
        yield "gv_min_us", self.gv_min_us > 0, "must be above 0"
        yield from super().relations()

    @property
    def frame_budget(self) -> int:
        """Room for an application's messages in one frame of a ring."""
        return super().frame_budget - STAMP_BYTES - FORWARDED_BYTES

    def for_ring(self, share: int) -> RingConfig:
        """The settings of one ring; what goes into its queue is bounded above it (MR-41). MR-45:
        who sends for ``share`` processors may send so many times as much in a visit."""
        own = {name: getattr(self, name) for name in RingConfig.__struct_fields__}
        own["max_message"] = max(self.max_message + OUR_BYTES, MIB)
        own["max_queue_bytes"] = max(self.max_queue_bytes, own["max_message"])
        own["each_time"] *= share
        return msgspec.convert(own, RingConfig)


def progress_bound_us(config: Config, n: int) -> int:
    """Time from the last fault until n live processors share a topology: each ring forms, then the
    gateways tell each other of what is beyond; a change may have to travel over all rings. What
    waits in everybody's queue goes ahead of it, a window in each rotation, and the words on safe
    messages among it come back."""
    rotations = -(-n * config.max_queue // config.window_size)
    queued_us = 2 * rotations * config.token_loss_us
    return 2 * ring_bound_us(config, n) + 4 * n * config.gv_min_us + queued_us


LAN = Config()
