"""P-7: messages and topology changes come in the order of their keys, each once."""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.core.ids import NodeId
from ringcast.core.trace import Crashed, Delivered, Installed
from ringcast.protocols.totem_multi.trail import (
    PlaceKey,
    TopologyNote,
    TopologyProperty,
    place,
    shown,
)


class KeyOrder(TopologyProperty):
    """Keys increase along each processor's trace."""

    tag = "P-7"
    title = "everything in key order"
    in_part = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._last: dict[NodeId, PlaceKey] = {}

    def on_delivered(self, event: Delivered) -> None:
        """A message."""
        self._next(event.node, place(event), event.t_us)

    def entered(self, event: Installed, old: TopologyNote | None, new: TopologyNote) -> None:
        """A topology."""
        self._next(event.node, new.key, event.t_us)

    def on_crashed(self, event: Crashed) -> None:
        """Another life begins anew; P-16 holds its clock to the old one."""
        self._last.pop(event.node, None)

    def _next(self, node: NodeId, key: PlaceKey, t_us: int) -> None:
        last = self._last.get(node)
        if last is not None and key <= last:
            self.violate(
                f"Processor {node} came to {shown(key)} at {t_us} us, after {shown(last)}.",
                (node,),
                (shown(last), shown(key)),
                t_us,
            )
        self._last[node] = key
