"""P-15: any two processors come to the messages and topologies that they share in one order.

The dossier asks that the union of all orders has no cycle, which P-7 implies. This is other code
for the same: it looks at no key, and for each pair of processors keeps how far, in the other's
sequence, what they share has come. A cycle over three or more that no pair shows is left to P-7.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Delivered, Installed

Happening = tuple[ViewId, int]
"""A message by its ring and timestamp, a topology by its view and -1."""

REMEMBERED = 4096
"""Messages and topologies whose places are remembered."""


class OneOrder(Property):
    """Pairwise one order."""

    tag = "P-15"
    title = "one order of everything"
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._count: dict[NodeId, int] = {}
        self._places: dict[Happening, dict[NodeId, int]] = {}
        self._furthest: dict[tuple[NodeId, NodeId], tuple[int, Happening]] = {}

    def on_delivered(self, event: Delivered) -> None:
        """A message."""
        self._next(event.node, (event.ring, event.seq), event.t_us)

    def on_installed(self, event: Installed) -> None:
        """A topology, when a processor comes to it first: P-2 speaks of those that come back."""
        if event.node not in self._places.get((event.view, -1), ()):
            self._next(event.node, (event.view, -1), event.t_us)

    def _next(self, node: NodeId, what: Happening, t_us: int) -> None:
        mine = self._count[node] = self._count.get(node, 0) + 1
        places = self._places.setdefault(what, {})
        if len(self._places) > REMEMBERED:
            del self._places[next(iter(self._places))]
        for other, at in places.items():
            known = self._furthest.get((node, other))
            if known is not None and at < known[0]:
                self.violate(
                    f"Processor {node} came to {what} at {t_us} us after {known[1]}, and "
                    f"processor {other} the other way round.",
                    (node, other),
                    (known[1], what),
                    t_us,
                )
            self._furthest[node, other] = (at, what)
            self._furthest[other, node] = (mine, what)
        places[node] = mine
