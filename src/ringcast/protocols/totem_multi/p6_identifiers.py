"""P-6: one place, one message: the same sender, level and contents wherever it is named.

And one message, one place: a processor originates its own messages, each number of a life once and
in the order of submission. That others have lost their storage does not excuse what differs: if
its sender and the representative of its ring have theirs, the place is not given again.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property
from ringcast.core.ids import NodeId
from ringcast.core.trace import Delivered, Originated
from ringcast.protocols.totem_multi.trail import place, shown


class UniquePlaces(Property):
    """One place, one message."""

    tag = "P-6"
    title = "one place, one message"
    in_part = True
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._numbers: dict[NodeId, tuple[int, int]] = {}  # incarnation, last number originated

    def on_originated(self, event: Originated) -> None:
        """The sender says what it is, and has not said so before."""
        self._compare(event, event.owner)
        life = self.history.incarnation(event.node)
        last = max(self._numbers.get(event.node, (life, 0)), (life, 0))
        if event.owner != event.node or (life, event.first) <= last:
            self.violate(
                f"Processor {event.node} originated number {event.first} of processor "
                f"{event.owner} as {shown(place(event))} at {event.t_us} us; of its own it had "
                f"come to number {last[1]}.",
                (event.node,) if event.owner == event.node else (event.node, event.owner),
                (shown(place(event)),),
                event.t_us,
            )
        self._numbers[event.node] = (life, event.first + len(event.digests) - 1)

    def on_delivered(self, event: Delivered) -> None:
        """And the others say the same."""
        self._compare(event, event.sender)

    def _compare(self, event: Originated | Delivered, sender: NodeId) -> None:
        first = self.history.other
        if first is not None:
            key = place(event)
            self.violate(
                f"{shown(key)} is number {event.first} of processor {sender} at processor "
                f"{event.node}, and number {first.first} of {first.sender} at {first.told_by}, or "
                f"differs in level or contents.",
                (first.told_by, event.node),
                (shown(key),),
                event.t_us,
                (event.ring.rep, first.sender, sender),
            )
