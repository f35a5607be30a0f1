"""accounted: a processor delivers each of its messages, or says that it will not."""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.checks.stretch import Stretch
from ringcast.core.ids import NodeId
from ringcast.core.seqset import SeqSet
from ringcast.core.trace import Crashed, Delivered, ReportedUncertain


class Accounts:
    """Messages of one incarnation of which its application has heard."""

    __slots__ = ("heard", "uncertain")

    def __init__(self) -> None:
        self.heard = SeqSet()  # delivered or uncertain
        self.uncertain = SeqSet()


class Accounted(Property):
    """Each own submission is delivered, or reported uncertain, or still waiting.

    Messages of a processor are ordered as it submitted them, so once a later one is delivered here
    none before it can be waiting. What was reported is not delivered here, before or after.
    """

    tag = "accounted"
    title = "own submissions are delivered or reported uncertain"
    reads = Reads.SUBMISSIONS

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._own: dict[NodeId, Accounts] = {}

    def on_delivered(self, event: Delivered) -> None:
        """Everything before it must be accounted for."""
        history = self.history
        if event.sender == event.node and history.frame.incarnation == history.node.incarnation:
            last = event.first + len(event.digests) - 1
            self._deliver(event.node, event.first, last, event.t_us)

    def on_stretch(self, stretch: Stretch) -> None:
        """The same for many."""
        for share in stretch.shares:
            self._deliver(share.sender, share.first, share.last, 0)

    def _deliver(self, node: NodeId, first: int, last: int, t_us: int) -> None:
        own = self._own.setdefault(node, Accounts())
        for number in range(first, last + 1) if own.uncertain else ():
            if number in own.uncertain:
                self._broken(node, number, "reported as uncertain and delivers", t_us)
        for number in own.heard.missing(1, first - 1, 1):
            self._broken(node, number, "passes over in silence", t_us)
        own.heard.add_range(first, last)

    def on_uncertain(self, event: ReportedUncertain) -> None:
        """Messages that were delivered are not uncertain."""
        own = self._own.setdefault(event.node, Accounts())
        last = event.first + event.count - 1
        for number in range(event.first, last + 1):
            if number in own.heard and number not in own.uncertain:
                self._broken(event.node, number, "delivered and reports as uncertain", event.t_us)
        own.uncertain.add_range(event.first, last)
        own.heard.add_range(event.first, last)

    def on_crashed(self, event: Crashed) -> None:
        """Another incarnation counts anew."""
        self._own.pop(event.node, None)

    def _broken(self, node: NodeId, number: int, what: str, t_us: int) -> None:
        named = f"number {number} of {node}"
        self.violate(
            f"Processor {node} {what} its message number {number}.", (node,), (named,), t_us
        )
