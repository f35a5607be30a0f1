"""The network of rings as one processor has delivered it, and what is left of it (4.5, steps 3-4).

``gateways`` is the delivered graph G: for each gateway the ring at each interface. Changes that
were received and not delivered yet *move* interfaces from ring to ring (G-12, G-13). What can be
reached through the moved graph is live; the rest is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ringcast.core.ids import NodeId
from ringcast.protocols.totem_multi.messages import Change, Member, NetworkGraph
from ringcast.protocols.totem_single.messages import RingId

Path = tuple[RingId, ...]

Where = Callable[[NodeId, RingId | None, RingId], RingId]
"""At which ring an interface is: where it is known to be, if it is, and where somebody has it."""


class RingNetwork:
    """G, and the members of every ring that counts."""

    def __init__(self, me: NodeId, own: Mapping[NodeId, RingId]) -> None:
        self.me = me
        self.own = dict(own)
        """The ring at each of my interfaces, as delivered."""
        self.gateways: dict[NodeId, dict[NodeId, RingId]] = {}
        if len(own) > 1:
            self.gateways[me] = dict(own)
        self.members: dict[RingId, tuple[Member, ...]] = {}
        self.cut: set[NodeId] = set()
        """Gateways that are known, but not any more what lies beyond them."""

    def strangers(self, members: Iterable[Member], live: Collection[NodeId]) -> list[Member]:
        """G-20: the gateways among these of which somebody has to tell where they lead. Ext: also
        one that is known, and cannot be reached before the change that joins it: how the rings
        beyond it went on since the way there was lost, nobody has told."""
        known = (self.gateways.keys() - self.cut) & set(live)
        return [member for member in members if member.gateway and member.node not in known]

    def reachable(self) -> set[RingId]:
        """Step 8: the rings that lead to mine in the delivered graph."""
        return joined(self.own.values(), self.gateways.values())

    def beyond(self, ring: RingId) -> set[RingId]:
        """F2: the rings that lead to one of mine without passing through me."""
        others = [ends for node, ends in self.gateways.items() if node != self.me]
        return joined((ring,), others)

    def move(self, change: Change, mine: bool, stay: Collection[NodeId] = ()) -> None:
        """MR-20, G-13: interfaces at ``conf`` that the change lists go to its ring, except those
        that ``stay``; mine by my own word alone (A10, G-25)."""
        pids = {member.pid for member in change.members} - set(stay)
        for node, ends in self.gateways.items():
            if node != self.me:
                for pid, ring in ends.items():
                    if pid in pids and leaves(ring, change):
                        ends[pid] = change.ring
        if mine:
            for pid, ring in self.own.items():
                if ring == change.conf and pid in pids:
                    self.own[pid] = change.ring
            if self.me in self.gateways:
                self.gateways[self.me] = dict(self.own)

    def moves(self, change: Change, of: RingId | None = None) -> bool:
        """Whether the change takes along an interface from where that is said to be, or from one
        ring. G-25: this may be a ring where it never came; the one it left may be behind us by now.
        """
        return any(
            leaves(ring, change) and change.lists(pid) and of in (None, ring)
            for node, ends in self.gateways.items()
            if node != self.me
            for pid, ring in ends.items()
        )

    def merge(self, graph: NetworkGraph, where: Where) -> None:
        """G-19: gateways that somebody else knows; of two words on an interface the later ring,
        unless ``where`` knows better. G-20 ext: of one that has lost an interface there, and here
        as well or is new, the rest is not known here either.
        """
        for entry in graph.rings:
            self.members.setdefault(entry.ring, entry.members)
        for node, ends in graph.gateways:
            if node == self.me:
                continue
            lacks = node not in self.gateways or node in self.cut
            known = self.gateways.setdefault(node, {})
            for pid, ring in ends:
                if ring not in self.members:
                    continue  # nobody has told who is there
                old = known.get(pid)
                if old is None:
                    self.cut.discard(node)
                if old is None or old < ring:
                    known[pid] = where(pid, old, ring)
            if lacks and node in graph.cut:
                self.cut.add(node)

    def cut_off(self, ring: RingId) -> None:
        """Step 6: ``ring`` is deleted, so its edges go."""
        self.lose({pid for ends in self.gateways.values() for pid in ends}, ring)

    def lose(self, pids: Collection[NodeId], ring: RingId) -> None:
        """Others' interfaces at ``ring`` that are among these go, and nobody knows where to."""
        for node, ends in self.gateways.items():
            for pid in [pid for pid, at in ends.items() if at == ring and pid in pids]:
                del ends[pid]
                if node != self.me:
                    self.cut.add(node)

    def prune(self, topology: set[RingId]) -> None:
        """What does not lead to the topology is of no use any more."""
        kept = {
            node: {pid: ring for pid, ring in ends.items() if ring in topology}
            for node, ends in self.gateways.items()
        }
        self.gateways = {node: ends for node, ends in kept.items() if ends}
        self.cut &= self.gateways.keys()

    def live(
        self, changes: Sequence[Change], mine: Sequence[Change]
    ) -> tuple[set[RingId], set[NodeId]]:
        """Steps 3 and 4: the rings that still are as delivered and can be reached, and the
        gateways that can.

        ``changes`` are those that count, in key order, ``mine`` those of my own rings. Two
        interfaces meet only if they were on one ring in the delivered graph and moved together
        since (G-14), so a vertex is the whole path of rings (A10).
        """
        return self._met(self.gateways, changes, mine)

    def audible(
        self, told: Change, changes: Sequence[Change], mine: Sequence[Change]
    ) -> set[NodeId]:
        """MR-26 ext: the gateways from which the Topology Change of ``told`` can come here. Those
        that it takes along say it everywhere but on the new ring (step 8)."""
        along = {m.pid for m in self.members.get(told.conf, ()) if told.lists(m.pid)}
        others = {
            node: {
                pid: ring
                for pid, ring in ends.items()
                if pid not in along or told.ring not in path(pid, ring, changes)
            }
            for node, ends in self.gateways.items()
        }
        return self._met(others, changes, mine)[1]

    def _met(
        self,
        gateways: Mapping[NodeId, Mapping[NodeId, RingId]],
        changes: Sequence[Change],
        mine: Sequence[Change],
    ) -> tuple[set[RingId], set[NodeId]]:
        """The rings and gateways that can be reached through these."""
        start = {path(pid, ring, mine) for pid, ring in self.own.items()}
        ends = {
            node: {path(pid, ring, changes) for pid, ring in each.items()}
            for node, each in gateways.items()
            if node != self.me
        }
        reached, found = set(start), {self.me}
        waiting = sorted(ends)
        while True:
            met = [node for node in waiting if not reached.isdisjoint(ends[node])]
            if not met:
                break
            for node in met:
                reached |= ends[node]
                found.add(node)
            waiting = [node for node in waiting if node not in found]
        return {way[0] for way in reached if len(way) == 1}, found


def joined(rings: Iterable[RingId], gateways: Iterable[Mapping[NodeId, RingId]]) -> set[RingId]:
    """All rings that gateways join to these."""
    found, left = set(rings), list(gateways)
    while met := [ends for ends in left if not found.isdisjoint(ends.values())]:
        for ends in met:
            found.update(ends.values())
        left = [ends for ends in left if ends not in met]
    return found


def path(pid: NodeId, ring: RingId, changes: Iterable[Change]) -> Path:
    """The rings that an interface was on, from the delivered one to the last heard of."""
    way = [ring]
    for change in changes:
        if leaves(way[-1], change) and change.lists(pid):
            way.append(change.ring)
    return tuple(way)


def leaves(ring: RingId, change: Change) -> bool:
    """Whether the change takes along an interface that it lists, and that is said to be at
    ``ring``.

    G-25: others may have installed a ring that names an interface which never came. Where that
    went on from the ring before, to a later one, is its own word, and holds.
    """
    return ring == change.conf or (change.transitional and change.conf < ring < change.ring)
