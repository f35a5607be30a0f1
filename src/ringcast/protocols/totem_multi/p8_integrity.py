"""P-8: what is delivered was originated before, and what is originated was submitted before.

The dossier also asks that its ring is in the processor's topology or was lost (G-22). That is not
checked: a ring that another one follows before two topologies join was in none of those that the
newcomers were in, and its messages are part of the joint order.

A number is submitted once in a life, and what is reported as uncertain is not delivered by who
reports it (``checks.own_numbers``).
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.own_numbers import OwnNumbers
from ringcast.core.trace import Delivered, Originated
from ringcast.protocols.totem_multi.trail import PlaceKey, place, shown


class DeliveredWasOriginated(OwnNumbers):
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
        mine = self.own(event.node, self.history.incarnation(event.node))
        for number in mine.to_all.missing(event.first, event.first + len(event.digests) - 1, 1):
            self.violate(
                f"Processor {event.node} originated its number {number} as {shown(place(event))} "
                f"at {event.t_us} us and had not submitted it.",
                (event.node,),
                (shown(place(event)),),
                event.t_us,
            )

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
        if event.sender == event.node:
            life, last = self.history.life, event.first + len(event.digests) - 1
            self.deliver_own(event.node, life, event.first, last, event.t_us)
