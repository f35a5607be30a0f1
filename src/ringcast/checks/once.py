"""D2 once: a processor delivers a message at most once.

Across incarnations it is impossible too, since an identifier carries a ring that a later
incarnation cannot be in (D5).
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.core.trace import Delivered


class Once(Property):
    """D2."""

    tag = "D2"
    title = "once"
    reads = Reads.ORIGINS

    def on_delivered(self, event: Delivered) -> None:
        """A repetition is a violation."""
        if self.history.again:
            self.violate(
                f"Processor {event.node} delivered {self.history.frame} for the second time, "
                f"in {event.view} at {event.t_us} us.",
                (event.node,),
                (self.history.frame,),
                event.t_us,
            )
