"""D13 gap rule: beyond a gap, only messages of those who surely had everything before.

In a transitional configuration p may skip numbers, but what it delivers after its first missing
number was originated by a member of its ``my_deliver_memb``, which protocols note as
``deliver_memb`` just before the configuration. A gap without such a note leaves this unknown.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.checks.ring import State
from ringcast.core.ids import NodeId
from ringcast.core.trace import Delivered, Noted


class GapRule(Property):
    """D13."""

    tag = "D13"
    title = "gap rule"
    reads = Reads.ORIGINS
    notes = ("deliver_memb",)

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._allowed: dict[NodeId, Noted] = {}

    def on_noted(self, event: Noted) -> None:
        """A processor says whose messages it must deliver."""
        if event.what == "deliver_memb":
            self._allowed[event.node] = event

    def on_delivered(self, event: Delivered) -> None:
        """Is there a gap before this one, and may it be crossed?"""
        history = self.history
        span, frame = history.span, history.frame
        if span.state is not State.OPEN or span.then is None or frame.index <= span.prefix:
            return
        missing = span.lacks(1, frame.index)
        if missing is None:
            return
        allowed = self._allowed.get(event.node)
        if allowed is None or allowed.view != event.view:
            self.undecided = True
        elif event.sender not in allowed.members:
            name = frame.ring.name(missing)
            self.violate(
                f"Processor {event.node} delivered {frame} of processor {event.sender} in "
                f"{event.view} at {event.t_us} us beyond the missing {name}, but only messages of "
                f"{allowed.members} may be delivered there.",
                (event.node, event.sender),
                (name, frame),
                event.t_us,
            )
