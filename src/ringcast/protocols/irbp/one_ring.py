"""one-ring: an epoch has one ring, whoever installs it, of members of its view (V1, V8, V10).

Members note ``epoch`` when they begin one: the view, the ring, the step within the view and the
number that it begins after. Epochs of one processor rise; between two views there is nothing else.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Noted, Restarted
from ringcast.protocols.rbp.uniform import EPOCH

KEPT = 4096
"""Epochs remembered before the older half is let go."""


class OneRing(Property):
    """V1 and V10 of i-views, and V8."""

    tag = "one-ring"
    title = "an epoch has one ring of its view's members"
    reads = Reads.ORDER
    notes = (EPOCH,)
    needs_notes = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._rings: dict[tuple[ViewId, int], tuple[NodeId, tuple[NodeId, ...], int]] = {}
        self._know: dict[tuple[ViewId, int], set[NodeId]] = {}
        """Who has begun an epoch, and not lost the storage that tells of its view."""
        self._last: dict[NodeId, tuple[ViewId, int]] = {}

    def on_restarted(self, event: Restarted) -> None:
        """An incarnation without its storage may begin before where it was. I17 ext: if nobody is
        left whose storage tells of a view, those who begin anew may give its number once more."""
        if event.storage_kept:
            return
        self._last.pop(event.node, None)
        for epoch, nodes in list(self._know.items()):
            nodes.discard(event.node)
            if not nodes:
                del self._know[epoch], self._rings[epoch]

    def on_noted(self, event: Noted) -> None:
        """An epoch begins."""
        span = self.history.known(event.node).span
        if event.what != EPOCH or span is None or not event.data or len(event.data) < 2:
            return
        view, (step, start) = span.ring.view, event.data[:2]
        fault = self._fault(event, view, step, start, span.ring.members)
        if fault:
            self.violate(
                f"Processor {event.node} began step {step} of {view} at {event.t_us} us; {fault}.",
                (event.node,),
                (),
                event.t_us,
            )
        self._last[event.node] = (view, step)

    def _fault(
        self, event: Noted, view: ViewId, step: int, start: int, members: tuple[NodeId, ...]
    ) -> str:
        if event.view not in (None, view):
            return f"its application is in {view}, and its ring in {event.view}"
        if strangers := set(event.members) - set(members):
            return f"{sorted(strangers)} of its ring are not members"
        if self._last.get(event.node, (view, -1)) >= (view, step):
            return f"it has begun {self._last[event.node]} before"
        ring = (event.node, event.members, start)
        known = self._rings.setdefault((view, step), ring)
        self._know.setdefault((view, step), set()).add(event.node)
        if len(self._rings) > KEPT:
            for old in list(self._rings)[: KEPT // 2]:
                del self._rings[old], self._know[old]
        if known[1:] != ring[1:]:
            node, others, other = known
            return f"its ring is {ring[1]} from {start} on, that of {node} {others} from {other} on"
        return ""
