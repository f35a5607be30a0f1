"""P-2: a topology's name stands for one list of rings and members, and nobody enters it twice."""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Installed
from ringcast.protocols.totem_multi.trail import TopologyNote, TopologyProperty


class TopologyUnique(TopologyProperty):
    """One name, one topology."""

    tag = "P-2"
    title = "one name, one topology"
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._first: dict[ViewId, tuple[NodeId, TopologyNote]] = {}
        self._entered: dict[NodeId, set[ViewId]] = {}

    def entered(self, event: Installed, old: TopologyNote | None, new: TopologyNote) -> None:
        """Compare with the first that told of it, and with where it has been."""
        node, first = self._first.setdefault(new.view, (event.node, new))
        if (first.rings, first.members) != (new.rings, new.members):
            self.violate(
                f"Topology {new.view} has the rings {new.rings} and members {new.members} at "
                f"processor {event.node}, {first.rings} and {first.members} at processor {node}.",
                (node, event.node),
                (new.view,),
                event.t_us,
            )
        been = self._entered.setdefault(event.node, set())
        if new.view in been:
            self.violate(
                f"Processor {event.node} entered {new.view} again at {event.t_us} us.",
                (event.node,),
                (new.view,),
                event.t_us,
            )
        been.add(new.view)
