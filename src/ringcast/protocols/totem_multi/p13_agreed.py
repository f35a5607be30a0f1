"""P-13: in a topology everybody delivers a prefix of one sequence, and does not go on to the next
topology behind what others deliver there and it does not.

The dossier's words are: a prefix of all that anybody delivers in it, sorted by key. With P-7 that
is the same: of two processors' deliveries in a topology, one continues the other. They let a
processor lose the end of the sequence, if nobody makes the same step (P-11): whoever goes on at a
place has come past all that lies before it.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Delivered, Installed
from ringcast.protocols.totem_multi.trail import (
    PlaceKey,
    TopologyNote,
    TopologyProperty,
    place,
    shown,
)

REMEMBERED = 256
"""Topologies whose sequences are remembered."""


class PrefixInTopology(TopologyProperty):
    """One sequence in each topology."""

    tag = "P-13"
    title = "a prefix in each topology"
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._sequences: dict[ViewId, list[tuple[PlaceKey, NodeId]]] = {}
        self._at: dict[NodeId, tuple[ViewId, int]] = {}  # where each is, and how far
        self._left: dict[ViewId, list[tuple[PlaceKey, int, NodeId]]] = {}
        """Who went on from a topology: at which place, and how far it had come in the sequence."""

    def on_installed(self, event: Installed) -> None:
        """From the beginning of the new one's sequence."""
        super().on_installed(event)
        self._at[event.node] = (event.view, 0)
        self._sequences.setdefault(event.view, [])
        while len(self._sequences) > REMEMBERED:
            oldest = next(iter(self._sequences))
            del self._sequences[oldest]
            self._left.pop(oldest, None)

    def entered(self, event: Installed, old: TopologyNote | None, new: TopologyNote) -> None:
        """It has passed what lies before this place."""
        view, at = self._at.get(event.node, (None, 0))
        if old is None or view != old.view or old.view not in self._sequences:
            return
        self._left.setdefault(old.view, []).append((new.key, at, event.node))
        for key, first in self._sequences[old.view][at : at + 1]:
            if key < new.key:
                self._passed_by(event.node, old.view, new.key, first, key, event.t_us)

    def on_delivered(self, event: Delivered) -> None:
        """The next of the sequence, or what continues it."""
        sequence = self._sequences.get(event.view)
        view, at = self._at.get(event.node, (None, 0))
        if sequence is None or view != event.view or at > len(sequence):
            return  # long ago, or in another topology than it told of (P-1)
        key = place(event)
        self._at[event.node] = (event.view, at + 1)
        if at == len(sequence):
            sequence.append((key, event.node))
            for went, come, node in self._left.get(event.view, ()):
                if come <= at and key < went:
                    self._passed_by(node, event.view, went, event.node, key, event.t_us)
                    break
        elif sequence[at][0] != key:
            wanted, first = sequence[at]
            self.violate(
                f"In {event.view} processor {event.node} delivered {shown(key)} as number "
                f"{at + 1} at {event.t_us} us, where processor {first} delivered {shown(wanted)}.",
                (first, event.node),
                (shown(wanted), shown(key)),
                event.t_us,
            )

    def _passed_by(
        self, node: NodeId, view: ViewId, went: PlaceKey, first: NodeId, key: PlaceKey, t_us: int
    ) -> None:
        self.violate(
            f"Processor {node} went on from {view} at {shown(went)} without {shown(key)}, which "
            f"processor {first} delivered there ({t_us} us).",
            (first, node),
            (shown(key),),
            t_us,
        )
