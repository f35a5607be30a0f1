"""P-8: what is delivered was originated before; and its ring is in the topology, or was lost."""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.core.trace import Delivered, Originated
from ringcast.protocols.totem_multi.trail import PlaceKey, TopologyProperty, place, shown


class DeliveredWasOriginated(TopologyProperty):
    """No message from nowhere."""

    tag = "P-8"
    title = "delivered was originated"
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._originated: set[PlaceKey] = set()

    def on_originated(self, event: Originated) -> None:
        """Now it exists."""
        self._originated.add(place(event))

    def on_delivered(self, event: Delivered) -> None:
        """It must exist."""
        key = place(event)
        if key not in self._originated:
            self.violate(
                f"Processor {event.node} delivered {shown(key)} at {event.t_us} us, which nobody "
                f"had originated.",
                (event.node, event.sender),
                (shown(key),),
                event.t_us,
            )
