"""D1-own: a processor originates its own messages and no others, once, before it delivers them.

Where members decide together which place a message gets, others may deliver it before its sender
hears of the place, and its sender may crash before. Then D1 asks too much, and this is what holds.
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.core.trace import Delivered, Originated


class OwnOrigin(Property):
    """D1 as far as a processor's own messages go."""

    tag = "D1-own"
    title = "originates its own messages"
    reads = Reads.ORIGINS

    def on_originated(self, event: Originated) -> None:
        """It is the sender's, and the place is new."""
        frame = self.history.frame
        if event.owner != event.node:
            self.violate(
                f"Processor {event.node} originated {frame} at {event.t_us} us, a message of "
                f"processor {event.owner}.",
                (event.node, event.owner),
                (frame,),
                event.t_us,
            )
        elif self.history.again:
            self.violate(
                f"Processor {event.node} originated {frame} at {event.t_us} us, a place that was "
                f"given before.",
                (event.node,),
                (frame,),
                event.t_us,
            )

    def on_delivered(self, event: Delivered) -> None:
        """A sender knows the place of what it delivers."""
        frame = self.history.frame
        if event.sender != event.node or frame.origin_us is not None or not frame.index:
            return
        ring = frame.ring
        if ring.members or not self.history.forgot(ring.view):
            self.violate(
                f"Processor {event.node} delivered its own {frame} at {event.t_us} us before it "
                f"originated it.",
                (event.node,),
                (frame,),
                event.t_us,
            )
