"""validity: a processor that stays up delivers what it submitted."""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.checks.stretch import Stretch
from ringcast.core.ids import NodeId
from ringcast.core.seqset import SeqSet
from ringcast.core.trace import Crashed, Delivered, Ended, Submit


class Own:
    """Messages of one incarnation: which it submitted, and which it delivered."""

    __slots__ = ("delivered", "submitted")

    def __init__(self) -> None:
        self.submitted = SeqSet()
        self.delivered = SeqSet()


class Validity(Property):
    """Every submission of a processor that stays up is delivered by it."""

    tag = "validity"
    title = "own submissions are delivered"
    reads = Reads.SUBMISSIONS

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._own: dict[NodeId, Own] = {}

    def on_submit(self, event: Submit) -> None:
        """An obligation begins."""
        own = self._own.setdefault(event.node, Own())
        own.submitted.add_range(event.first, event.first + len(event.sizes) - 1)

    def on_delivered(self, event: Delivered) -> None:
        """An obligation is met."""
        history = self.history
        if event.sender == event.node and history.life == history.node.incarnation:
            own = self._own.setdefault(event.node, Own())
            own.delivered.add_range(event.first, event.first + len(event.digests) - 1)

    def on_stretch(self, stretch: Stretch) -> None:
        """Many were met."""
        for share in stretch.shares:
            own = self._own.setdefault(share.sender, Own())
            own.submitted.add_range(share.first, share.last)
            own.delivered.add_range(share.first, share.last)

    def on_crashed(self, event: Crashed) -> None:
        """A crash ends all obligations."""
        self._own.pop(event.node, None)

    def on_ended(self, event: Ended) -> None:
        """What is open is unknown, unless the processor is settled."""
        for node in sorted(self._own):
            own = self._own[node]
            number = next(
                (n for at in own.submitted.intervals() for n in own.delivered.missing(*at, 1)), None
            )
            if number is not None:
                self.owed(
                    node in event.settled,
                    f"Processor {node} submitted its message number {number} and did not deliver "
                    f"it by the end.",
                    (node,),
                    (f"number {number} of {node}",),
                    event.t_us,
                )
