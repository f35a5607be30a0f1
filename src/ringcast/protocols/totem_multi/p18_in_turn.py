"""P-18, of what is delivered in one topology: P-13 for messages to some.

Of the messages to some that anybody delivers in a topology, each processor has delivered those that
are for it, up to where it has come: to a later message of either kind, or to the place where it
goes on to another topology. The steps that processors make alike do not say it: one of them may
crash, or go elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

import msgspec

from ringcast.checks.history import History
from ringcast.checks.multicast import Multicast, whom
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.to_some import DeliveredTo
from ringcast.core.trace import Crashed, Delivered, Installed, Noted
from ringcast.protocols.totem_multi.trail import TOPOLOGY, PlaceKey, TopologyNote, place

REMEMBERED = 256
"""Topologies of which it is remembered what was delivered in them."""

LATEST = 65_536
"""The most messages of one that are remembered."""


class TopologySome(msgspec.Struct):
    """What was delivered to some in a topology, and how far each processor has come in it."""

    places: list[PlaceKey] = []
    told: dict[PlaceKey, tuple[NodeId, DeliveredTo, set[NodeId]]] = {}
    """Who delivered it first, what it is, and all who did."""
    come: dict[NodeId, PlaceKey] = {}


class InTurn(Multicast):
    """Nobody passes by what is for it, and others deliver in the same topology."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._within: dict[ViewId, TopologySome] = {}
        self._key: dict[NodeId, TopologyNote] = {}
        self._in: dict[NodeId, ViewId] = {}

    def on_delivered(self, event: Delivered) -> None:
        """It passes what is before this."""
        super().on_delivered(event)
        self._pass(event.node, place(event), event.t_us)

    def on_noted(self, event: Noted) -> None:
        """The same of a message to some; or a topology is about to be installed."""
        super().on_noted(event)
        if event.what == TOPOLOGY and event.view is not None:
            self._key[event.node] = TopologyNote(event)
        elif (told := DeliveredTo.read(event)) and told.view == self._in.get(event.node):
            self._tell(event, told)

    def on_installed(self, event: Installed) -> None:
        """It has passed what is before the place of the next topology."""
        super().on_installed(event)
        note = self._key.get(event.node)
        if note is None or note.view != event.view:
            return  # P-1 speaks of it
        if event.prev is not None:
            self._pass(event.node, note.key, event.t_us)
        self._in[event.node] = event.view
        self._within.setdefault(event.view, TopologySome()).come[event.node] = note.key
        while len(self._within) > REMEMBERED:
            del self._within[next(iter(self._within))]

    def on_crashed(self, event: Crashed) -> None:
        """It comes no further."""
        super().on_crashed(event)
        self._in.pop(event.node, None)

    def _tell(self, event: Noted, told: DeliveredTo) -> None:
        key, node = place(told), event.node
        here = self._within.get(told.view)
        if here is None:
            return
        if key not in here.told:
            here.told[key] = (node, told, set())
            insort(here.places, key)
            if len(here.places) > LATEST:
                for old in here.places[: LATEST // 2]:
                    del here.told[old]
                del here.places[: LATEST // 2]
            for other, come in here.come.items():
                if come > key:
                    self._look(other, here, key, event.t_us)
        if key in here.told:
            here.told[key][2].add(node)
        self._pass(node, key, event.t_us)

    def _pass(self, node: NodeId, key: PlaceKey, t_us: int) -> None:
        here = self._within.get(self._in.get(node, ViewId(0, 0)))
        if here is None:
            return
        since = here.come.get(node, key)
        first, last = bisect_right(here.places, since), bisect_left(here.places, key)
        for passed in here.places[first:last]:
            self._look(node, here, passed, t_us)
        here.come[node] = max(since, key)

    def _look(self, node: NodeId, here: TopologySome, key: PlaceKey, t_us: int) -> None:
        """Whether what it went past was for it, and not delivered."""
        first, told, had = here.told[key]
        if node in had or not self.concerns(node, told, self.place(told.ring, told.seq)):
            return
        if not self.history.lost.isdisjoint((first, node)):
            return  # which of its words on groups counted, nobody can tell
        self.violate(
            f"Processor {node} went past {told.name} by {t_us} us, which is for {whom(told)}, and "
            f"which processor {first} delivered in {told.view}.",
            (first, node),
            (told.name,),
            t_us,
        )
