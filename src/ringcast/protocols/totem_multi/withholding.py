"""What a gateway does not pass on: messages to processors that are all elsewhere (F1 to F5).

The seed names it as future work ("process groups, with filtering at gateways") and the dossier
(section 6) says what it needs. A message names the processors that it is for. A gateway passes it
on towards those; on its other interfaces it sends the message's place alone, as a bound, so that
nobody there waits for what does not come, and nobody takes it for lost.

Where there is one way between any two rings, on which side of a gateway a processor is never
changes, however often rings part and merge. So what a gateway knows of sides cannot be out of date;
it can only lack a processor, and then it withholds nothing (F4). On a cycle this does not hold: a
message that was withheld on one way may be lost on the other, which breaks. There everything is
passed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from ringcast.core.ids import Level, NodeId
from ringcast.protocols.totem_multi.messages import WITHHELD, Bound, Forwarded
from ringcast.protocols.totem_multi.network import RingNetwork
from ringcast.protocols.totem_multi.places import key_of
from ringcast.protocols.totem_multi.state import OrderState
from ringcast.protocols.totem_single.messages import RingId


class Withholding:
    """What one gateway keeps from each of its rings."""

    def __init__(self, acyclic: bool) -> None:
        self._acyclic = acyclic
        self._sides: dict[NodeId, frozenset[NodeId]] = {}
        """By interface: the processors that it leads to. Empty: to be found anew."""
        self._owed: dict[NodeId, dict[RingId, Forwarded]] = {}
        """F3, by interface and stream: the latest place that is to be told there."""

    def topology_changed(self) -> None:
        """F4: look again who is on which side."""
        self._sides = {}

    def part(self, pid: NodeId, said: Forwarded, order: OrderState) -> Forwarded | None:
        """What of it goes out at an interface; None: nothing now, its place is owed there."""
        message, stream = said.message, said.via or said.ring
        if isinstance(message, Bound):
            withheld = message == WITHHELD
        elif not message.to or not self._acyclic or self._wanted(pid, message.to, order):
            withheld = False
        elif message.level is Level.SAFE:
            return replace(said, message=replace(message, bodies=()))  # F5
        else:
            withheld, said = True, replace(said, message=WITHHELD)
        owed = self._owed.get(pid, {})
        if stream in owed and key_of(owed[stream]) < key_of(said):
            del owed[stream]
        if not withheld:
            return said
        self._owed.setdefault(pid, {}).setdefault(stream, said)
        return None

    def _wanted(self, pid: NodeId, to: Iterable[NodeId], order: OrderState) -> bool:
        """F2: whether somebody beyond the interface is to get it; F4: or may be there unknown."""
        if not self._sides:
            self._sides = sides(order.network)
        beyond = self._sides[pid]
        return any(node in beyond for node in to) or not known(self._sides, order.me, to)

    def owing(self) -> list[NodeId]:
        """Interfaces at which places are to be told."""
        return [pid for pid, owed in self._owed.items() if owed]

    def take(self, pid: NodeId) -> list[Forwarded]:
        """F3: what is owed at an interface; it is told now."""
        return list(self._owed.pop(pid, {}).values())


def known(sides: Mapping[NodeId, frozenset[NodeId]], me: NodeId, to: Iterable[NodeId]) -> bool:
    """F4: whether it is known of all these processors where they are."""
    return all(node == me or any(node in side for side in sides.values()) for node in to)


def sides(network: RingNetwork) -> dict[NodeId, frozenset[NodeId]]:
    """By interface: the processors beyond it, in the delivered graph."""
    return {
        pid: frozenset(
            member.node
            for each in network.beyond(ring)
            for member in network.members.get(each, ())
            if member.node != network.me
        )
        for pid, ring in network.own.items()
    }
