"""Settings of the Totem single-ring protocol, with the paper's names and defaults (App. A)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ringcast.core.settings import GroupSettings, Relation
from ringcast.protocols.totem_single.messages import ENCAPSULATION_BYTES, HEADER_BYTES

MS = 1_000

LONGEST_BACKOFF = 64
"""R95: the interval doubles up to so many times the first."""


class Config(GroupSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ring's settings. The defaults suit a handful of processes on a LAN.

    Of the shared ones ``max_packet`` is R83's, ``packing`` R96's, ``max_message`` R98's, and
    ``max_queue`` and ``min_queue`` are R79's max_srp_snd_q and min_srp_snd_q.
    """

    rule: ClassVar[str] = "totem R82"

    token_loss_us: int = 300 * MS
    """R26: silence after which the token is lost and a new ring is formed: lower finds crashes
    sooner, higher tolerates pauses."""
    token_retransmit_us: int = 40 * MS
    """R25: a token of which nothing came is sent again after this."""
    join_us: int = 40 * MS
    """R42: who looks for members says so this often."""
    consensus_us: int = 360 * MS
    """Longer than token_loss: whoever waits for a Commit token that was lost is waited for."""
    announce_us: int = 500 * MS
    """R94: an idle ring says that it exists this often."""

    hold_us: int = 25 * MS
    """R92, max_delay_proc: longest an idle ring keeps the token at one processor; 0 = never."""
    max_fast_rounds: int = 30
    """R92: idle rotations before the ring slows down."""

    window_size: int = 50
    """R84: frames a ring may send in one rotation; with ``adaptive``, the value to start from."""
    each_time: int = 10
    """R84: frames one processor may send in one visit."""
    min_each: int = 1
    """R87: the allowance is never below this; 0 = the paper's literal rule, which can starve."""
    adaptive: bool = True
    """Let the window follow loss and rotation time; False = the paper's fixed window."""
    min_window: int = 10
    """With ``adaptive``: the window is never below this …"""
    max_window: int = 400
    """… nor above this."""
    target_rotation_us: int = 50 * MS
    """With ``adaptive``: a rotation longer than this is a sign that receivers cannot drain."""

    fail_rcv_const: int = 20
    """R17: visits with the same lagging aru before its owner is declared failed."""
    max_requests: int = 90
    """R16: longest list of requests in a token."""
    miss_visits: int = 1
    """R16: visits to wait before a missing number is requested: a token is small and may overtake
    frames that are only late, and each needless request costs a frame and narrows the window."""

    mutual: bool = True
    """Settle on members that all hear each other (R43 ext, hearing.py); False = the paper."""
    merge_backoff_us: int = 0
    """R95: ignore a processor that was just dropped (an outsider by the Consensus timeout, or
    the victim of R46) for this long, doubling; 0 = off."""

    def relations(self) -> Iterator[Relation]:
        """R82: relations between the settings that the protocol relies on."""
        yield "join_us", 0 < self.join_us < self.consensus_us, "must be below consensus_us"
        yield (
            "token_retransmit_us",
            0 < self.token_retransmit_us < self.token_loss_us,
            "must be below token_loss_us",
        )
        yield "hold_us", 0 <= self.hold_us < self.token_loss_us, "must be below token_loss_us"
        yield (
            "announce_us",
            self.announce_us >= self.join_us,
            "must not be below join_us, or rings that hear of each other never come to be",
        )
        yield (
            "merge_backoff_us",
            0 <= LONGEST_BACKOFF * self.merge_backoff_us <= progress_bound_us(self, 1),
            f"doubles up to {LONGEST_BACKOFF} times its value, and must then be at most "
            f"{progress_bound_us(self, 1)}, the time in which rings come together",
        )
        yield "each_time", self.each_time >= 1, "must be at least 1"
        yield "window_size", self.window_size >= 1, "must be at least 1"
        yield "min_each", 0 <= self.min_each <= self.each_time, "must be within 0..each_time"
        yield (
            "min_window",
            1 <= self.min_window <= self.max_window,
            "must be within 1..max_window",
        )
        yield "max_fast_rounds", self.max_fast_rounds >= 0, "must not be negative"
        yield "target_rotation_us", self.target_rotation_us > 0, "must be positive"
        yield "fail_rcv_const", self.fail_rcv_const >= 1, "must be at least 1"
        yield "max_requests", 1 <= self.max_requests <= 4096, "must be within 1..4096"
        yield "miss_visits", self.miss_visits >= 0, "must not be negative"
        yield from super().relations()

    @property
    def patience_us(self) -> int:
        """How long a member may stand still before the others eject it."""
        return self.token_loss_us

    @property
    def frame_budget(self) -> int:
        """R83: room for contents in one frame."""
        return self.max_packet - HEADER_BYTES - ENCAPSULATION_BYTES - 12


def progress_bound_us(config: Config, n: int) -> int:
    """M5, Th 4.3: time from the last fault until n live processors share a working ring.

    Each pass that fails enlarges a set, so there are at most 2n - 1 of them; before the first,
    rings must hear of each other (two Announce periods) and a member must notice the loss.
    """
    one_pass = config.token_loss_us + config.consensus_us + config.join_us
    return (2 * n - 1) * one_pass + 2 * config.announce_us + 2 * one_pass


LAN = Config()

MEASURED = Config(
    # G35: what the dissertation's measurements must have used; resend near 12 ms from E9.
    token_loss_us=100 * MS,
    token_retransmit_us=12 * MS,
    join_us=15 * MS,
    consensus_us=60 * MS,
    announce_us=2_100 * MS,
    hold_us=0,
    window_size=70,
    each_time=14,
    adaptive=False,
    miss_visits=0,
    mutual=False,
)

APPENDIX = Config(
    token_loss_us=8_500 * MS,
    token_retransmit_us=800 * MS,
    join_us=1_300 * MS,
    consensus_us=3_750 * MS,
    announce_us=2_100 * MS,
    hold_us=50 * MS,
    adaptive=False,
    miss_visits=0,
    mutual=False,
)
