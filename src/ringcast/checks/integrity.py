"""integrity: a message is delivered at most once, and only if its sender submitted it.

It looks at the sender's own numbers and not at places in the order, so it also sees a message
that was given a second place, a number that was submitted twice, and a report of uncertainty that
is not true (``own_numbers``).
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.own_numbers import OwnNumbers
from ringcast.checks.property import Reads
from ringcast.checks.stretch import Stretch
from ringcast.core.ids import NodeId
from ringcast.core.seqset import SeqSet
from ringcast.core.trace import Delivered, Restarted


class Integrity(OwnNumbers):
    """At most once, and only what was submitted."""

    tag = "integrity"
    title = "submitted, and delivered once"
    reads = Reads.SUBMISSIONS

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._delivered: dict[tuple[NodeId, NodeId], dict[int, SeqSet]] = {}

    def on_restarted(self, event: Restarted) -> None:
        """Forget what is of no consequence any more."""
        super().on_restarted(event)
        for (_, sender), lives in self._delivered.items():
            if sender == event.node:
                self.history.drop_past(sender, lives)

    def on_delivered(self, event: Delivered) -> None:
        """Each message of the frame must exist and be new here."""
        frame = self.history.frame
        incarnation = self.history.life
        first, last = event.first, event.first + len(event.digests) - 1
        submitted = self.own(event.sender, incarnation).to_all
        for number in submitted.missing(first, last, 1):
            self.violate(
                f"Processor {event.node} delivered {frame} at {event.t_us} us, number {number} of "
                f"processor {event.sender}, which had not submitted it.",
                (event.node, event.sender),
                (frame,),
                event.t_us,
            )
        lives = self._delivered.setdefault((event.node, event.sender), {})
        seen = lives.get(incarnation)
        if seen is None:
            seen = lives[incarnation] = SeqSet()
        again = seen.lowest(first, last)
        if again is None:
            seen.add_range(first, last)
        else:
            self.violate(
                f"Processor {event.node} delivered number {again} of processor "
                f"{event.sender} for the second time, as {frame} at {event.t_us} us.",
                (event.node, event.sender),
                (frame,),
                event.t_us,
            )
        if event.sender == event.node and incarnation == self.history.node.incarnation:
            self.deliver_own(event.node, incarnation, first, last, event.t_us)

    def on_stretch(self, stretch: Stretch) -> None:
        """All these messages exist and are new everywhere."""
        ring, nodes = self.history.ring, self.history.nodes
        for share in stretch.shares:
            incarnation = nodes[share.sender].incarnation
            mine = self.own(share.sender, incarnation)
            mine.to_all.add_range(share.first, share.last)
            mine.delivered.add_range(share.first, share.last)
            for member in ring.members:
                seen = self._delivered.setdefault((member, share.sender), {})
                seen.setdefault(incarnation, SeqSet()).add_range(share.first, share.last)
