"""Settings of the toy."""

from __future__ import annotations

from collections.abc import Iterator

from ringcast.core.settings import ListedSettings, Relation
from toy_primary.messages import HEADER_BYTES

MS = 1_000


class Config(ListedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One group's settings."""

    beat_us: int = 30 * MS
    """The coordinator is heard this often."""
    silence_us: int = 300 * MS
    """A member that is silent for so long is missing."""
    form_us: int = 60 * MS
    """With a majority, how long to wait for the promises of the others."""
    window: int = 16
    """Frames of one member under way."""

    def relations(self) -> Iterator[Relation]:
        """What must hold between the settings."""
        yield "beat_us", 0 < 2 * self.beat_us <= self.silence_us, "must be half silence_us at most"
        yield "form_us", 0 <= self.form_us < self.silence_us, "must be below silence_us"
        yield "window", self.window >= 1, "must be at least 1"
        yield from super().relations()

    @property
    def patience_us(self) -> int:
        """How long a member may stand still before the others go on without it."""
        return self.silence_us

    @property
    def frame_budget(self) -> int:
        """Room for contents in one frame."""
        return self.max_packet - HEADER_BYTES - 12

    @property
    def faults(self) -> int:
        """A majority goes on."""
        return (self.n - 1) // 2


def progress_bound_us(config: Config, n: int) -> int:
    """Attempts to form a view may get in each other's way, some times for each member."""
    return (20 + 6 * n) * config.silence_us
