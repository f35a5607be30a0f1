"""held: nobody delivers a message before all members hold it.

P5 of the comparison: what "safe" means in its source. Members note ``hold`` when a frame is there:
its sender, its number, and the first message in it, or 0 if no message ends with it. Without such
notes there is nothing to be said.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property
from ringcast.core.ids import NodeId
from ringcast.core.trace import Delivered, Installed, Noted


class HeldByAll(Property):
    """P5."""

    tag = "held"
    title = "delivered when all hold it"
    notes = ("hold",)
    needs_notes = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._members: tuple[NodeId, ...] = ()
        self._holders: dict[tuple[NodeId, int], set[NodeId]] = {}
        """Of frames that some member lacks, by sender and number."""
        self._all: dict[NodeId, int] = {}
        """Of each sender, the last frame such that all hold it and those before."""
        self._frames: dict[tuple[NodeId, int], int] = {}
        """The number of the frame with which a message ends, by sender and message."""

    def on_installed(self, event: Installed) -> None:
        """Who has to hold them."""
        self._members = event.members

    def on_noted(self, event: Noted) -> None:
        """A body is there."""
        match event.what, event.data or ():
            case "hold", (sender, k, first):
                self._frames[sender, first] = k
                self._holders.setdefault((sender, k), set()).add(event.node)
                self._advance(sender)

    def _advance(self, sender: NodeId) -> None:
        k = self._all.get(sender, 0) + 1
        while self._holders.get((sender, k), set()).issuperset(self._members):
            del self._holders[sender, k]
            self._all[sender] = k
            k += 1

    def on_delivered(self, event: Delivered) -> None:
        """Do all hold it?"""
        if not self._holders and not self._all:
            return
        k = self._frames.get((event.sender, event.first), 0)
        if not 0 < k <= self._all.get(event.sender, 0):
            lacking = set(self._members) - self._holders.get((event.sender, k), set())
            self.violate(
                f"Processor {event.node} delivered {event.ring}:{event.seq} at {event.t_us} us, "
                f"and {sorted(lacking)} did not hold it.",
                (event.node, *sorted(lacking)),
                (f"{event.ring}:{event.seq}",),
                event.t_us,
            )
