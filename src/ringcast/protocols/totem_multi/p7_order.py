"""P-7: messages, to some or to all, and topology changes come in the order of their keys, each
once, in all lives of a processor.

A life begins above all that the one before had come to (MR-1), unless the storage is lost.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.core.ids import NodeId
from ringcast.core.to_some import DeliveredTo
from ringcast.core.trace import Delivered, Installed, Noted, Restarted
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
    notes = (DeliveredTo.what,)

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._last: dict[NodeId, PlaceKey] = {}

    def on_delivered(self, event: Delivered) -> None:
        """A message."""
        self._next(event.node, place(event), event.t_us)

    def on_noted(self, event: Noted) -> None:
        """A message to some; or a topology."""
        super().on_noted(event)
        if (told := DeliveredTo.read(event)) is not None:
            self._next(event.node, place(told), event.t_us)

    def entered(self, event: Installed, old: TopologyNote | None, new: TopologyNote) -> None:
        """A topology."""
        self._next(event.node, new.key, event.t_us)

    def on_restarted(self, event: Restarted) -> None:
        """A life goes on behind the one before, if it knows where that was."""
        if not event.storage_kept:
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
