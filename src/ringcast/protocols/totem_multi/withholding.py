"""What a gateway does not pass on: messages to processors that are all elsewhere (F1 to F9).

The seed names it as future work ("process groups, with filtering at gateways") and the dossier
(section 6) says what it needs. A message names the processors that it is for. A gateway passes it
on towards those; on its other interfaces it sends the message's place alone, as a bound, so that
nobody there waits for what does not come, and nobody takes it for lost.

Where there is one way between any two rings, on which side of a gateway a processor is never
changes, however often rings part and merge. So what a gateway knows of sides cannot be out of date;
it can only lack a processor, and then it withholds nothing (F4). On a cycle this does not hold: a
message that was withheld on one way may be lost on the other, which breaks. There everything is
passed on.

Of a message that is for a group, who is in it at its place in the order is known only when the
order has come to that place; the gateway cannot wait for that, or order beyond it would wait too.
So where nobody is in the group by what it has delivered, it tells the place and the group, and
looks again when it comes to that place (F7). If somebody beyond has joined by then, it sends the
message after all: that one waits for it there, nobody else does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from ringcast.core.ids import Level, NodeId
from ringcast.protocols.totem_multi.interests import Interests
from ringcast.protocols.totem_multi.messages import WITHHELD, Data, Forwarded, Key
from ringcast.protocols.totem_multi.network import RingNetwork
from ringcast.protocols.totem_multi.places import key_of
from ringcast.protocols.totem_multi.state import OrderState
from ringcast.protocols.totem_single.messages import RingId


class Withholding:
    """What one gateway keeps from each of its rings."""

    def __init__(self, acyclic: bool, interests: Interests) -> None:
        self.acyclic = acyclic
        self._interests = interests
        self._sides: dict[NodeId, frozenset[NodeId]] = {}
        """By interface: the processors that it leads to. Empty: to be found anew."""
        self._owed: dict[NodeId, dict[RingId, Forwarded]] = {}
        """F3, by interface and stream: the latest place that is to be told there."""
        self._hollow: dict[NodeId, list[Forwarded]] = {}
        """F8, by interface: places of messages of groups that are to be told there."""
        self._undecided: dict[Key, list[NodeId]] = {}
        """F7: interfaces at which a message was withheld whose place is not reached."""
        self._due: dict[Key, tuple[NodeId, list[NodeId]]] = {}
        """F7: what another gateway withheld, and at which interfaces it is waited for."""

    def topology_changed(self, order: OrderState) -> None:
        """F4: look again who is on which side; what is behind us is decided."""
        self._sides = {}
        self._undecided = {key: pids for key, pids in self._undecided.items() if key > order.last}
        known = order.network.gateways
        self._due = {key: due for key, due in self._due.items() if due[0] in known}

    def part(self, pid: NodeId, said: Forwarded, order: OrderState) -> Forwarded | None:
        """What of it goes out at an interface; None: nothing now, its place is owed there."""
        message, stream = said.message, said.via or said.ring
        if isinstance(message, Data) and message.group:
            return self._part_of_group(pid, said, message, order)
        if not isinstance(message, Data):
            withheld = message == WITHHELD
        elif not message.to or not self.acyclic or self._wanted(pid, message.to, order):
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

    def _part_of_group(
        self, pid: NodeId, said: Forwarded, message: Data, order: OrderState
    ) -> Forwarded | None:
        """F7: all of it if somebody beyond is in the group, or if it is not known whether it has a
        place here; else its place, and its group."""
        if not message.hollow:
            unsure = not self.acyclic or not order.knows(said.via or said.ring)
            if unsure or self.wanted_beyond(pid, message.group, order) is not None:
                return said
            message = replace(message, sender=order.me, bodies=())
            said = replace(said, message=message)
        self._undecided.setdefault(key_of(said), []).append(pid)
        if message.level is Level.SAFE:
            return said  # F5
        self._hollow.setdefault(pid, []).append(said)
        return None

    def wanted_beyond(self, pid: NodeId, group: int, order: OrderState) -> NodeId | None:
        """F7: somebody beyond an interface who is in a group, or may be, at this place."""
        if not self._sides:
            self._sides = sides(order.network)
        return self._interests.wanted_beyond(pid, self._sides[pid], group)

    def reached(self, key: Key, message: Data, order: OrderState) -> list[NodeId]:
        """F7: the order has come to a message of a group, so it is known who is in it: the
        interfaces at which it has to be sent after all."""
        pids = [
            pid
            for pid in self._undecided.pop(key, ())
            if self.wanted_beyond(pid, message.group, order) is not None
        ]
        if message.hollow and pids:
            self._due[key] = (message.sender, pids)
            return []
        return pids

    def filled(self, key: Key) -> list[NodeId]:
        """F7: it came after all; the interfaces at which it is waited for."""
        return self._due.pop(key, (0, []))[1]

    def _wanted(self, pid: NodeId, to: Iterable[NodeId], order: OrderState) -> bool:
        """F2: whether somebody beyond the interface is to get it; F4: or may be there unknown."""
        if not self._sides:
            self._sides = sides(order.network)
        beyond = self._sides[pid]
        return any(node in beyond for node in to) or not known(self._sides, order.me, to)

    def owing(self) -> list[NodeId]:
        """Interfaces at which places are to be told."""
        return sorted(pid for pid in {*self._owed, *self._hollow} if self.owes(pid))

    def owes(self, pid: NodeId) -> bool:
        """Whether places are to be told at an interface."""
        return bool(self._owed.get(pid) or self._hollow.get(pid))

    def hollow(self, pid: NodeId) -> bool:
        """F8: whether places of messages of groups are."""
        return bool(self._hollow.get(pid))

    def take(self, pid: NodeId) -> list[Forwarded]:
        """F3: what is owed at an interface; it is told now."""
        return [*self._owed.pop(pid, {}).values(), *self._hollow.pop(pid, ())]


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


def shares(network: RingNetwork) -> dict[NodeId, int]:
    """MR-45: by interface, what a gateway may send there, as a multiple of what a processor may: as
    much as all together for which it passes messages on to that ring, and twice as much at least.
    So every sender has the same share of every ring; the ring's window bounds the sum."""
    beyond, found = sides(network), {}
    for pid, ring in network.own.items():
        others = {node for other, side in beyond.items() if other != pid for node in side}
        here = {member.node for member in network.members.get(ring, ())}
        found[pid] = max(2, len(others - here))
    return found
