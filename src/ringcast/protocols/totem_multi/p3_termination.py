"""P-3: at a quiet end, all that can reach each other are in one topology, and nothing waits."""

from __future__ import annotations

from ringcast.core.trace import Ended
from ringcast.protocols.totem_multi.trail import TopologyProperty


class TopologyTermination(TopologyProperty):
    """All end in one topology."""

    tag = "P-3"
    title = "all end in one topology"
    about_deliveries = False

    def on_ended(self, event: Ended) -> None:
        """Those that the world promises to be connected have the same rings, and all of them."""
        for node in event.settled:
            mine, first = self.now.get(node), self.now.get(event.settled[0])
            if mine is None or first is None or mine.view != first.view:
                self.violate(
                    f"Processors {event.settled[0]} and {node} are connected, and end in the "
                    f"topologies {first and first.view} and {mine and mine.view}.",
                    (event.settled[0], node),
                    (),
                    event.t_us,
                )
            elif mine.members != event.settled:
                self.violate(
                    f"Processor {node} ends in a topology of {mine.members}; connected are "
                    f"{event.settled}.",
                    (node,),
                    (mine.view,),
                    event.t_us,
                )
