"""D1 integrity: what is delivered was originated before, with the same contents, once.

A ring that is over is forgotten; a delivery out of it is D5's to report.
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.checks.ring import PlacedFrame
from ringcast.core.ids import NodeId
from ringcast.core.trace import Delivered, Originated


class Origin(Property):
    """D1."""

    tag = "D1"
    title = "integrity"
    reads = Reads.ORIGINS
    origin_first = True

    def on_originated(self, event: Originated) -> None:
        """No identifier is given twice."""
        if self.history.again:
            frame = self.history.frame
            self.violate(
                f"Processor {event.node} originated {frame} at {event.t_us} us, an identifier "
                f"that processor {frame.sender} had used before (at {frame.origin_us} us).",
                (frame.sender, event.node),
                (frame,),
                event.t_us,
            )

    def on_delivered(self, event: Delivered) -> None:
        """The contents are those of the origination."""
        frame = self.history.frame
        if frame.origin_us is None:
            ring = frame.ring
            if frame.index and (ring.members or not self.history.forgot(ring.view)):
                self.violate(
                    f"Processor {event.node} delivered {frame} at {event.t_us} us, "
                    f"which nobody had originated.",
                    (event.node,),
                    (frame,),
                    event.t_us,
                )
        elif self.history.differs:
            self.violate(
                f"Processor {event.node} delivered {frame} at {event.t_us} us as "
                f"{contents(event.sender, event)}, but processor {frame.sender} originated it "
                f"at {frame.origin_us} us as {contents(frame.sender, frame)}.",
                (frame.sender, event.node),
                (frame,),
                event.t_us,
            )


def contents(sender: NodeId, it: PlacedFrame | Originated | Delivered) -> str:
    """What a frame holds, in words."""
    sums = " ".join(f"{digest:08x}" for digest in it.digests)
    return f"number {it.first} of {sender}, {it.level.name.lower()}, checksums {sums}"
