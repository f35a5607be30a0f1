"""uniform-in-view: what anybody delivers in a view, every member of the view delivers there (P2).

Or it crashes, or stops because it cannot. A member that crashed right after its delivery counts as
well: nothing that was ever delivered is void. Members note ``epoch`` when they begin one; of views
without such notes there is nothing to be said.
"""

from __future__ import annotations

from ringcast.checks.property import Reads
from ringcast.checks.safe_regular import SafeRegular
from ringcast.core.trace import Delivered, Noted

EPOCH = "epoch"
"""The note of an epoch that begins: its step, its start, and 1 if the group begins anew."""


class UniformInView(SafeRegular):
    """P2, with views: every message is taken for a safe one."""

    tag = "uniform-in-view"
    title = "no delivery is void"
    reads = Reads.ORIGINS
    notes = (EPOCH,)
    needs_notes = True
    kind = "the message"

    def on_noted(self, event: Noted) -> None:
        """The view that its maker is in has epochs."""
        span = self.history.known(event.node).span
        if event.what == EPOCH and span is not None:
            span.ring.marks[EPOCH] = True

    def promises(self, event: Delivered) -> bool:
        """Every delivery does; of a view without epochs nobody can tell."""
        noted = EPOCH in self.history.span.ring.marks
        self.undecided |= not noted
        return noted
