"""P-12: what its sender had delivered before a message is delivered before it, by everybody who was
in a topology with the sender all that time, and at that place in the one of that delivery.

Theorem 5.13 does not ask for the latter. It overlooks merges that are interrupted, after which
processors of one ring are in different topologies for a while, each with the other as a member.
That keys agree with causality is P-16. This is about gaps: of each message the check remembers the
last deliveries of its sender, and of each processor those of its own.
"""

from __future__ import annotations

from collections import deque

from ringcast.checks.history import History
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.trace import Crashed, Delivered, Installed, Originated
from ringcast.protocols.totem_multi.trail import (
    PlaceKey,
    TopologyNote,
    TopologyProperty,
    place,
    shown,
)

PAST = 32
"""Deliveries of the sender before a message that are looked at."""

REMEMBERED = 4096
"""Messages whose past is remembered, and deliveries of each processor."""


class CausesFirst(TopologyProperty):
    """No effect without its causes."""

    tag = "P-12"
    title = "causes before effects"
    needs_storage = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._latest: dict[NodeId, deque[tuple[PlaceKey, ViewId]]] = {}
        self._had: dict[NodeId, dict[PlaceKey, None]] = {}
        self._past: dict[PlaceKey, tuple[tuple[PlaceKey, ViewId], ...]] = {}
        self._been: dict[NodeId, dict[ViewId, PlaceKey | None]] = {}
        """The topologies of each, and where it went on to the next."""
        self._with: dict[NodeId, dict[NodeId, PlaceKey]] = {}
        """For each processor, since which place each other one is in its topologies."""

    def entered(self, event: Installed, old: TopologyNote | None, new: TopologyNote) -> None:
        """Who stays, and who is new."""
        before = self._with.get(event.node, {}) if old is not None else {}
        self._with[event.node] = {q: before.get(q, new.key) for q in new.members}
        been = self._been.setdefault(event.node, {})
        if old is not None:
            been[old.view] = new.key
        been.pop(new.view, None)
        been[new.view] = None
        if len(been) > REMEMBERED:
            del been[next(iter(been))]

    def on_originated(self, event: Originated) -> None:
        """Its causes are what its sender has delivered."""
        self._past[place(event)] = tuple(self._latest.get(event.node, ()))
        if len(self._past) > REMEMBERED:
            del self._past[next(iter(self._past))]

    def on_delivered(self, event: Delivered) -> None:
        """All its causes must have been delivered here, as far as they were for both."""
        key, node = place(event), event.node
        had = self._had.setdefault(node, {})
        since = self._with.get(node, {}).get(event.sender)
        oldest = next(iter(had)) if len(had) == REMEMBERED else None
        been = self._been.get(node, {})
        for cause, view in self._past.get(key, ()):
            if since is None or view not in been or (oldest is not None and cause < oldest):
                continue
            left = been[view]
            if cause > since and cause not in had and (left is None or cause < left):
                self.violate(
                    f"Processor {node} delivered {shown(key)} at {event.t_us} us without "
                    f"{shown(cause)}, which its sender {event.sender} had delivered before.",
                    (event.sender, node),
                    (shown(cause), shown(key)),
                    event.t_us,
                )
        had[key] = None
        if len(had) > REMEMBERED:
            del had[next(iter(had))]
        self._latest.setdefault(node, deque(maxlen=PAST)).append((key, event.view))

    def on_crashed(self, event: Crashed) -> None:
        """Another life has another past."""
        self._latest.pop(event.node, None)
        self._had.pop(event.node, None)
        self._with.pop(event.node, None)
        self._been.pop(event.node, None)
