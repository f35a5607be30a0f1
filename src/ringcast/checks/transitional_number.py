"""M4-number two below: a transitional configuration has the number two below the ring after it.

So everybody can tell its name from that of the ring, and rings are numbered in steps of more.
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.core.trace import Installed


class TransitionalNumber(Property):
    """``T.seq = C2.seq - 2``."""

    tag = "M4-number"
    title = "number of T"
    reads = Reads.NOTHING
    about_deliveries = False

    def on_installed(self, event: Installed) -> None:
        """Look at T when it ends in a regular configuration."""
        middle = self.history.node.previous
        if event.transitional or middle is None or not middle.transitional:
            return
        if middle.view.seq != event.view.seq - 2:
            self.violate(
                f"Processor {event.node} passed through {middle.view} {middle.members} "
                f"({middle.t_us} us), which is not numbered two below {event.view}.",
                (event.node,),
                (),
                event.t_us,
            )
