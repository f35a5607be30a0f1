"""D5 place: a message is delivered in its ring or in the transitional one right after.

``del(p,m,X)`` with m originated in C means that p installed C, and X is C or the transitional
configuration that p installs directly after C (Th 4.9).
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.checks.ring import State
from ringcast.core.trace import Delivered


class Place(Property):
    """D5."""

    tag = "D5"
    title = "place"
    reads = Reads.ORIGINS

    def on_delivered(self, event: Delivered) -> None:
        """Compare the place with the processor's stay in the message's ring."""
        span = self.history.span
        view = event.view
        if span.state is State.OPEN or span.state is State.LEFT:
            if view is event.ring or view == event.ring:
                return
            if span.then is not None and view == span.then.view:
                return
            allowed = f"{event.ring}" + (f" or {span.then.view}" if span.then else "")
            why = f"where only {allowed} would do"
        else:
            why = f"but it was not in ring {event.ring}"
        self.violate(
            f"Processor {event.node} delivered {self.history.frame} in {view} at {event.t_us} us, "
            f"{why}.",
            (event.node,),
            (self.history.frame,),
            event.t_us,
        )
