"""D8 Lamport: messages related by causality anywhere in the trace keep that order.

If the origination of m1 happened before that of m2, in Lamport's sense over the whole trace, and
p delivers both, it delivers m1 first (Th 4.11). Each processor has a vector of the numbers its
deliveries depend on; a message carries its originator's vector.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.checks.ring import PlacedFrame
from ringcast.checks.stretch import Share, Stretch
from ringcast.core.ids import NodeId
from ringcast.core.trace import Delivered, Originated

Clock = dict[NodeId, int]


class Lamport(Property):
    """D8."""

    tag = "D8"
    title = "Lamport's causal order"
    reads = Reads.ORIGINS
    origin_first = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        # Per processor and sender: the latest number that something delivered depends on, and
        # what that was.
        self._past: dict[NodeId, dict[NodeId, tuple[int, PlacedFrame]]] = {}
        self._count: Clock = {}

    def on_originated(self, event: Originated) -> None:
        """Give the message its number and its past."""
        if not self.history.again:
            frame = self.history.frame
            number = self._count[frame.sender] = self._count.get(frame.sender, 0) + 1
            frame.marks[self.tag] = (number, number, self.clock(event.node))

    def clock(self, node: NodeId) -> Clock:
        """The vector of a processor, as it is now."""
        return {sender: number for sender, (number, _) in self._past.get(node, {}).items()}

    def on_delivered(self, event: Delivered) -> None:
        """Nothing delivered earlier may depend on this one."""
        frame = self.history.frame
        mark = frame.marks.get(self.tag)
        if mark is None or self.history.again:
            return
        low, high, clock = mark
        past = self._past.get(event.node)
        if past is None:
            past = self._past[event.node] = {}
        known = past.get(frame.sender)
        if known is not None and known[0] >= low:
            self.violate(
                f"Processor {event.node} delivered {frame} at {event.t_us} us after {known[1]}, "
                f"whose originator, processor {known[1].sender}, already knew of it.",
                (event.node, known[1].sender),
                (frame, known[1]),
                event.t_us,
            )
        past[frame.sender] = (high, frame)
        for sender, number in clock.items():
            known = past.get(sender)
            if known is None or known[0] < number:
                past[sender] = (number, frame)

    def on_stretch(self, stretch: Stretch) -> None:
        """Everybody depends on these messages now; their heads brought all that they depend on."""
        for share in stretch.shares:
            known = (self.number(share), self.history.last_frame(share))
            for member in self.history.ring.members:
                self._past.setdefault(member, {})[share.sender] = known

    def number(self, share: Share) -> int:
        """The number of the last frame of ``share``."""
        self._count[share.sender] = self._count.get(share.sender, 0) + share.frames
        return self._count[share.sender]
