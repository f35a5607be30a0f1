"""majority: each view is formed by more than half of all who may take part."""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.core.trace import Noted


class Majority(Property):
    """It reads the note ``formed``: the members, and how many there could be."""

    tag = "majority"
    title = "views of a majority"
    reads = Reads.NOTHING
    notes = ("formed",)
    about_deliveries = False

    def on_noted(self, event: Noted) -> None:
        """A coordinator formed a view."""
        if event.what != "formed" or not event.data:
            return
        (n,) = event.data
        if 2 * len(event.members) <= n:
            self.violate(
                f"Processor {event.node} formed {event.view} of {event.members} at {event.t_us} "
                f"us, which are not more than half of {n}.",
                (event.node,),
                (),
                event.t_us,
            )
