"""P-8: what is delivered was originated before, on a ring of the network, and what is originated
was submitted before.

The dossier asks that its ring is in the processor's topology or was lost (G-22). A ring that
another one follows before two topologies join was in none of those that the newcomers were in, and
its messages are part of the joint order. So the ring must have been in a topology of the processor
by then, or, at any time, in one of somebody who is in the processor's topology now.

A number is submitted once in a life, and what is reported as uncertain is not delivered by who
reports it (``checks.own_numbers``).
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.own_numbers import OwnNumbers
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Crashed, Delivered, Ended, Noted, Originated
from ringcast.protocols.totem_multi.trail import TOPOLOGY, PlaceKey, TopologyNote, place, shown


class DeliveredWasOriginated(OwnNumbers):
    """No message from nowhere."""

    tag = "P-8"
    title = "delivered was originated"
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._originated: set[PlaceKey] = set()
        self._now: dict[NodeId, TopologyNote] = {}
        self._rings: dict[NodeId, set[tuple[int, int]]] = {}
        """The rings of all topologies of each."""
        self._crashed: set[NodeId] = set()
        self._strange: dict[tuple[NodeId, ViewId], tuple[Delivered, set[NodeId]]] = {}
        """By receiver and a ring of none of its topologies: a message, and whose it may be of."""

    def on_noted(self, event: Noted) -> None:
        """A submission to some; or the rings of the next topology."""
        super().on_noted(event)
        if event.what == TOPOLOGY and event.view is not None:
            note = self._now[event.node] = TopologyNote(event)
            self._rings.setdefault(event.node, set()).update(note.rings)

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
        if _name(event.ring) not in self._rings.get(event.node, ()):
            note = self._now.get(event.node)
            some = {*note.members} - {event.node} if note else set()
            self._strange.setdefault((event.node, event.ring), (event, some))
        if event.sender == event.node:
            life, last = self.history.life, event.first + len(event.digests) - 1
            self.deliver_own(event.node, life, event.first, last, event.t_us)

    def on_crashed(self, event: Crashed) -> None:
        """It may have been about to install a topology."""
        self._crashed.add(event.node)

    def on_ended(self, event: Ended) -> None:
        """Whether anybody who was there knew the rings that the receivers did not."""
        for (node, ring), (message, some) in self._strange.items():
            known = any(_name(ring) in self._rings.get(other, ()) for other in some)
            if not known and self._crashed.isdisjoint(some):
                self.violate(
                    f"Processor {node} delivered {shown(place(message))} at {message.t_us} us; "
                    f"the ring was in no topology of it or of {sorted(some)}.",
                    (node,),
                    (shown(place(message)),),
                    message.t_us,
                )


def _name(ring: ViewId) -> tuple[int, int]:
    """As topologies list it."""
    return ring.seq, ring.rep
