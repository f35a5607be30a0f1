"""M6 same start: all who initiate a configuration agree on its membership.

The part of M2 that concerns members alone; it does not rest on identifiers of different kinds.
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.core.trace import Installed


class SameStart(Property):
    """M6."""

    tag = "M6"
    title = "same start"
    reads = Reads.NOTHING
    about_deliveries = False
    needs_storage = True

    def on_installed(self, event: Installed) -> None:
        """Compare with the first ``conf`` of the same configuration."""
        first = self.history.earlier
        if first is not None and first.members != event.members:
            self.violate(
                f"Processor {first.node} initiated {event.view} with members {first.members} at "
                f"{first.t_us} us, processor {event.node} with {event.members} at "
                f"{event.t_us} us.",
                (first.node, event.node),
                (),
                event.t_us,
            )
