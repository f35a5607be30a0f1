"""D6 same set: processors that make the same step delivered the same before it.

If p and q both install C1 and then directly C2, of either kind, they delivered the same set of
messages in C1.
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.checks.ring import CheckedRing, RingStay
from ringcast.core.ids import ViewId
from ringcast.core.seqset import SeqSet
from ringcast.core.trace import Installed


class SameSet(Property):
    """D6."""

    tag = "D6"
    title = "same set"
    reads = Reads.ORIGINS

    def on_installed(self, event: Installed) -> None:
        """Compare with the first processor that made the same step. One that makes it twice breaks
        M2, and is not compared with itself."""
        node = self.history.node
        before = node.previous
        span: RingStay | None = node.left or node.span
        if before is None or span is None:
            return
        mine = span.regular
        if before.transitional:  # if this one is transitional too, the span has moved on to it
            mine = span.former if event.transitional else span.transitional
        steps: dict[tuple[ViewId, ViewId], tuple[Installed, SeqSet]]
        steps = span.ring.marks.setdefault(self.tag, {})
        first, its = steps.setdefault((before.view, event.view), (event, mine))
        index = its.first_difference(mine) if first.node != event.node else None
        if index is not None:
            self._explain(event, span.ring, before.view, first, index, index in its)

    def _explain(
        self,
        event: Installed,
        ring: CheckedRing,
        before: ViewId,
        first: Installed,
        index: int,
        first_has: bool,
    ) -> None:
        message = ring.name(index)
        has, has_not = (first.node, event.node) if first_has else (event.node, first.node)
        self.violate(
            f"Processors {first.node} ({first.t_us} us) and {event.node} ({event.t_us} us) went "
            f"from {before} to {event.view}, but in {before} only processor {has} delivered "
            f"{message}, processor {has_not} did not.",
            (first.node, event.node),
            (message,),
            event.t_us,
        )
