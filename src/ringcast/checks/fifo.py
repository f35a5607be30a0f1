"""fifo: messages of one sender are delivered in the order in which it submitted them.

Numbers of a sender's incarnation rise at every receiver, and a later incarnation comes after an
earlier one. Numbers may be missing: a receiver need not have been in every configuration. That a
number stands for the message that was submitted under it is for ``content`` to say.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.checks.ring import PlacedFrame
from ringcast.checks.stretch import Stretch
from ringcast.core.ids import NodeId
from ringcast.core.trace import Delivered


class Fifo(Property):
    """Per sender, in order of submission."""

    tag = "fifo"
    title = "submission order of each sender"
    reads = Reads.SUBMISSIONS

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._last: dict[NodeId, dict[NodeId, tuple[int, int, PlacedFrame]]] = {}

    def on_stretch(self, stretch: Stretch) -> None:
        """Every sender's numbers went on by one each time."""
        ring, nodes = self.history.ring, self.history.nodes
        for share in stretch.shares:
            incarnation = nodes[share.sender].incarnation
            last = (incarnation, share.last, self.history.last_frame(share))
            for member in ring.members:
                self._last.setdefault(member, {})[share.sender] = last

    def on_delivered(self, event: Delivered) -> None:
        """Compare with the last message of the same sender."""
        if self.history.again:
            return  # D2 speaks of it
        frame, life = self.history.frame, self.history.life
        senders = self._last.get(event.node)
        if senders is None:
            senders = self._last[event.node] = {}
        last = senders.get(event.sender)
        senders[event.sender] = (life, event.first + len(event.digests) - 1, frame)
        if last is not None and (event.first <= last[1] if life == last[0] else life < last[0]):
            self.violate(
                f"Processor {event.node} delivered {frame}, number {event.first} of processor "
                f"{event.sender}'s incarnation {life}, at {event.t_us} us, after "
                f"{last[2]}, up to number {last[1]} of its incarnation {last[0]}.",
                (event.node, event.sender),
                (last[2], frame),
                event.t_us,
            )
