"""P-16: a message's timestamp is above all that its sender delivered, to some or to all, installed
or originated before, in this life and those before it, and no other message of its ring has it.

That the timestamps of a whole ring rise is the token's doing, which no trace tells of: clocks of
live processors may disagree on which of two originations was first."""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.to_some import DeliveredTo
from ringcast.core.trace import Delivered, Installed, Noted, Originated
from ringcast.protocols.totem_multi.trail import place, shown


class ClockRises(Property):
    """Stamps are above everything seen."""

    tag = "P-16"
    title = "timestamps rise"
    needs_storage = True
    notes = (DeliveredTo.what,)

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._highest: dict[NodeId, int] = {}
        self._on_ring: dict[ViewId, set[int]] = {}

    def on_delivered(self, event: Delivered) -> None:
        """It knows this timestamp now."""
        self._see(event.node, event.seq)

    def on_noted(self, event: Noted) -> None:
        """So it does with a message to some."""
        if (told := DeliveredTo.read(event)) is not None:
            self._see(event.node, told.seq)

    def on_installed(self, event: Installed) -> None:
        """And with the place of a topology."""
        self._see(event.node, event.seq)

    def _see(self, node: NodeId, timestamp: int) -> None:
        self._highest[node] = max(timestamp, self._highest.get(node, 0))

    def on_originated(self, event: Originated) -> None:
        """Its own is higher, and no other on the ring has it."""
        highest = self._highest.get(event.node, 0)
        ring = self._on_ring.setdefault(event.ring, set())
        if event.seq <= highest or event.seq in ring:
            self.violate(
                f"Processor {event.node} originated {shown(place(event))} at {event.t_us} us; it "
                f"had come to {highest}, or the ring had that timestamp.",
                (event.node,),
                (shown(place(event)),),
                event.t_us,
            )
        ring.add(event.seq)
        self._highest[event.node] = max(highest, event.seq)
        while len(self._on_ring) > 64:
            del self._on_ring[next(iter(self._on_ring))]
