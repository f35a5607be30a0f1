"""M1 announce: a processor acts in a configuration only after telling of it.

Every configuration seen in ``deliver`` and ``originate`` is the one of the processor's latest
``conf``, and the processor belongs to it. A ``conf`` names the one before it, none after a start.
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.core.ids import ViewId
from ringcast.core.trace import Delivered, Installed, Originated


class Announce(Property):
    """M1."""

    tag = "M1"
    title = "announce"
    reads = Reads.ORIGINS
    about_deliveries = False

    def on_installed(self, event: Installed) -> None:
        """The processor belongs to what it installs."""
        if event.node not in event.members:
            self.violate(
                f"Processor {event.node} installed {event.view} at {event.t_us} us, whose members "
                f"{event.members} do not include it.",
                (event.node,),
                (),
                event.t_us,
            )
        previous = self.history.node.previous
        was = previous.view if previous else None
        if event.prev != was:
            self.violate(
                f"Processor {event.node} installed {event.view} at {event.t_us} us as if it came "
                f"from {event.prev or 'nowhere'}, but it was in {was or 'no configuration'}.",
                (event.node,),
                (),
                event.t_us,
            )

    def on_originated(self, event: Originated) -> None:
        """Messages are numbered in the configuration the processor is in."""
        self._check(event, event.ring, "originated")

    def on_delivered(self, event: Delivered) -> None:
        """Messages are delivered in the configuration the processor is in."""
        self._check(event, event.view, "delivered")

    def _check(self, event: Originated | Delivered, view: ViewId, verb: str) -> None:
        current = self.history.node.current
        if current is not None and (current.view is view or current.view == view):
            return
        message = f"{event.ring}:{event.seq}.0"
        where = f"in {current.view}" if current else "in no configuration"
        self.violate(
            f"Processor {event.node} {verb} {message} in {view} at {event.t_us} us, "
            f"but by its own announcements it was {where}.",
            (event.node,),
            (message,),
            event.t_us,
        )
