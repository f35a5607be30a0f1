"""Why members are gone from the topology: what a ring of ours judged, else what gateways tell."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ringcast.core.effects import Departure, Reason
from ringcast.core.ids import NodeId
from ringcast.protocols.totem_multi.messages import Key, Member, Rank
from ringcast.protocols.totem_single.messages import RingId


class Departures:
    """What one processor knows of those that went."""

    def __init__(self) -> None:
        self.seated: dict[RingId, tuple[NodeId, ...]] = {}
        """The rings of the last topology, and the processors on them."""
        self._judged: dict[RingId, dict[NodeId, Departure]] = {}
        """By transitional rings of ours that no topology has shown yet."""

    def judged(
        self, ring: RingId, old: RingId, members: Iterable[Member], gone: Iterable[Departure]
    ) -> None:
        """A ring of ours lost members: the transitional ``ring`` follows ``old`` without them."""
        nodes = {member.pid: member.node for member in members}
        self._judged[ring] = {
            nodes[each.member]: Departure(
                nodes[each.member], each.reason, f"ring {old}: {each.judged_by}"
            )
            for each in gone
        }

    def at(
        self, key: Key, gone: Collection[NodeId], topology: Collection[RingId]
    ) -> tuple[Departure, ...]:
        """Why each member that went is not in the topology that begins at ``key``."""
        departures = tuple(self._why(key, node, topology) for node in gone)
        for ring in (key.ring, key.conf):
            self._judged.pop(ring, None)
        return departures

    def _why(self, key: Key, node: NodeId, topology: Collection[RingId]) -> Departure:
        for judged in self._judged.values():
            if node in judged:
                return judged[node]
        if key.rank == Rank.SHRINK:
            what = "A4: cut off, or gone, before its word on a safe message came"
            return Departure(node, Reason.FAILED_TO_RECEIVE, what)
        if node in self.seated.get(key.conf, ()) and key.ring in topology:
            what = f"a gateway: ring {key.conf} went on without it"
            return Departure(node, Reason.EXCLUDED, what)
        return Departure(node, Reason.UNKNOWN, "no gateway leads to its ring any more")
