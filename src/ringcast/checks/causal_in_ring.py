"""D7 causal(C): within a ring, a message comes after all that its sender knew of.

In C, m2 follows m1 if m2's originator delivered m1 in C before, or originated m1 in C before. A
processor that delivers m2 has delivered m1 earlier (Th 4.12: it must deliver m1, not only order
it). Direct predecessors are enough: whoever delivered m1 had delivered those of m1.
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.checks.ring import PlacedFrame
from ringcast.core.trace import Delivered, Originated


class CausalInRing(Property):
    """D7."""

    tag = "D7"
    title = "causal in a configuration"
    reads = Reads.ORIGINS
    origin_first = True

    def on_originated(self, event: Originated) -> None:
        """Note what the originator had delivered, and its own message before this one."""
        history = self.history
        if history.again or history.span is not history.node.span:
            return
        span, frame = history.span, history.frame
        prefix, beyond = span.prefix, []
        if span.stray:  # delivered before it was in the ring, which D5 reports
            prefix, beyond = 0, [*span.earlier.intervals(), *span.regular.intervals()]
        elif span.highest > prefix:  # only after a hole, which D9 reports
            beyond = [each for each in span.regular.intervals() if each[0] > prefix]
        own: dict[int, int] = frame.ring.marks.setdefault(self.tag, {})
        frame.marks[self.tag] = (prefix, tuple(beyond), own.get(event.node, 0))
        own[event.node] = frame.index

    def on_delivered(self, event: Delivered) -> None:
        """All of that must have been delivered here too."""
        history = self.history
        frame, span = history.frame, history.span
        mark = frame.marks.get(self.tag)
        if mark is None:
            return
        prefix, beyond, own = mark
        if prefix <= span.prefix and own <= span.prefix and not beyond:
            return
        for low, high in ((1, prefix), *beyond, (own, own)):
            missing = span.lacks(low, high)
            if missing is not None:
                self._report(event, frame, frame.ring.name(missing))
                return

    def _report(self, event: Delivered, frame: PlacedFrame, before: str) -> None:
        self.violate(
            f"Processor {event.node} delivered {frame} in {event.view} at {event.t_us} us without "
            f"{before}, which its originator, processor {frame.sender}, had delivered or "
            f"originated before it.",
            (event.node, frame.sender),
            (before, frame),
            event.t_us,
        )
