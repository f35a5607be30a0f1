"""P-4: processors that leave a topology by the same change go to the same one."""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Installed
from ringcast.protocols.totem_multi.trail import PlaceKey, TopologyNote, TopologyProperty, shown


class ChangeConsistent(TopologyProperty):
    """The same change leads to the same topology."""

    tag = "P-4"
    title = "one change, one outcome"
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._left: dict[tuple[ViewId, PlaceKey], tuple[NodeId, TopologyNote]] = {}

    def entered(self, event: Installed, old: TopologyNote | None, new: TopologyNote) -> None:
        """Compare with the first that left the old topology by this change."""
        if old is None:
            return
        node, first = self._left.setdefault((old.view, new.key), (event.node, new))
        if (first.rings, first.members) != (new.rings, new.members):
            self.violate(
                f"Processors {node} and {event.node} left {old.view} by the change "
                f"{shown(new.key)}, for {first.rings} with {first.members} and for {new.rings} "
                f"with {new.members}.",
                (node, event.node),
                (first.view, new.view),
                event.t_us,
            )
