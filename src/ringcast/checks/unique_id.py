"""M2 unique id: a configuration's identifier stands for one kind and one membership.

It holds over the whole trace, crashes included. A processor that installs an identifier a second
time is in a second ring that shares it. An identifier that every processor has gone past is
forgotten: whoever takes it again goes back in number, which M3 reports. A representative that
comes back without its stable storage may give an identifier again, and others that do may take
theirs again; of the rest that is wrong nevertheless. The identifier of a transitional configuration
follows from the ring after it, whose representative may be another.
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.core.trace import Installed


class UniqueId(Property):
    """M2."""

    tag = "M2"
    title = "unique id"
    in_part = True
    reads = Reads.NOTHING
    about_deliveries = False
    needs_storage = True

    def on_installed(self, event: Installed) -> None:
        """Compare with the first ``conf`` of the same identifier."""
        first = self.history.earlier
        if first is None or first is event:
            return
        rings = not first.transitional and not event.transitional
        rests_on = (event.view.rep, first.node, event.node) if rings else ()
        if first.transitional != event.transitional or first.members != event.members:
            kinds = ("regular", "transitional")
            self.violate(
                f"Configuration {event.view} is {kinds[first.transitional]} {first.members} at "
                f"processor {first.node} ({first.t_us} us) and {kinds[event.transitional]} "
                f"{event.members} at processor {event.node} ({event.t_us} us).",
                (first.node, event.node),
                (),
                event.t_us,
                rests_on,
            )
        elif first.node == event.node:
            self.violate(
                f"Processor {event.node} installed {event.view} at {first.t_us} us and again at "
                f"{event.t_us} us: two configurations share the identifier.",
                (event.node,),
                (),
                event.t_us,
                rests_on,
            )
