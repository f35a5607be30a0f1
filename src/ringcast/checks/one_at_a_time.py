"""M3 one at a time: a processor's configurations come in the right order.

Each incarnation starts with a regular ``{p}``, then transitional and regular ones alternate.
Regular sequence numbers rise strictly over all incarnations of a processor.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.core.ids import NodeId
from ringcast.core.trace import Installed


class OneAtATime(Property):
    """M3."""

    tag = "M3"
    title = "one at a time"
    reads = Reads.NOTHING
    about_deliveries = False
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._regular: dict[NodeId, Installed] = {}

    def on_installed(self, event: Installed) -> None:
        """Compare with the processor's previous configuration and last regular one."""
        previous = self.history.node.previous
        at = f"at {event.t_us} us"
        problem = ""
        if previous is None:
            if event.transitional or event.members != (event.node,):
                problem = f"started with {event.view} {event.members} {at}, not alone in a ring"
        elif previous.transitional == event.transitional:
            kind = "transitional" if event.transitional else "regular"
            problem = f"went from {previous.view} to {event.view} {at}, both {kind}"
        if not event.transitional:
            last = self._regular.get(event.node)
            if last is not None and last.view.seq >= event.view.seq:
                problem = (
                    f"installed ring {event.view} {at} although it had already installed "
                    f"{last.view} at {last.t_us} us, whose number is not smaller"
                )
            self._regular[event.node] = event
        if problem:
            self.violate(f"Processor {event.node} {problem}.", (event.node,), (), event.t_us)
