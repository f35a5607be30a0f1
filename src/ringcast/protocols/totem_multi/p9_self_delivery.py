"""P-9: a processor that does not crash delivers what it originated."""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property
from ringcast.core.ids import NodeId
from ringcast.core.trace import Crashed, Delivered, Ended, Originated
from ringcast.protocols.totem_multi.trail import PlaceKey, place, shown


class OwnDelivered(Property):
    """What it originated, in the order of the keys, nothing left out."""

    tag = "P-9"
    title = "own messages are delivered"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._open: dict[NodeId, list[PlaceKey]] = {}

    def on_originated(self, event: Originated) -> None:
        """An obligation begins."""
        self._open.setdefault(event.node, []).append(place(event))

    def on_delivered(self, event: Delivered) -> None:
        """It ends; one that was passed over can never be met (P-7)."""
        if event.sender != event.node:
            return
        waiting, key = self._open.get(event.node, []), place(event)
        if waiting and waiting[0] != key and key in waiting:
            self.violate(
                f"Processor {event.node} delivered its own {shown(key)} at {event.t_us} us, "
                f"and not {shown(waiting[0])}, which it had originated before.",
                (event.node,),
                (shown(waiting[0]), shown(key)),
                event.t_us,
            )
        if waiting and waiting[0] == key:
            del waiting[0]

    def on_crashed(self, event: Crashed) -> None:
        """A crash ends all obligations."""
        self._open.pop(event.node, None)

    def on_ended(self, event: Ended) -> None:
        """What is open is owed by those that are settled."""
        for node, waiting in sorted(self._open.items()):
            if waiting:
                self.owed(
                    node in event.settled,
                    f"Processor {node} originated {shown(waiting[0])} and did not deliver it.",
                    (node,),
                    (shown(waiting[0]),),
                    event.t_us,
                )
