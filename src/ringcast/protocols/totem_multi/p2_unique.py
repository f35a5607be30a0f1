"""P-2: a topology's name stands for one list of rings and members, told everywhere as the same kind
of view at the same place, and nobody enters it twice. At one place a processor may come back to it
(G-8 ext): several changes to a ring, and rings that are deleted with them, have one, and no message
lies between them."""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Installed
from ringcast.protocols.totem_multi.trail import TopologyNote, TopologyProperty


class TopologyUnique(TopologyProperty):
    """One name, one topology."""

    tag = "P-2"
    title = "one name, one topology"
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._first: dict[ViewId, tuple[TopologyNote, Installed]] = {}
        self._entered: dict[NodeId, set[ViewId]] = {}

    def entered(self, event: Installed, old: TopologyNote | None, new: TopologyNote) -> None:
        """Compare with the first that told of it, and with where it has been."""
        first, told = self._first.setdefault(new.view, (new, event))
        wrong = ""
        if (first.rings, first.members) != (new.rings, new.members):
            wrong = f"the rings {new.rings} and members {new.members}, not {first.rings} and "
            wrong += f"{first.members}"
        elif _told_as(event) != _told_as(told):
            wrong = f"kind, ring, number and origin {_told_as(event)}, not {_told_as(told)}"
        if wrong:
            self.violate(
                f"At processor {event.node} ({event.t_us} us) topology {new.view} has {wrong} as "
                f"at processor {told.node}.",
                (told.node, event.node),
                (new.view,),
                event.t_us,
            )
        been = self._entered.setdefault(event.node, set())
        if new.view in been and (old is None or old.key[:3] != new.key[:3]):
            self.violate(
                f"Processor {event.node} entered {new.view} again at {event.t_us} us.",
                (event.node,),
                (new.view,),
                event.t_us,
            )
        been.add(new.view)


def _told_as(event: Installed) -> tuple[bool, ViewId, int, ViewId | None]:
    """What the application learns of a view besides its members; the same at every processor."""
    return (event.transitional, event.ring, event.seq, event.conf_id)
