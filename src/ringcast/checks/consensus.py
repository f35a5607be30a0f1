"""M8 consensus: a ring is installed only after every member agreed to it.

If p installs ring C, every member of C has forwarded C's Commit token with that membership
(Th 4.2). Protocols note the first forward as ``commit``; without any such note in the trace the
answer is unknown. The ring a processor starts in needs no Commit token.

A representative that lost its storage may give one id to two rings before anybody has installed the
first. Nobody can tell who agreed to which of them, so the check says nothing about that id.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property, Reads
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Installed, Noted

KEPT = 256
"""Rings agreed to before a look at which of them nobody can install any more."""


class RingConsensus(Property):
    """M8."""

    tag = "M8"
    title = "consensus"
    reads = Reads.NOTHING
    notes = ("commit",)
    about_deliveries = False

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._agreed: dict[ViewId, dict[NodeId, tuple[NodeId, ...]]] = {}
        self._again: set[ViewId] = set()
        """Ids that were given twice."""
        self._noted = False
        self._keep = KEPT

    def on_noted(self, event: Noted) -> None:
        """A processor agrees to a ring."""
        if event.what == "commit" and event.view is not None:
            self._noted = True
            agreed = self._agreed.setdefault(event.view, {})
            before = agreed.get(event.node, event.members)
            differs = set(before) != set(event.members)
            if differs and event.node == event.view.rep and self.history.lost:
                self._again.add(event.view)
            agreed[event.node] = event.members
            if len(self._agreed) > self._keep:
                self._forget()

    def on_installed(self, event: Installed) -> None:
        """Everybody in the new ring must have agreed to it."""
        if event.transitional or self.history.node.previous is None:
            return
        if not self._noted or event.view in self._again:
            self.undecided = True
            return
        agreed = self._agreed.get(event.view, {})
        for member in event.members:
            theirs = agreed.get(member)
            if theirs is None or set(theirs) != set(event.members):
                did = "had forwarded no Commit token" if theirs is None else f"agreed to {theirs}"
                self.violate(
                    f"Processor {event.node} installed {event.view} {event.members} at "
                    f"{event.t_us} us, but processor {member} {did}.",
                    (event.node, member),
                    (),
                    event.t_us,
                )
                return

    def _forget(self) -> None:
        """Drop the rings that all members have gone past."""
        nodes = self.history.nodes
        self._agreed = {
            view: agreed
            for view, agreed in self._agreed.items()
            if any(nodes[id].up and nodes[id].last_seq < view.seq for id in agreed if id in nodes)
        }
        self._again.intersection_update(self._agreed)
        self._keep = max(KEPT, 2 * len(self._agreed))
