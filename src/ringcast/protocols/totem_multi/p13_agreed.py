"""P-13: in a topology everybody delivers a prefix of one sequence.

The dossier's words are: a prefix of all that anybody delivers in it, sorted by key. With P-7 that
is the same: of two processors' deliveries in a topology, one continues the other.
"""

from __future__ import annotations

from ringcast.checks.history import History
from ringcast.checks.property import Property
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Delivered, Installed
from ringcast.protocols.totem_multi.trail import PlaceKey, place, shown

REMEMBERED = 256
"""Topologies whose sequences are remembered."""


class PrefixInTopology(Property):
    """One sequence in each topology."""

    tag = "P-13"
    title = "a prefix in each topology"
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._sequences: dict[ViewId, list[tuple[PlaceKey, NodeId]]] = {}
        self._at: dict[NodeId, tuple[ViewId, int]] = {}  # where each is, and how far

    def on_installed(self, event: Installed) -> None:
        """From the beginning of the new one's sequence."""
        self._at[event.node] = (event.view, 0)
        self._sequences.setdefault(event.view, [])
        while len(self._sequences) > REMEMBERED:
            del self._sequences[next(iter(self._sequences))]

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
        elif sequence[at][0] != key:
            wanted, first = sequence[at]
            self.violate(
                f"In {event.view} processor {event.node} delivered {shown(key)} as number "
                f"{at + 1} at {event.t_us} us, where processor {first} delivered {shown(wanted)}.",
                (first, event.node),
                (shown(wanted), shown(key)),
                event.t_us,
            )
