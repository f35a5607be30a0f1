"""Settings of token-fd: the group, its detector, and how the token and the bodies travel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated
from zlib import crc32

import msgspec

from ringcast.blocks.ring_detector import Patience
from ringcast.blocks.token_ring import check_group, most_faults
from ringcast.core.settings import MIB, ListedSettings, Relation

MS = 1_000

HEADER_BYTES = 64
"""Room for the common header and the fixed fields of a frame with a body."""

MAX_MEMBERS = 64
"""The token has a number for each pair of members: who holds how much of whose messages."""


MOST_RUNS = 4096
"""Entries of a sequence in one frame, at most."""

MOST_LAG = MOST_RUNS // 4
"""Entries of the order in a token, at most. Who learns from it does not know where the decisions in
it end, and tells all of it at once to members that ask; some such steps fit a frame."""


class Config(ListedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One group's settings. The defaults suit a handful of processes on a LAN.

    With ``bodies_in_token``, ``max_packet`` is the largest token.
    """

    f: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How many may crash; as many as the members bear, if not given (TF-5)."""
    epoch: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Which life of the group this is. A member that took part in it once does not come back
    (TF-42); raising the number on all of them begins anew, with an empty history."""

    beat_us: int = 20 * MS
    """TF-1: the predecessor's heartbeats come this often."""
    suspect_us: int = 80 * MS
    """TF-1: silence that makes a suspicion; short, because a wrong one costs a few votes only."""
    suspect_grow_us: int = 20 * MS
    """TF-1: after a suspicion that was wrong the time is longer by this."""
    suspect_most_us: int = 500 * MS
    """TF-1: the time grows with every mistake, up to this; longer than any delay, or nothing may
    ever be delivered (A14)."""

    hold_us: int = 10 * MS
    """TF-31: how long an idle token rests at each member; 0 = not at all."""
    resend_us: int = 20 * MS
    """TF-39: a token is sent again when this long nothing came of it."""
    request_us: int = 5 * MS
    """TF-34: a suspicious member asks for a token this often."""
    fetch_us: int = 5 * MS
    """TF-41, TF-38: what is missing for so long is asked for, again and again."""

    copies: bool = False
    """TF-6: send the token to the next f+1 members; False = to the next one, others ask (TF-34)."""
    bodies_in_token: bool = False
    """TF-22: whole messages in the token; False = ids, and bodies by broadcast (TF-32)."""
    lag_limit: int = 0
    """TF-38: most entries of the delivered order that a token carries; who lacks more asks for
    them. 0 = what four rounds can bring, within bounds."""
    history_bytes: int = 64 * MIB
    """TF-38: how much of what was delivered is kept for members that lag; whoever lags by more
    cannot catch up and stops."""

    each_time: int = 16
    """Frames of one member that are under way, at most; the next waits until one is delivered."""

    def relations(self) -> Iterator[Relation]:
        """Relations between the settings that the protocol relies on."""
        yield (
            "beat_us",
            0 < self.beat_us < self.suspect_most_us,
            "must be below suspect_most_us",
        )
        yield (
            "suspect_us",
            0 < self.suspect_us <= self.suspect_most_us,
            "must be within 1..suspect_most_us",
        )
        yield "suspect_grow_us", self.suspect_grow_us > 0, "must be positive"
        yield "hold_us", self.hold_us >= 0, "must not be negative"
        yield "resend_us", self.resend_us > 0, "must be positive"
        yield "request_us", self.request_us > 0, "must be positive"
        yield "fetch_us", self.fetch_us > 0, "must be positive"
        yield "lag_limit", 0 <= self.lag_limit <= MOST_LAG, f"must be within 0..{MOST_LAG}"
        yield "each_time", 1 <= self.each_time <= 4096, "must be within 1..4096"
        # A decision may bring as many of each member, and one member alone may know it.
        least = 4 * self.n * self.each_time
        yield (
            "history_bytes",
            self.history >= least,
            f"keeps {self.history} frames, too few for {self.n} members with each_time = "
            f"{self.each_time}: give {least * self.max_packet} or more",
        )
        yield from super().relations()

    def __post_init__(self) -> None:
        """The relations, and the number of members."""
        super().__post_init__()
        if self.members:
            check_group(self.members, self.faults)

    @property
    def patience_us(self) -> int:
        """TF-1: how long a member may stand still before its successor suspects it."""
        return self.suspect_us

    @property
    def faults(self) -> int:
        """f: how many of them may crash."""
        return most_faults(self.n) if self.f is None else self.f

    @property
    def patience(self) -> Patience:
        """Times of the detector."""
        return Patience(
            beat_us=self.beat_us,
            suspect_us=self.suspect_us,
            grow_us=self.suspect_grow_us,
            most_us=self.suspect_most_us,
        )

    @property
    def lag(self) -> int:
        """TF-38: entries of the order in a token; a decision brings one for each origin at most,
        and a round has n/f decisions and one more."""
        return self.lag_limit or min(MOST_LAG, 4 * self.n * (self.n // max(1, self.faults) + 1))

    @property
    def frame_budget(self) -> int:
        """Room for contents in one frame; a token has to hold all that it speaks of."""
        room = self.max_packet - HEADER_BYTES
        if not self.bodies_in_token:
            return room
        room -= 8 * self.n * self.n + 4 * self.lag
        return room // ((self.lag + self.n) * self.each_time) - 24

    @property
    def history(self) -> int:
        """TF-38: frames that are kept for members that lag."""
        return self.history_bytes // max(1, self.max_packet)

    @property
    def group(self) -> int:
        """What members must have in common to understand each other, in 32 bits."""
        common = (self.epoch, self.members, self.faults, self.bodies_in_token)
        return crc32(repr(common).encode())


LAN = Config()

PAPER = Config(copies=True, bodies_in_token=True, each_time=1, max_packet=60_000, hold_us=1 * MS)
"""Procedures 6 to 8 of the source: whole messages in a token with f backups. Nobody knows of a
message before the token comes to its sender, so it rests for a short time only."""


def progress_bound_us(config: Config, n: int) -> int:
    """Time after the last fault until all live members deliver, and from one delivery to the next.

    A member that crashed is suspected by then, and patience has grown to what the network needs;
    the token has come round, with everything that may have to be asked for on the way.
    """
    detected = config.suspect_most_us + config.beat_us
    step = config.hold_us + config.resend_us + config.request_us + config.fetch_us
    return 4 * detected + 4 * (n + config.faults) * step
