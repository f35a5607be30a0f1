"""integrity: a message is delivered at most once, and only if its sender submitted it.

It looks at the sender's own numbers and not at places in the order, so it also sees a message
that was given a second place.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.checks.stretch import Stretch
from ringcast.core.ids import NodeId
from ringcast.core.seqset import SeqSet
from ringcast.core.trace import Delivered, Submit

KEPT = 3
"""Incarnations of a sender whose deliveries are remembered."""


class Integrity(Property):
    """At most once, and only what was submitted."""

    tag = "integrity"
    title = "submitted, and delivered once"
    reads = Reads.SUBMISSIONS

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._submitted: dict[NodeId, dict[int, int]] = {}
        self._delivered: dict[tuple[NodeId, NodeId], dict[int, SeqSet]] = {}

    def on_submit(self, event: Submit) -> None:
        """More messages exist."""
        mine = self._submitted.setdefault(event.node, {})
        last = event.first + len(event.sizes) - 1
        mine[event.incarnation] = max(last, mine.get(event.incarnation, 0))
        _forget(mine)

    def on_delivered(self, event: Delivered) -> None:
        """Each message of the frame must exist and be new here."""
        frame = self.history.frame
        incarnation = frame.incarnation
        first, last = event.first, event.first + len(event.digests) - 1
        submitted = self._submitted.get(event.sender, {}).get(incarnation, 0)
        if last > submitted:
            self.violate(
                f"Processor {event.node} delivered {frame} at {event.t_us} us, number {last} of "
                f"processor {event.sender}, which had submitted only {submitted}.",
                (event.node, event.sender),
                (frame,),
                event.t_us,
            )
        from_sender = self._delivered.setdefault((event.node, event.sender), {})
        seen = from_sender.get(incarnation)
        if seen is None:
            seen = from_sender[incarnation] = SeqSet()
            _forget(from_sender)
        for number in range(first, last + 1):
            if not seen.add(number):
                self.violate(
                    f"Processor {event.node} delivered number {number} of processor "
                    f"{event.sender} for the second time, as {frame} at {event.t_us} us.",
                    (event.node, event.sender),
                    (frame,),
                    event.t_us,
                )
                return

    def on_stretch(self, stretch: Stretch) -> None:
        """All these messages exist and are new everywhere."""
        ring, nodes = self.history.ring, self.history.nodes
        for share in stretch.shares:
            incarnation = nodes[share.sender].incarnation
            mine = self._submitted.setdefault(share.sender, {})
            mine[incarnation] = max(share.last, mine.get(incarnation, 0))
            for member in ring.members:
                seen = self._delivered.setdefault((member, share.sender), {})
                seen.setdefault(incarnation, SeqSet()).add_range(share.first, share.last)


def _forget(by_incarnation: dict[int, int] | dict[int, SeqSet]) -> None:
    while len(by_incarnation) > KEPT:
        del by_incarnation[min(by_incarnation)]
