"""agreement: if a correct processor delivers a message, every correct processor does.

Correct means settled at the end and never crashed. The property is meant for protocols with a
fixed group: where the group may split and merge, D4 and D6 say what is promised instead.
"""

from __future__ import annotations

from typing import ClassVar

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads, rings
from ringcast.checks.ring import CheckedRing, RingStay
from ringcast.core.ids import NodeId
from ringcast.core.trace import Ended


class Agreement(Property):
    """All correct processors deliver the same messages."""

    tag = "agreement"
    title = "agreement of correct processors"
    reads = Reads.ORIGINS
    uniform: ClassVar[bool] = False

    def __init__(self, history: History) -> None:
        super().__init__(history)
        # One example for each pair (delivered it, did not); it cannot be made good any more.
        self._lacking: dict[tuple[NodeId, NodeId], str] = {}

    def ring_over(self, ring: CheckedRing) -> None:
        """Keep an example of each difference before the ring is forgotten."""
        self._compare(ring, self._lacking)

    def on_ended(self, event: Ended) -> None:
        """A difference between correct processors is a violation."""
        lacking = dict(self._lacking)
        for ring in rings(self.history):
            self._compare(ring, lacking)
        nodes = self.history.nodes
        for (one, other), message in sorted(lacking.items()):
            if nodes[other].crashes or (nodes[one].crashes and not self.uniform):
                continue
            self.owed(
                other in event.settled and (self.uniform or one in event.settled),
                f"Processor {one} delivered {message}, but processor {other} did not by the end.",
                (one, other),
                (message,),
                event.t_us,
            )

    def _compare(self, ring: CheckedRing, lacking: dict[tuple[NodeId, NodeId], str]) -> None:
        for one, span in ring.spans.items():
            for other in self.history.nodes:
                if other != one and (one, other) not in lacking:
                    index = _missing(span, ring.spans.get(other))
                    if index is not None:
                        lacking[one, other] = ring.name(index)


def _missing(span: RingStay, other: RingStay | None) -> int | None:
    """The first index delivered in ``span`` and not in ``other``."""
    for delivered in span.delivered:
        for start, end in delivered.intervals():
            index = start if other is None else other.lacks(start, end)
            if index is not None:
                return index
    return None
