"""Who passes a message on where there are several ways: one tree over all rings (T1 to T5).

The source floods: each gateway passes everything on, and copies are dropped where they arrive. It
names a spanning tree as future work. Here the tree says who passes a message on, and the others
keep it until they hear it on the ring it would go to. If they do not, because a gateway of the tree
is gone, they pass it on themselves. So the tree decides how many copies travel and nothing else: a
gateway that keeps a message is one that is slow to send it, which the order bears anyway.
"""

from __future__ import annotations

from collections.abc import Mapping

from ringcast.core.ids import NodeId
from ringcast.protocols.totem_multi.messages import Forwarded, Key
from ringcast.protocols.totem_multi.places import key_of
from ringcast.protocols.totem_multi.state import OrderState
from ringcast.protocols.totem_single.messages import RingId


class TreeRouting:
    """What one gateway keeps, since another one passes it on."""

    def __init__(self, me: NodeId, acyclic: bool) -> None:
        self._me, self._acyclic = me, acyclic
        self._mine: frozenset[NodeId] | None = None
        """My interfaces that the tree uses; None: to be found anew."""
        self._kept: dict[NodeId, dict[Key, tuple[int, Forwarded]]] = {}
        """By interface: since which turn it is kept, in the order in which it came."""
        self._turn = 0
        self._passing: dict[tuple[NodeId, RingId], Key] = {}
        """By interface and stream, the last that was heard there in this turn."""

    def topology_changed(self) -> None:
        """T1: there is another tree."""
        self._mine = None

    def keeps(self, pid: NodeId, came: NodeId | None, said: Forwarded, order: OrderState) -> bool:
        """T2: whether what came at one interface need not go out at another, for now."""
        if self._acyclic or order.pending or order.late or order.unplaced:
            return False  # T3
        mine = self._ends(order)
        if came in mine and pid in mine:
            return False
        self._kept.setdefault(pid, {})[key_of(said)] = (self._turn, said)
        return True

    def _ends(self, order: OrderState) -> frozenset[NodeId]:
        """T1: my interfaces that the tree uses."""
        if self._mine is None:
            self._mine = tree(order.network.gateways).get(self._me, frozenset())
        return self._mine

    def heard(
        self, pid: NodeId, stream: RingId, key: Key, order: OrderState
    ) -> list[tuple[NodeId, Forwarded]]:
        """T2, G-35: another gateway has passed it on, or it is of that ring itself. At an interface
        of the tree, it is for me to pass it on at those others of the tree for which I keep it: it
        came another way first. What precedes it there goes with it."""
        if not self.keeping:
            return []
        self._kept.get(pid, {}).pop(key, None)
        self._passing[pid, stream] = key
        ends = self._ends(order)
        due: list[tuple[NodeId, Forwarded]] = []
        for q in sorted(ends if pid in ends else ()):
            _, said = self._kept.get(q, {}).pop(key, (0, None))
            if said is not None:
                due += [(q, each) for each in (*self.kept_before(q, said), said)]
        return due

    def kept_before(self, pid: NodeId, said: Forwarded) -> list[Forwarded]:
        """T2: what is kept at an interface of the stream of something that goes out there now, and
        precedes it: whoever got the later one first would take the earlier one for a copy."""
        kept = self._kept.get(pid)
        if not kept:
            return []
        stream, key = said.via or said.ring, key_of(said)
        due = [k for k, (_, each) in kept.items() if k < key and (each.via or each.ring) == stream]
        return [kept.pop(k)[1] for k in due]

    def waits(self, key: Key) -> bool:
        """T5: whether a message is kept for the ring where my own messages originate. They must not
        overtake it, since it is their cause once it is delivered (P-12)."""
        return key in self._kept.get(self._me, ())

    @property
    def keeping(self) -> bool:
        """Whether something is kept."""
        return any(self._kept.values())

    def release(self, pid: NodeId) -> list[Forwarded]:
        """T3: all that is kept at an interface, which goes out now."""
        return [said for _, said in self._kept.pop(pid, {}).values()]

    def overdue(self) -> list[tuple[NodeId, Forwarded]]:
        """T4: what was kept for a whole turn, which goes out now; another turn begins. What comes
        before it in its stream may still be on its way through the queue of a slow gateway."""
        found = [
            (pid, said)
            for pid, kept in self._kept.items()
            for key, (since, said) in kept.items()
            if since < self._turn and not self._follows(pid, said, key)
        ]
        self._passing.clear()
        for pid, said in found:
            del self._kept[pid][key_of(said)]
        self._turn += 1
        return found

    def _follows(self, pid: NodeId, said: Forwarded, key: Key) -> bool:
        """Whether its stream was heard at an interface in this turn, and not beyond it."""
        last = self._passing.get((pid, said.via or said.ring))
        return last is not None and last < key


def tree(
    gateways: Mapping[NodeId, Mapping[NodeId, RingId]],
) -> dict[NodeId, frozenset[NodeId]]:
    """T1: by gateway, its interfaces that the tree uses: breadth first from the lowest ring, by the
    lowest gateways first, the same for all that have delivered the same graph."""
    used: dict[NodeId, set[NodeId]] = {}
    rings = sorted({ring for ends in gateways.values() for ring in ends.values()})
    reached: set[RingId] = set()
    for root in rings:  # more than one only if the graph is in parts
        if root in reached:
            continue
        reached.add(root)
        layer = [root]
        while layer:
            beyond: list[RingId] = []
            for ring in layer:
                for node, ends in sorted(gateways.items()):
                    here = [pid for pid, at in ends.items() if at == ring]
                    for pid, at in sorted(ends.items()):
                        if here and at not in reached:
                            reached.add(at)
                            beyond.append(at)
                            used.setdefault(node, set()).update((min(here), pid))
            layer = sorted(beyond)
    return {node: frozenset(pids) for node, pids in used.items()}
