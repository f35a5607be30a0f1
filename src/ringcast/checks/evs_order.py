"""D12 EVS order: everything a processor is told ascends in one order of identifiers.

A message is ``(ring, seq, 0)``, the ``conf`` of a regular R is ``(R, 0, T before)`` and that of a
transitional T ``(R before, last seq delivered there, T)``; ring ids compare by number, then by
representative (Th 4.18). Identifiers ascend over all incarnations of a processor.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.checks.stretch import Stretch
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Delivered, Installed

NOTHING = ViewId(0, 1)
"""Stands for the third part of a message's identifier; below every configuration."""


class EvsOrder(Property):
    """D12, the linear half: cheap, and enough to make the union of all orders acyclic."""

    tag = "D12"
    title = "EVS order"
    reads = Reads.ORIGINS
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._last: dict[NodeId, tuple[ViewId, int, ViewId]] = {}

    def on_delivered(self, event: Delivered) -> None:
        """A message comes after everything before it."""
        last = self._last.get(event.node)
        self._last[event.node] = (event.ring, event.seq, NOTHING)
        if last is not None:
            ring = last[0]
            same = ring is event.ring or ring == event.ring
            if event.seq <= last[1] if same else event.ring <= ring:
                self._descends(event, last, f"message {self.history.frame}")

    def on_stretch(self, stretch: Stretch) -> None:
        """So does the last message of a stretch, and all between."""
        for member in self.history.ring.members:
            self._last[member] = (stretch.ring, stretch.seq, NOTHING)

    def on_installed(self, event: Installed) -> None:
        """A change of configuration has its place in the same order."""
        third = event.view if event.transitional else event.conf_id or NOTHING
        mine = (event.ring, event.seq, third)
        last = self._last.get(event.node)
        self._last[event.node] = mine
        if last is not None and mine <= last:
            self._descends(event, last, f"conf {_text(mine)}")
            return
        node = self.history.node
        if event.transitional:
            right = node.span is None or event.ring == node.span.ring.view
        else:
            previous = node.previous
            right = event.ring == event.view and event.seq == 0
            right = right and (previous is None or event.conf_id == previous.view)
        if not right:
            self.violate(
                f"Processor {event.node} installed {event.view} at {event.t_us} us with the "
                f"identifier {_text(mine)}, which does not tell what it came from.",
                (event.node,),
                (),
                event.t_us,
            )

    def _descends(
        self, event: Delivered | Installed, last: tuple[ViewId, int, ViewId], what: str
    ) -> None:
        self.violate(
            f"Processor {event.node} was told {what} at {event.t_us} us after {_text(last)}, "
            f"which is not smaller.",
            (event.node,),
            (f"{last[0]}:{last[1]}.0", f"{event.ring}:{event.seq}.0"),
            event.t_us,
        )


def _text(identifier: tuple[ViewId, int, ViewId]) -> str:
    ring, seq, third = identifier
    return f"({ring}, {seq}, {0 if third == NOTHING else third})"
