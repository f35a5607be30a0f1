"""What a processor says of its own messages, by the numbers that it gave them.

A number is submitted once in a life, to all or to some. What a processor reports as uncertain it
has submitted, and it does not deliver that, neither before nor after.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property
from ringcast.core.ids import NodeId
from ringcast.core.seqset import SeqSet
from ringcast.core.to_some import SubmittedTo
from ringcast.core.trace import Noted, ReportedUncertain, Restarted, Submit


class LifeNumbers:
    """Numbers of one incarnation's messages."""

    __slots__ = ("delivered", "reported", "to_all", "to_some")

    def __init__(self) -> None:
        self.to_all = SeqSet()
        self.to_some = SeqSet()
        self.delivered = SeqSet()  # by itself, of those to all
        self.reported = SeqSet()

    def lowest(self, first: int, last: int) -> int | None:
        """The lowest that was submitted."""
        found = (self.to_all.lowest(first, last), self.to_some.lowest(first, last))
        return min((number for number in found if number is not None), default=None)

    def missing(self, first: int, last: int) -> int | None:
        """The lowest that was not."""
        while first <= last:
            upto = max(self.to_all.all_up_to(first - 1), self.to_some.all_up_to(first - 1))
            if upto < first:
                return first
            first = upto + 1
        return None


class OwnNumbers(Property):
    """A property that asks for this besides what it says of deliveries."""

    notes = (SubmittedTo.what,)

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._own: dict[NodeId, dict[int, LifeNumbers]] = {}

    def own(self, node: NodeId, incarnation: int) -> LifeNumbers:
        """What is known of an incarnation."""
        lives = self._own.setdefault(node, {})
        numbers = lives.get(incarnation)
        if numbers is None:
            numbers = lives[incarnation] = LifeNumbers()
        return numbers

    def on_submit(self, event: Submit) -> None:
        """More messages exist."""
        numbers = self.own(event.node, event.incarnation)
        last = event.first + len(event.sizes) - 1
        self._submitted_again(event, numbers, event.incarnation, event.first, last)
        numbers.to_all.add_range(event.first, last)

    def on_noted(self, event: Noted) -> None:
        """The same of messages to some."""
        note = SubmittedTo.read(event) if event.what == SubmittedTo.what else None
        if note is not None:
            numbers = self.own(event.node, note.incarnation)
            last = note.first + len(note.digests) - 1
            self._submitted_again(event, numbers, note.incarnation, note.first, last)
            numbers.to_some.add_range(note.first, last)

    def on_restarted(self, event: Restarted) -> None:
        """Forget what is of no consequence any more."""
        self.history.drop_past(event.node, self._own.get(event.node, {}))

    def on_uncertain(self, event: ReportedUncertain) -> None:
        """They were submitted, and not delivered."""
        numbers = self.own(event.node, self.history.incarnation(event.node))
        first, last = event.first, event.first + event.count - 1
        number = numbers.delivered.lowest(first, last)
        if number is not None:
            self._broken(event.node, number, "delivered and reports as uncertain", event.t_us)
        number = numbers.missing(first, last)
        if number is not None:
            self._broken(event.node, number, "did not submit and reports as uncertain", event.t_us)
        numbers.reported.add_range(first, last)

    def deliver_own(self, node: NodeId, incarnation: int, first: int, last: int, t_us: int) -> None:
        """A processor delivers messages of its own."""
        numbers = self.own(node, incarnation)
        number = numbers.reported.lowest(first, last)
        if number is not None:
            self._broken(node, number, "reported as uncertain and delivers", t_us)
        numbers.delivered.add_range(first, last)

    def _submitted_again(
        self, event: Submit | Noted, numbers: LifeNumbers, incarnation: int, first: int, last: int
    ) -> None:
        """Of another life than the present one nothing is asked: it may have been forgotten."""
        again = numbers.lowest(first, last)
        if again is not None and incarnation == self.history.incarnation(event.node):
            self._broken(event.node, again, "submits for the second time", event.t_us)

    def _broken(self, node: NodeId, number: int, what: str, t_us: int) -> None:
        self.violate(
            f"Processor {node} {what} its message number {number} at {t_us} us.",
            (node,),
            (f"number {number} of {node}",),
            t_us,
        )
