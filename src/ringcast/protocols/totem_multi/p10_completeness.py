"""P-10: in its last topology a processor delivers all that members originated while in it, and all
that another one delivers there, whoever originated it."""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.core.ids import NodeId
from ringcast.core.trace import Crashed, Delivered, Ended, Installed, Originated
from ringcast.protocols.totem_multi.trail import (
    PlaceKey,
    TopologyNote,
    TopologyProperty,
    place,
    shown,
)


class AllOfTheLast(TopologyProperty):
    """Nothing of the last topology is missing."""

    tag = "P-10"
    title = "all of the last topology"

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._originated: dict[NodeId, list[PlaceKey]] = {}
        self._delivered: dict[NodeId, set[PlaceKey]] = {}

    def entered(self, event: Installed, old: TopologyNote | None, new: TopologyNote) -> None:
        """What was before does not count."""
        self._originated[event.node] = []
        self._delivered[event.node] = set()

    def on_originated(self, event: Originated) -> None:
        """In the topology it is in."""
        self._originated.setdefault(event.node, []).append(place(event))

    def on_delivered(self, event: Delivered) -> None:
        """In the topology it is in."""
        self._delivered.setdefault(event.node, set()).add(place(event))

    def on_crashed(self, event: Crashed) -> None:
        """What it originated may be lost with it."""
        self._originated.pop(event.node, None)

    def on_ended(self, event: Ended) -> None:
        """Settled processors of one topology owe each other what they originated in it, and what
        they delivered: what was before it all had passed when they came."""
        for node in event.settled:
            for other in event.settled:
                mine, theirs = self.now.get(node), self.now.get(other)
                if mine is None or theirs is None or mine.view != theirs.view:
                    continue
                had = self._delivered.get(node, set())
                missing = [key for key in self._originated.get(other, ()) if key not in had]
                if missing:
                    self.violate(
                        f"Processor {other} originated {shown(missing[0])} in {mine.view}, which "
                        f"is the last topology, and processor {node} did not deliver it.",
                        (other, node),
                        (shown(missing[0]),),
                        event.t_us,
                    )
                elif more := self._delivered.get(other, set()) - had:
                    self.violate(
                        f"Processor {other} delivered {shown(min(more))} in {mine.view}, which is "
                        f"the last topology, and processor {node} did not.",
                        (other, node),
                        (shown(min(more)),),
                        event.t_us,
                    )
