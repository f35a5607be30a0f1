"""accounted: a processor delivers each of its messages, or says that it will not.

It may say so only after a change of configuration left open what became of it; that it is true,
``integrity`` asks. Meant for protocols in which every message is for all: of one to some
``multicast`` speaks.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.checks.stretch import Stretch
from ringcast.core.ids import NodeId
from ringcast.core.seqset import SeqSet
from ringcast.core.trace import Crashed, Delivered, Ended, Installed, ReportedUncertain, Submit


class Accounts:
    """Messages of one incarnation, and of which its application has heard."""

    __slots__ = ("fresh", "heard", "submitted")

    def __init__(self) -> None:
        self.submitted = SeqSet()
        self.fresh = SeqSet()  # those submitted since the configuration changed last
        self.heard = SeqSet()  # delivered or uncertain


class Accounted(Property):
    """Each own submission is delivered, or reported uncertain, or still waiting.

    Messages of a processor are ordered as it submitted them, so once a later one is delivered here
    none before it can be waiting, and at the end nothing waits at a settled processor.
    """

    tag = "accounted"
    title = "own submissions are delivered or reported uncertain"
    reads = Reads.SUBMISSIONS

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._own: dict[NodeId, Accounts] = {}

    def on_submit(self, event: Submit) -> None:
        """An obligation begins."""
        own, last = self._of(event.node), event.first + len(event.sizes) - 1
        own.submitted.add_range(event.first, last)
        own.fresh.add_range(event.first, last)

    def on_installed(self, event: Installed) -> None:
        """What is under way may become uncertain, unless it is the first configuration."""
        if self.history.node.previous is not None:
            self._of(event.node).fresh = SeqSet()

    def on_delivered(self, event: Delivered) -> None:
        """Everything before it must be accounted for."""
        history = self.history
        if event.sender == event.node and history.life == history.node.incarnation:
            last = event.first + len(event.digests) - 1
            self._deliver(event.node, event.first, last, event.t_us)

    def on_stretch(self, stretch: Stretch) -> None:
        """The same for many."""
        for share in stretch.shares:
            self._of(share.sender).submitted.add_range(share.first, share.last)
            self._deliver(share.sender, share.first, share.last, 0)

    def _deliver(self, node: NodeId, first: int, last: int, t_us: int) -> None:
        own = self._of(node)
        for number in own.heard.missing(1, first - 1, 1):
            self._broken(node, number, "passes over in silence", t_us)
        own.heard.add_range(first, last)

    def on_uncertain(self, event: ReportedUncertain) -> None:
        """They were submitted before a change of configuration."""
        own, node = self._of(event.node), event.node
        first, last = event.first, event.first + event.count - 1
        number = own.fresh.lowest(first, last)
        if number is not None:
            what = "reports as uncertain, in the configuration in which it submitted it,"
            self._broken(node, number, what, event.t_us)
        own.heard.add_range(first, last)

    def on_crashed(self, event: Crashed) -> None:
        """Another incarnation counts anew."""
        self._own.pop(event.node, None)

    def on_ended(self, event: Ended) -> None:
        """What is open is unknown, unless the processor is settled."""
        for node in sorted(self._own):
            own = self._own[node]
            number = next(
                (n for at in own.submitted.intervals() for n in own.heard.missing(*at, 1)), None
            )
            if number is not None:
                self.owed(
                    node in event.settled,
                    f"Processor {node} neither delivered its message number {number} by the end "
                    f"nor reported it as uncertain.",
                    (node,),
                    (f"number {number} of {node}",),
                    event.t_us,
                )

    def _of(self, node: NodeId) -> Accounts:
        own = self._own.get(node)
        if own is None:
            own = self._own[node] = Accounts()
        return own

    def _broken(self, node: NodeId, number: int, what: str, t_us: int) -> None:
        named = f"number {number} of {node}"
        self.violate(
            f"Processor {node} {what} its message number {number}.", (node,), (named,), t_us
        )
