"""D4 all of C: in a ring that lasts, every member delivers every message.

If q originates m in C, p installed C, and no member of C ever leaves C, then p delivers m in C
eventually. It can be told at the end only, for rings all of whose members are settled.
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads, rings
from ringcast.checks.ring import State
from ringcast.core.trace import Ended


class Everyone(Property):
    """D4."""

    tag = "D4"
    title = "all of C"
    reads = Reads.ORIGINS

    def on_ended(self, event: Ended) -> None:
        """Look for messages that somebody has not delivered."""
        for ring in rings(self.history):
            spans = [ring.spans[member] for member in ring.members]
            if any(span.state > State.OPEN or span.then is not None for span in spans):
                continue
            settled = set(ring.members) <= set(event.settled)
            for span in spans:
                for frame in ring.frames.values():
                    originated = frame.origin_us is not None
                    if originated and span.state is State.OPEN and not span.holds(frame.index):
                        self.owed(
                            settled,
                            f"Processor {frame.sender} originated {frame} at {frame.origin_us} us "
                            f"and nobody left {ring.view}, but processor {span.node} did not "
                            f"deliver it by the end.",
                            (frame.sender, span.node),
                            (frame,),
                            event.t_us,
                        )
