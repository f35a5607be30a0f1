"""one-log: numbers go on from view to view, so that all deliveries are stretches of one log (P4+).

Within a view the check ``agreed`` says so. Between views: whatever is delivered in one has lower
numbers than all that is delivered in a later one, by whomever. A number given again, with other
contents, was delivered by nobody. Only a group that begins anew counts from the beginning. Members
note ``epoch`` when they begin one; of views without such notes there is nothing to be said.
"""

from __future__ import annotations

from bisect import insort

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.checks.stretch import Stretch
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Delivered, Noted
from ringcast.protocols.rbp.uniform import EPOCH

KEPT = 256
"""Views remembered before the older half is let go."""

ANEW = 2
"""Where the note of an epoch says that the group begins anew."""


class Numbers:
    """The lowest and the highest number delivered in a view, and by whom."""

    __slots__ = ("first", "first_by", "last", "last_by")

    def __init__(self) -> None:
        self.first, self.last = 2**63, -1
        self.first_by: NodeId = 0
        self.last_by: NodeId = 0


class OneLog(Property):
    """P4+, between views."""

    tag = "one-log"
    title = "numbers go on from view to view"
    reads = Reads.ORIGINS
    needs_storage = True
    notes = (EPOCH,)
    needs_notes = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._views: list[ViewId] = []
        self._numbers: dict[ViewId, Numbers] = {}
        self._anew: set[ViewId] = set()

    def on_noted(self, event: Noted) -> None:
        """A view has epochs."""
        span = self.history.known(event.node).span
        if event.what != EPOCH or span is None:
            return
        view = span.ring.view
        if view not in self._numbers:
            self._numbers[view] = Numbers()
            insort(self._views, view)
            for old in self._views[: -KEPT // 2] if len(self._views) > KEPT else ():
                del self._numbers[old]
                self._views.remove(old)
        if event.data and len(event.data) > ANEW and event.data[ANEW]:
            self._anew.add(view)

    def on_delivered(self, event: Delivered) -> None:
        """A number: it is beyond all of earlier views, and below all of later ones."""
        numbers = self._numbers.get(event.ring)
        if numbers is None:
            return
        if event.seq > numbers.last:
            numbers.last, numbers.last_by = event.seq, event.node
            self._compare(event, event.ring, later=True)
        if event.seq < numbers.first:
            numbers.first, numbers.first_by = event.seq, event.node
            self._compare(event, event.ring, later=False)

    def on_stretch(self, stretch: Stretch) -> None:
        """Its heads were seen, and its last number is the highest."""
        numbers = self._numbers.get(stretch.ring)
        if numbers is not None and stretch.seq > numbers.last:
            heads = [head for head in stretch.heads if isinstance(head, Delivered)]
            numbers.last, numbers.last_by = stretch.seq, stretch.by
            if heads:
                self._compare(heads[-1], stretch.ring, later=True)

    def _compare(self, event: Delivered, view: ViewId, later: bool) -> None:
        """Look for a view of the same log whose numbers overlap with those of ``view``."""
        numbers = self._numbers[view]
        at = self._views.index(view)
        if later:
            for other in self._views[at + 1 :]:
                if other in self._anew:
                    return
                its = self._numbers[other]
                if its.first <= numbers.last:
                    self._overlap(event, view, other, its.first_by)
                    return
        else:
            for here, other in zip(self._views[at:0:-1], self._views[at - 1 :: -1], strict=False):
                if here in self._anew:
                    return
                its = self._numbers[other]
                if its.last >= numbers.first:
                    self._overlap(event, view, other, its.last_by)
                    return

    def _overlap(self, event: Delivered, view: ViewId, other: ViewId, node: NodeId) -> None:
        self.violate(
            f"Processor {event.node} delivered {self.history.frame} in {view} at {event.t_us} us, "
            f"and processor {node} delivered in {other} a number on the other side of it: one of "
            f"the two is void.",
            (node, event.node),
            (self.history.frame,),
            event.t_us,
        )
