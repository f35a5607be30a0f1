"""P-11: processors that go from one topology to the same next one delivered the same in it."""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Delivered, Installed
from ringcast.protocols.totem_multi.trail import (
    PlaceKey,
    TopologyNote,
    TopologyProperty,
    place,
    shown,
)

REMEMBERED = 256
"""Steps from topology to topology that are remembered."""


class SameBetween(TopologyProperty):
    """The same set between the same two topologies."""

    tag = "P-11"
    title = "virtual synchrony"
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._here: dict[NodeId, list[PlaceKey]] = {}
        self._steps: dict[tuple[ViewId, ViewId], tuple[NodeId, list[PlaceKey]]] = {}

    def on_delivered(self, event: Delivered) -> None:
        """One more in this topology."""
        self._here.setdefault(event.node, []).append(place(event))

    def entered(self, event: Installed, old: TopologyNote | None, new: TopologyNote) -> None:
        """Compare with the first that made this step."""
        mine = self._here.pop(event.node, [])
        if old is None:
            return
        node, first = self._steps.setdefault((old.view, new.view), (event.node, mine))
        while len(self._steps) > REMEMBERED:
            del self._steps[next(iter(self._steps))]
        if first != mine:
            odd = sorted(set(first) ^ set(mine))
            self.violate(
                f"Processors {node} and {event.node} both went from {old.view} to {new.view}, and "
                f"delivered {len(first)} and {len(mine)} messages in the former: "
                f"{[shown(key) for key in odd[:4]]}.",
                (node, event.node),
                tuple(shown(key) for key in odd[:4]),
                event.t_us,
            )
