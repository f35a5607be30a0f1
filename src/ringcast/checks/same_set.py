"""D6 same set: processors that make the same step delivered the same before it.

If p and q both install C1 and then directly C2, of either kind, they delivered the same set of
messages in C1.
"""

from __future__ import annotations

from ringcast.checks.history import Ring, Span
from ringcast.checks.property import Property
from ringcast.core.ids import ViewId
from ringcast.core.seqset import SeqSet
from ringcast.core.trace import Installed


class SameSet(Property):
    """D6."""

    tag = "D6"
    title = "same set"

    def on_installed(self, event: Installed) -> None:
        """Compare with the first processor that made the same step."""
        node = self.history.node
        before = node.previous
        span: Span | None = node.left or node.span
        if before is None or span is None:
            return
        mine = span.transitional if before.transitional else span.regular
        steps: dict[tuple[ViewId, ViewId], tuple[Installed, SeqSet]]
        steps = span.ring.marks.setdefault(self.tag, {})
        first, its = steps.setdefault((before.view, event.view), (event, mine))
        if first is not event and list(its.intervals()) != list(mine.intervals()):
            self._explain(event, span.ring, before.view, first, its, mine)

    def _explain(
        self,
        event: Installed,
        ring: Ring,
        before: ViewId,
        first: Installed,
        its: SeqSet,
        mine: SeqSet,
    ) -> None:
        index = next(i for i in range(1, ring.last_index + 1) if (i in its) != (i in mine))
        message = ring.name(index)
        has, has_not = (first.node, event.node) if index in its else (event.node, first.node)
        self.violate(
            f"Processors {first.node} ({first.t_us} us) and {event.node} ({event.t_us} us) went "
            f"from {before} to {event.view}, but in {before} only processor {has} delivered "
            f"{message}, processor {has_not} did not.",
            (first.node, event.node),
            (message,),
            event.t_us,
        )
