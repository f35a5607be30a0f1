"""M7 same change: processors that make the same step are told the same of it.

If p and q both install C2 directly after C1, their whole ``conf`` messages are equal.
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.core.ids import ViewId
from ringcast.core.trace import Installed


class SameChange(Property):
    """M7."""

    tag = "M7"
    title = "same change"
    reads = Reads.NOTHING
    about_deliveries = False

    def on_installed(self, event: Installed) -> None:
        """Compare with the first processor that made the same step."""
        node = self.history.node
        span = node.span
        if node.previous is None or span is None:
            return
        steps: dict[tuple[ViewId, ViewId], Installed]
        steps = span.ring.marks.setdefault(self.tag, {})
        first = steps.setdefault((node.previous.view, event.view), event)
        if first is not event and _told(first) != _told(event):
            self.violate(
                f"Processors {first.node} ({first.t_us} us) and {event.node} ({event.t_us} us) "
                f"went from {node.previous.view} to {event.view}, but were told "
                f"{_text(first)} and {_text(event)}.",
                (first.node, event.node),
                (),
                event.t_us,
            )


def _told(event: Installed) -> tuple[object, ...]:
    return (event.ring, event.seq, event.conf_id, event.members, event.transitional)


def _text(event: Installed) -> str:
    conf_id = event.view if event.transitional else event.conf_id
    return f"[{event.ring} {event.seq} {conf_id} {event.members}]"
