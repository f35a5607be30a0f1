"""A change of a ring is next in the order (dossier 4.5, steps 7 and 8).

Gateways of the new ring tell each other what they can reach; then all that stay connected derive
the same topology, near the ring from what was told on it, and far from it from what a gateway of
it passes on.
"""

from __future__ import annotations

from abc import abstractmethod

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.protocols.totem_multi.messages import (
    Change,
    Key,
    Member,
    NetworkGraph,
    NetworkTopology,
    Rank,
    RingEntry,
    TopologyChange,
)
from ringcast.protocols.totem_multi.network import leaves
from ringcast.protocols.totem_multi.state import (
    MOST_FORETOLD,
    ChangeId,
    OrderState,
    Streamed,
    StreamEntry,
    remember,
)
from ringcast.protocols.totem_single.messages import RingId


class RingChanges(OrderState):
    """Steps 7 and 8."""

    @abstractmethod
    def accept(self, env: Env, came: NodeId | None, said: Streamed, again: bool = False) -> None:
        """Step 2."""

    def awaited(self, change: Change) -> list[NodeId]:
        """Step 7, MR-26, MR-33: whose word is missing on what the change leads to."""
        _, gateways = self.live()
        listed = [member for member in change.members if member.gateway]
        id = (change.ring, change.conf)
        if change.transitional:
            came = [m.node for m in listed if not self._passed_by(m.pid, change.ring)]
            asked = [*(node for node in came if node in gateways), *(id in self.mine) * [self.me]]
            return [] if self._followed(change.ring) else asked
        strangers = self.network.strangers(listed, gateways)
        if (own := self._own_change(change)) is not None:
            return self._unheard(own, strangers)
        if not strangers or id in self.told:
            return []
        ends = {
            (pid, ring): node
            for node, each in self.network.gateways.items()
            for pid, ring in each.items()
        }
        late = [h for h in self.late.values() if h.ring == change.conf]
        before = {change.conf, *(h.conf for h in late)}
        tellers = [
            ends.get((m.pid, ring))
            for m in listed
            for ring in before
            if not (self._passed_by(m.pid, ring) or self._passed_by(m.pid, change.conf))
        ]
        known = {pid for pid, _ in ends}
        # G-25 ext: an interface that never came to the ring with which it was lost is at ``conf``.
        tellers += [m.node for h in late for m in listed if h.lists(m.pid) and m.pid not in known]
        audible = self.network.audible(change, *self._moving())
        return [node for node in tellers if node is not None and node in audible]

    def foretell(self, env: Env, came: NodeId, said: TopologyChange) -> None:
        """G-18 ext: one that is older than the change that joins its gateway. It counts for a
        change that is pending, or will be; nobody says it again."""
        if said.change in self.pending:
            self.accept(env, came, said)
        elif said.key > self.last and len(self.foretold) < MOST_FORETOLD:
            self.foretold.setdefault(said.change, (came, said))
        else:
            env.drop("multi MR-31", "older than the change that joins its gateway")

    def _followed(self, ring: RingId) -> bool:
        """Whether somebody has told how a ring went on."""
        return any(conf == ring for _, conf in self.pending)

    def _passed_by(self, pid: NodeId, ring: RingId) -> Change | None:
        """G-25 ext: the change by which an interface, by its own word, went from an earlier ring
        to a later one, if it never came to a ring where others say that it is. It has nothing to
        tell of that ring."""
        for h in (*self.late.values(), *self.pending.values()):
            if h.lists(pid) and h.conf != ring and leaves(ring, h):
                return h
        return None

    def may_tell(self, ring: RingId) -> bool:
        """G-16, MR-27: whether a gateway that can be reached may still tell how a ring went on that
        a late change leads to. One that came back since then is elsewhere, and will not."""
        _, gateways = self.live()
        ends = (*self.network.gateways.values(), self.network.own)
        at = {pid: here for each in ends for pid, here in each.items()}
        return any(
            m.node in gateways
            and not self._passed_by(m.pid, ring)
            and ((here := at.get(m.pid, ring)) == ring or leaves(here, h))
            for h in self.late.values()
            if h.ring == ring
            for m in h.members
            if m.gateway
        )

    def _where(self, pid: NodeId, at: RingId | None, ring: RingId) -> RingId:
        """Where an interface is that others have at ``ring``: not yet there if a pending change
        will move it, which is no way before its time (G-14), and not at all if it never came there
        (G-25 ext)."""
        if (passed := self._passed_by(pid, ring)) is not None:
            before = passed.conf if at is None else at
            return before if before in self.network.members else ring
        coming = None if at is None else self.pending.get((ring, at))
        return ring if at is None or coming is None or not coming.lists(pid) else at

    def _own_change(self, change: Change) -> Change | None:
        """The pending change of a ring of mine to the same new ring, if there is one.

        Rings that merge have a change each, at places that follow one another. Whoever is on the
        new ring takes part in its one exchange at the first of them: gateways that are joined on
        other sides as well would wait for each other in turn if each began at its own.
        """
        for id in sorted(self.mine):
            if id[0] == change.ring and id in self.pending:
                return self.pending[id]
        return None

    def _all_came_along(self, change: Change) -> bool:
        """Then nobody says anything; one may be cut off here (G-20)."""
        pids = {member.pid for member in change.members}
        return pids <= {m.pid for m in self.network.members[change.conf]}

    def _say_topology(self, change: Change) -> None:
        """MR-24: tell the new ring once what I can reach, if the change leads me there."""
        own = self._own_change(change)
        if own is None or own.transitional or change.transitional or len(self.pids) == 1:
            return
        if own.ring not in self.exchanged and not self._all_came_along(own):
            self.exchanged.add(own.ring)
            said = NetworkTopology(own.timestamp, own.ring, self.me, self._graph(own.ring))
            self.out.exchange(self._interface(own), said)

    def _interface(self, change: Change) -> NodeId:
        """Mine that a change concerns."""
        (pid,) = {member.pid for member in change.members} & self.pids
        return pid

    def _unheard(self, change: Change, strangers: list[Member]) -> list[NodeId]:
        """MR-25: wait for strangers that were here all the time."""
        if self._all_came_along(change):
            return []
        here = self.neighbours[self._interface(change)]
        heard = self.heard_from.get(change.ring, {})
        asked = [m for m in strangers if m.pid in here and here[m.pid] <= change.key]
        return [m.node for m in asked if m.pid not in heard]

    def may_admit(self, pid: NodeId, sender: NodeId, key: Key) -> ChangeId | None:
        """MR-32 ext: the next change of the ring at an interface that may bring what lies beyond a
        gateway whose word on an earlier one never came: another one there may tell of it. Who else
        is on the ring relies on that gateway from then on, and passes nothing on in its place."""
        later = [
            c
            for c in self.pending.values()
            if (c.ring, c.conf) in self.mine
            and not c.transitional
            and c.lists(pid)
            and c.lists(sender)
        ]
        first = min(later, key=lambda change: change.key, default=None)
        return (first.ring, first.conf) if first is not None and first.key < key else None

    def hear_topology(self, env: Env, came: NodeId, sender: NodeId, said: NetworkTopology) -> None:
        """G-19: an NT counts from a gateway that was here ever since that change."""
        begun = self.neighbours[came].get(sender)
        current = [c for c in self.pending.values() if c.ring == said.ring]
        if begun is None or not any(begun <= change.key for change in current):
            env.drop("multi G-19", "a Network Topology that nobody waits for")
            return
        self.heard_from.setdefault(said.ring, {})[sender] = said

    def _graph(self, ring: RingId | None = None) -> NetworkGraph:
        """G-19: the delivered graph, with all interfaces on ``ring`` that are known to go there."""
        gateways = tuple(
            (node, tuple((p, self._going(p, at, ring)) for p, at in sorted(ends.items())))
            for node, ends in sorted(self.network.gateways.items())
        )
        rings = tuple(RingEntry(ring, self.network.members[ring]) for ring in sorted(self.topology))
        late = tuple(self.late[id] for id in sorted(self.late))
        return NetworkGraph(rings, gateways, late, tuple(sorted(self.network.cut)))

    def _going(self, pid: NodeId, at: RingId, ring: RingId | None) -> RingId:
        """G-19: where an interface that is said to be at ``at`` is when ``ring`` is there. A late
        change takes it along from where it never came, too, as it will in step 8 (G-25 ext)."""
        for change in self.pending.values():
            if change.ring == ring and change.lists(pid) and not self._passed_by(pid, change.conf):
                late = [h for h in self.late.values() if h.ring == change.conf]
                came = any(at == h.conf or (h.lists(pid) and leaves(at, h)) for h in late)
                if came or at == change.conf:
                    return ring
        return at

    def _apply(self, env: Env, change: Change) -> None:
        """Step 8: the graph, and with it the topology, is what the change makes of it."""
        id, key = (change.ring, change.conf), change.key
        mine = id in self.mine
        near = self._own_change(change) is not None
        begun = {ring for ring, _ in (*self.pending, *self.late)}
        left = {change.conf}
        for before in [h for h in self.late.values() if h.ring == change.conf]:
            left.add(before.conf)
            self._move(before, self.late)
        self._move(change, self.pending)
        told: list[NetworkTopology | TopologyChange] = []
        if near:
            heard = self.heard_from.get(change.ring, {})
            told = [heard[pid] for pid in sorted(heard)]
        elif id in self.told:
            told = [self.told[id]]
        old = set(self.topology)
        for word in told:
            self._learn(word.graph)
        self.topology = self.network.reachable()
        self.last = key
        since = (change.timestamp, change.ring)
        for ring in sorted(self.topology):
            unheard = Key(change.timestamp, change.ring, Rank.UNHEARD, ring)
            if ring not in self.entries:
                self.entries[ring] = StreamEntry(key, unheard, since=since)
            elif ring not in old:
                entry = self.entries[ring]
                entry.late = False
                if ring not in begun:
                    entry.since = since
                if entry.last <= key or entry.last.rank != Rank.REGULAR:
                    entry.last, entry.placeholder = max(entry.last, key), unheard
            elif ring in left:  # by some; the others' part is behind the place of the change
                entry = self.entries[ring]
                entry.placeholder = max(entry.placeholder, unheard)
        self._overtaken()
        self._prune(old if near and not mine else set())
        if mine:
            self.out.release(env, change)  # A8: before the TC
            graph = self._graph()
            said = TopologyChange(change.timestamp, change.ring, change.conf, graph)
            self.told[id] = said
            remember(self._passed_on, id)
            self.out.forward(said, self._interface(change))
        waiting, self.unplaced, self._unplaced_bytes = self.unplaced, [], 0
        for came, each in waiting:  # A7
            self.accept(env, came, each, again=True)
        self._changed(env, key, change.transitional)

    def _overtaken(self) -> None:
        """G-25 ext: a ring that was kept for gateways that never came there holds nobody up, so its
        own place may be behind us. If it is lost after all, it goes behind what was delivered."""
        for ring in self.topology:
            entry = self.entries[ring]
            if entry.placeholder < self.last:
                behind = Key(self.last.timestamp, self.last.ring, Rank.UNHEARD, ring)
                entry.placeholder = max(entry.placeholder, behind)

    def _move(self, change: Change, out_of: dict[ChangeId, Change]) -> None:
        id = (change.ring, change.conf)
        stay: set[NodeId] = set()
        if change.transitional:  # G-25 ext: who did not come
            stay = {m.pid for m in change.members if self._passed_by(m.pid, change.ring)}
        self.network.move(change, id in self.mine, stay)
        self.done[id] = out_of.pop(id)
        self._stale()

    def _whole_again(self) -> None:
        """A5 ext: a shrinking lasts until the next change. Those who went are gone from their ring
        by then, or are asked again. What others know of a shrinking at that place depends on what
        they had heard when it happened, and the next topology must not."""
        self.shrunk.clear()
        self.lacking.clear()

    def _learn(self, graph: NetworkGraph) -> None:
        """G-19, A11: what a gateway of the ring, or beyond it, can reach."""
        self.network.merge(graph, self._where)
        for change in graph.late:
            id = (change.ring, change.conf)
            known = id in self.late or id in self.done or id in self.pending
            if not known and self.network.moves(change):  # else it was applied, and is forgotten
                self.late[id] = change
                self._enter(change)
                self.entries[change.ring].late = True

    def _prune(self, away: set[RingId]) -> None:
        """Forget what does not matter any more, so that nothing grows.

        When two rings merge, the change of the other ring may come before mine. The gateways that
        it lists are on the new ring then, and I am not, so the rings beyond them are ``away`` until
        my own change comes. How far their streams had come is kept: nobody tells it again."""
        topology = self.topology
        self.network.prune(topology)
        for id, h in list(self.late.items()):
            if not (id in self.mine or self._followed(h.ring) or self.network.moves(h)):
                self.forget_late(id)
        useless = [r for r, e in self.entries.items() if not e.items and not self.knows(r)]
        for ring in useless:
            if ring not in away:
                del self.entries[ring]
        kept: set[RingId] = set(topology)
        while True:  # A3: changes by which members of the topology's rings went on
            more = {c.ring for c in self.done.values() if c.conf in kept} - kept
            if not more:
                break
            kept |= more
        self.done = {id: c for id, c in self.done.items() if c.conf in kept}
        changing = {ring for id in (*self.pending, *self.late, *self.done) for ring in id}
        kept |= changing | self.entries.keys()
        members = self.network.members
        self.network.members = {ring: m for ring, m in members.items() if ring in kept}
        self._whole_again()
        self.told = {id: t for id, t in self.told.items() if id in self.done or t.key > self.last}
        self.foretold = {id: t for id, t in self.foretold.items() if t[1].key > self.last}
        self.mine &= {*self.pending, *self.late, *self.done}
        self.exchanged &= changing
        self.heard_from = {r: h for r, h in self.heard_from.items() if r in changing}
        self.acknowledged.forget(self.last, kept)

    def forget_late(self, id: ChangeId) -> RingId:
        """A late change moves nobody any more; the ring that it led away from."""
        self._stale()
        if (entry := self.entries.get(id[0])) is not None:
            entry.late = False
        return self.late.pop(id).conf

    def _enter(self, said: Change) -> None:
        """The new ring has an entry, and members; the old one's receipts are complete."""
        key = said.key
        if said.ring not in self.entries:
            self.entries[said.ring] = StreamEntry(key, Key(*key[:3], said.ring))
        self.network.members.setdefault(said.ring, said.members)
        self.acknowledged.hear_closed(said.conf, said.receipts)
        self._stale()
