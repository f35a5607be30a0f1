"""rollback: what is undone was tentative, and what is left of it is what gets committed.

R2 of the comparison: a member may deliver in a wrong order for a time if it takes that back. It
notes ``tentative`` for each such frame (its sender, its number, and the first message in it, or 0
if no message ends with it) and ``rollback`` for how many of the last ones it takes back. A delivery
commits the first tentative one that is left. Without such notes there is nothing to be said.
"""

from __future__ import annotations

from collections import deque

from ringcast.checks.history import History
from ringcast.checks.property import Property
from ringcast.core.ids import NodeId
from ringcast.core.trace import Delivered, Noted


class Undone(Property):
    """R2."""

    tag = "rollback"
    title = "only tentative deliveries are undone"
    notes = ("tentative", "rollback")
    needs_notes = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._left: dict[NodeId, deque[tuple[int, int]]] = {}
        """What each has delivered tentatively, and neither undone nor committed."""

    def on_noted(self, event: Noted) -> None:
        """A tentative delivery, or the end of some."""
        if event.what not in self.notes:
            return
        left = self._left.setdefault(event.node, deque())
        match event.what, event.data or ():
            case "tentative", (sender, _, first):
                left.append((sender, first))
            case "rollback", (count,):
                if count > len(left):
                    self._wrong(event.node, f"undid {count} deliveries, of which it", event.t_us)
                for _ in range(min(count, len(left))):
                    left.pop()

    def on_delivered(self, event: Delivered) -> None:
        """The first one that is left becomes final."""
        if not self._left:
            return
        left = self._left.get(event.node, deque())
        while left and not left[0][1]:
            left.popleft()  # a piece of a message is committed without a word
        if not left or left.popleft() != (event.sender, event.first):
            self._wrong(event.node, f"committed {event.ring}:{event.seq}, which it", event.t_us)

    def _wrong(self, node: NodeId, what: str, t_us: int) -> None:
        text = f"Processor {node} {what} had not delivered tentatively next, at {t_us} us."
        self.violate(text, (node,), (), t_us)
