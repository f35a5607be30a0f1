"""P-1: every topology change is told, with all rings, and nothing is delivered outside of one.

What the application is told is what the note says: the same name, members and place, after the
topology in which the processor was. It is one of the members, and there are no transitional views.
"""

from __future__ import annotations

from ringcast.core.trace import Crashed, Delivered, Installed
from ringcast.protocols.totem_multi.trail import TopologyProperty, shown


class TopologyNotice(TopologyProperty):
    """Every topology change is told."""

    tag = "P-1"
    title = "topology changes are told"

    def on_installed(self, event: Installed) -> None:
        """It must have been told just before, with its rings."""
        note, before = self.told.get(event.node), self.now.get(event.node)
        prev = before and before.view
        if note is None or note.view != event.view or not note.rings:
            wrong = "did not tell its rings"
        elif note.members != event.members:
            wrong = f"told {event.members} as its members, which are {note.members}"
        elif event.node not in event.members:
            wrong = f"is none of its members {event.members}"
        elif event.transitional or event.conf_id is not None:
            wrong = "told it as a transitional one"
        elif (event.seq, event.ring.seq, event.ring.rep) != note.key[:3]:
            wrong = f"told {event.seq}@{event.ring} as its place, which is {shown(note.key)}"
        elif event.prev != prev:
            wrong = f"told {event.prev} as the one before, which was {prev}"
        else:
            wrong = ""
        if wrong:
            self.violate(
                f"Processor {event.node} installed {event.view} at {event.t_us} us and {wrong}.",
                (event.node,),
                (event.view,),
                event.t_us,
            )
        super().on_installed(event)

    def on_crashed(self, event: Crashed) -> None:
        """Another life is in no topology yet."""
        self.now.pop(event.node, None)

    def on_delivered(self, event: Delivered) -> None:
        """In the topology that was told last."""
        note = self.now.get(event.node)
        if note is None or note.view != event.view:
            where = note.view if note else "none"
            self.violate(
                f"Processor {event.node} delivered {event.ring}:{event.seq} at {event.t_us} us in "
                f"topology {event.view}; the last one it told of is {where}.",
                (event.node,),
                (f"{event.ring}:{event.seq}",),
                event.t_us,
            )
