"""total-order: any two processors deliver the messages they share in the same order.

It compares processors with each other and looks at no identifier. For each pair it keeps the
furthest place, in the other's sequence, of a message they share; a shared message from before
that place is out of order.
"""

from __future__ import annotations

from itertools import permutations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.checks.ring import PlacedFrame
from ringcast.checks.stretch import Stretch
from ringcast.core.ids import NodeId
from ringcast.core.trace import Delivered


class TotalOrder(Property):
    """Pairwise the same order."""

    tag = "total-order"
    title = "one order of shared messages"
    in_part = True
    reads = Reads.ORDER

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._count: dict[NodeId, int] = {}
        self._furthest: dict[tuple[NodeId, NodeId], tuple[int, PlacedFrame]] = {}

    def on_delivered(self, event: Delivered) -> None:
        """Compare with everybody who delivered it before."""
        if self.history.again:
            return  # D2 speaks of it
        frame, node, furthest = self.history.frame, event.node, self._furthest
        places: dict[NodeId, int] | None = frame.marks.get(self.tag)
        if places is None:
            places = frame.marks[self.tag] = {}
        mine = self._count[node] = self._count.get(node, 0) + 1
        for other, place in places.items():
            known = furthest.get((node, other))
            if known is not None and place < known[0]:
                self.violate(
                    f"Processor {node} delivered {frame} at {event.t_us} us after {known[1]}, "
                    f"processor {other} delivered them in the other order.",
                    (node, other),
                    (known[1], frame),
                    event.t_us,
                )
                return
            furthest[node, other] = (place, frame)
            furthest[other, node] = (mine, frame)
        places[node] = mine

    def on_stretch(self, stretch: Stretch) -> None:
        """All share these messages, and the last one is the furthest."""
        ring, count = self.history.ring, self._count
        last = PlacedFrame(ring, stretch.seq, 0)
        for member in ring.members:
            count[member] = count.get(member, 0) + stretch.frames
        for one, other in permutations(ring.members, 2):
            self._furthest[one, other] = (count[other], last)
