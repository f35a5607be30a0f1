"""M4 shape of T: who is in a transitional configuration, and what it is called.

If p goes C1 -> T -> C2 then p is in T, T is within both C1 and C2, its id is between theirs,
``T.rep = min(T)``, and every q in T comes to C2 from C1 as well (not merely from somewhere: the
plain intersection of the memberships is wrong). Whoever else comes to C2 from C1 does so through T:
in another one nobody would ask whether they delivered the same in C1.
"""

from __future__ import annotations

from ringcast.checks.property import Property, Reads
from ringcast.checks.ring import CheckedRing
from ringcast.core.ids import NodeId
from ringcast.core.trace import Installed


class TransitionalShape(Property):
    """M4."""

    tag = "M4"
    title = "shape of T"
    reads = Reads.NOTHING
    about_deliveries = False

    def on_installed(self, event: Installed) -> None:
        """Look at T when it ends in a regular configuration."""
        node = self.history.node
        middle, left = node.previous, node.left
        if event.transitional or middle is None or not middle.transitional or left is None:
            return
        old = left.ring
        before = left.conf.members if left.conf else old.members  # as it was told itself
        members = set(middle.members)
        problem = ""
        if event.node not in members:
            problem = "does not include it"
        elif not members <= set(before):
            problem = f"is not within the ring before, {old.view} {before}"
        elif not members <= set(event.members):
            problem = f"is not within the ring after, {event.view} {event.members}"
        elif not old.view < middle.view < event.view:
            problem = f"is not numbered between {old.view} and {event.view}"
        elif middle.view.rep != min(members):
            problem = "is not named after its smallest member"
        if problem:
            self.violate(
                f"Processor {event.node} passed through {middle.view} {middle.members} "
                f"({middle.t_us} us), which {problem}.",
                (event.node,),
                (),
                event.t_us,
            )
        else:
            self._compare_origins(event, old, middle)

    def _compare_origins(self, event: Installed, old: CheckedRing, middle: Installed) -> None:
        """Those in one T come from one ring, and those from one ring through one T."""
        ring = self.history.rings[event.view]
        arrivals: dict[NodeId, tuple[CheckedRing, Installed]] = ring.marks.setdefault(self.tag, {})
        arrivals[event.node] = (old, middle)
        for other, (its_old, its_middle) in arrivals.items():
            together = other in middle.members or event.node in its_middle.members
            apart = other in event.members and its_middle.view != middle.view
            if apart and its_old.view == old.view:
                self.violate(
                    f"Processors {other} and {event.node} came to {event.view} from {old.view}, "
                    f"but one through {its_middle.view} {its_middle.members} and the other through "
                    f"{middle.view} {middle.members}.",
                    (other, event.node),
                    (),
                    event.t_us,
                )
            elif together and its_old.view != old.view:
                self.violate(
                    f"Processors {other} and {event.node} share a transitional configuration "
                    f"({its_middle.view} {its_middle.members}, {middle.view} {middle.members}) "
                    f"but came to {event.view} from {its_old.view} and from {old.view}.",
                    (other, event.node),
                    (),
                    event.t_us,
                )
