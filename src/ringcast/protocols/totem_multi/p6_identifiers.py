"""P-6: one place, one message: the same sender, level and contents wherever it is named."""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property
from ringcast.core.ids import Level, NodeId
from ringcast.core.trace import Delivered, Originated
from ringcast.protocols.totem_multi.trail import PlaceKey, place, shown


class UniquePlaces(Property):
    """One place, one message."""

    tag = "P-6"
    title = "one place, one message"
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._first: dict[PlaceKey, tuple[NodeId, NodeId, Level, int, tuple[int, ...]]] = {}

    def on_originated(self, event: Originated) -> None:
        """The sender says what it is."""
        self._compare(event, event.owner)

    def on_delivered(self, event: Delivered) -> None:
        """And the others say the same."""
        self._compare(event, event.sender)

    def _compare(self, event: Originated | Delivered, sender: NodeId) -> None:
        key = place(event)
        told = (event.node, sender, event.level, event.first, event.digests)
        first = self._first.setdefault(key, told)
        if first[1:] != told[1:]:
            self.violate(
                f"{shown(key)} is number {event.first} of processor {sender} at processor "
                f"{event.node}, and number {first[3]} of {first[1]} at {first[0]}, or differs in "
                f"level or contents.",
                (first[0], event.node),
                (shown(key),),
                event.t_us,
            )
