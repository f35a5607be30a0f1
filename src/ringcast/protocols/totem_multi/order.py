"""The resolved core of the multiple-ring protocol (dossier 4.5, with 4.7 in place of vectors).

One object that knows neither rings' tokens nor frames: streams of rings go in, in the order in
which the rings hand them up; messages and topologies come out, in the order of their keys. Each
known ring has an entry: what was received of it and is not delivered, and a placeholder, below
which nothing more will come from it. The least of all decides what happens next, or that nothing
can happen yet.
"""

from __future__ import annotations

from bisect import insort

from msgspec.structs import replace

from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId
from ringcast.protocols.totem_multi.changes import RingChanges
from ringcast.protocols.totem_multi.messages import (
    Bound,
    Change,
    Data,
    Denied,
    Forwarded,
    Key,
    Rank,
    TopologyChange,
    Wants,
)
from ringcast.protocols.totem_multi.places import joined_by
from ringcast.protocols.totem_multi.receipts import Survey
from ringcast.protocols.totem_multi.state import (
    MOST_REMEMBERED,
    Streamed,
    StreamEntry,
    check_waiting,
    remember,
    weight,
)
from ringcast.protocols.totem_single.messages import RingId

WAIT, DELETE = "wait", "delete"


class NetworkOrder(RingChanges):
    """Steps 2 to 6."""

    def accept(self, env: Env, came: NodeId | None, said: Streamed, again: bool = False) -> None:
        """Step 2: something of a stream, handed up at interface ``came`` or made here.

        ``again``: it was forwarded when it came first.
        """
        match said:
            case Forwarded():
                self._accept_stream(env, came, said, again)
            case Change():
                self._accept_change(env, came, said, again)
            case Denied():
                self._hear_denied(came, said)
            case TopologyChange():  # MR-28
                if said.change not in self._passed_on:
                    remember(self._passed_on, said.change)
                    if said.change in self.done or said.key > self.last:
                        self.told.setdefault(said.change, said)
                    self.out.forward(said, came)  # G-18: others may need it

    def _accept_stream(self, env: Env, came: NodeId | None, said: Forwarded, again: bool) -> None:
        ring, key = said.via or said.ring, Key(said.timestamp, said.ring)
        if self._fill(ring, key, said):
            return
        if not self.knows(ring) or (self.ahead(said.since) and key > self.entries[ring].last):
            self._put_aside(env, came, said, again)
            return
        if not self.raise_bound(ring, key) and not self._is_late(key, said, again):
            if again and key <= self.last and key not in self.seen:
                self._deny(came, said)  # A7: of before its ring came
            return  # MR-12, G-18: a copy
        if not again:
            self._pass_on(ring, said, came)
        self._take_in(ring, key, said)

    def _is_late(self, key: Key, said: Forwarded, again: bool) -> bool:
        """Whether it is no copy, though a later message of its stream came before it. A7: gateways
        of one ring begin at different places of a stream. MR-12 ext: on a cycle, a message from a
        new gateway may wait for that gateway's change (MR-31) while another gateway passes on the
        messages that follow it."""
        if key <= self.last or not (again or (said.late and not self.ahead(said.since))):
            return False
        if type(said.message) is Bound:
            return self.acknowledged.is_news(*said.words)
        return key not in self.seen

    def _pass_on(self, ring: RingId, said: Forwarded, came: NodeId | None) -> None:
        """MR-12; those who are behind must know since when this stream comes this way."""
        since = self.entries[ring].since
        self.out.forward(said if said.since == since else replace(said, since=since), came)

    def _take_in(self, ring: RingId, key: Key, said: Forwarded) -> None:
        message = said.message
        if type(message) is Bound:
            self.acknowledged.hear_bound(*said.words)
        elif key not in self.seen:
            assert isinstance(message, Data | Wants)
            self.seen.add(key)
            self.denied.pop(key, None)
            items = self.entries[ring].items
            if items and key < items[-1][0]:
                insort(items, (key, message), key=lambda item: item[0])
            else:
                items.append((key, message))
            if isinstance(message, Wants) or message.level is not Level.SAFE:
                return
            if message.hollow and self.out.may_want(message.group):
                self.unheld.add(key)
            elif key not in self.everywhere:
                self.out.stored_safe(key)

    def _fill(self, ring: RingId, key: Key, said: Forwarded) -> bool:
        """F7: whether it is a message of a group of which the place came before."""
        message = said.message
        if not isinstance(message, Data) or not message.group or message.hollow:
            return False
        awaited = self.out.filled(said)
        entry = self.entries.get(ring) if key in self.seen else None
        for at, (place, item) in enumerate(entry.items if entry is not None else ()):
            if place == key and isinstance(item, Data) and item.hollow and entry is not None:
                entry.items[at] = (key, message)
                self._hold(key)
                return True
        return awaited

    def _hold(self, key: Key) -> None:
        """F9: acknowledge a safe message that was not for want of its bodies."""
        if key in self.unheld:
            self.unheld.discard(key)
            self.out.stored_safe(key)

    def accept_released(self, env: Env, came: NodeId, said: Streamed) -> None:
        """Step 8, MR-31: what waited for the change that is applied now. If another gateway has
        brought later messages of its stream meanwhile, it is no copy, here or beyond (MR-12 ext).
        A11 ext: a transitional change that is behind us counts if it takes a gateway from where it
        is said to be: we would wait there for its word. Of the others it was told where they are.
        Those beyond are to take it where we do, behind the change that is applied now.
        """
        if isinstance(said, Change) and said.transitional and said.key <= self.last:
            if self.network.moves(said):
                self.accept(env, came, joined_by(self.last, said))
            else:
                env.drop("multi A11", "a late change that moves nobody")
            return
        if isinstance(said, Forwarded):
            ring, key = said.via or said.ring, Key(said.timestamp, said.ring)
            late, entry = replace(said, late=True), self.entries.get(ring)
            overtaken = entry is not None and self.knows(ring) and key <= entry.last
            if overtaken and self._is_late(key, late, False):
                self._pass_on(ring, late, came)
                self._take_in(ring, key, said)
                return
        self.accept(env, came, said)

    def _accept_change(self, env: Env, came: NodeId | None, said: Change, again: bool) -> None:
        """MR-18: a ring has changed, mine (``came`` is None) or another."""
        change = (said.ring, said.conf)
        if change in self.pending or change in self.late or change in self.done:
            return
        ahead = self.ahead(said.since)
        if not (self.network.moves(said) or (self.knows(said.conf) and not ahead)) or (
            ahead and said.is_older_than_its_stream
        ):
            self._put_aside(env, came, said, again)
            return
        if said.key <= self.last:
            self._accept_late(env, came, said, again)
            return
        if not again:
            conf = self.entries.get(said.conf)
            since = said.since if conf is None else conf.since
            self.out.forward(replace(said, since=since), came)
        self.pending[change] = said
        self._enter(said)
        insort(self.entries[said.ring].items, (said.key, said), key=lambda item: item[0])
        if change in self.foretold:
            self.accept(env, *self.foretold.pop(change))

    def _accept_late(self, env: Env, came: NodeId | None, said: Change, again: bool) -> None:
        """G-16: keep a late transitional change, its stream and its move; A12: of any other the
        gateways that it takes along are lost, but for those that, by their own word, never came to
        the ring before it (G-25 ext)."""
        if not said.transitional:
            there = {m.pid for m in said.members if not self._passed_by(m.pid, said.conf)}
            others = there - self.pids
            before = [id for id in self.late if id[0] == said.conf]
            for conf in (said.conf, *map(self.forget_late, before)):
                self.network.lose(others, conf)
            self._stale()
            self._overtaken()
            env.drop("multi G-16", "a change that comes too late")
            return
        if not again:
            self.out.forward(said, came)
        self.late[said.ring, said.conf] = said
        self._enter(said)
        self.entries[said.ring].late = True

    def _put_aside(
        self, env: Env, came: NodeId | None, said: Forwarded | Change, again: bool
    ) -> None:
        """A7: of an unknown ring, which a pending change may bring; else not for us (G-23). A3 ext:
        the words in it are true wherever its place is, and that may lie behind a message that waits
        for them."""
        if not self.pending:
            self.refuse(env, came, said, "of a ring that is not in the topology")
        elif again or all(each != said for _, each in self.unplaced):
            self.unplaced.append((came, said))
            self._unplaced_bytes += weight(said)
            check_waiting(env, self._unplaced_bytes)
            self.acknowledged.hear_aside(*said.words)
            if not again:
                self.out.forward(said, came)

    def refuse(self, env: Env, came: NodeId | None, said: Streamed, why: str) -> None:
        """G-20, G-23: it is not for us, unless it comes another way from a ring that we know."""
        env.drop("multi G-23", why)
        if isinstance(said, Forwarded) and not self.knows(said.via or said.ring):
            self._deny(came, said)
        elif isinstance(said, Denied):
            self._hear_denied(came, said)

    def _deny(self, came: NodeId | None, said: Forwarded) -> None:
        """A4 ext: say that a safe message was refused: others on my ring may have joined the rings
        it comes from, and wait for my word. They wait for the words of those beyond me as well, so
        these have to hear of it. The message itself does not go there: it would seem that nothing
        is missing of its stream."""
        if self._say_refused(said):
            self.out.forward(Denied(said.timestamp, said.ring, said.via), came)

    def _hear_denied(self, came: NodeId | None, said: Denied) -> None:
        """A4 ext: a safe message does not come this way."""
        key = said.key
        if key in self._refused or key in self.denied or key in self.seen:
            return
        if len(self.denied) >= MOST_REMEMBERED:
            return  # no ring has so many under way; whoever waits for our word waits in vain
        self.denied[key] = said.via or said.ring
        self.out.forward(said, came)

    def _say_refused(self, said: Forwarded) -> bool:
        """Whether there was something to say, and it was not said before."""
        key, message = Key(said.timestamp, said.ring), said.message
        if not isinstance(message, Data) or message.level is not Level.SAFE or key in self._refused:
            return False
        remember(self._refused, key)
        self.out.refused_safe(key)
        return True

    def refuse_passed(self) -> None:
        """A4 ext: what waits for its ring (A7) and lies before all that may come next has no place
        here any more: no change can bring its ring in time. Who waits for my word may be the one
        whose word, or whose Topology Change, I wait for. The same holds for what a gateway has
        refused, and for that also if no change may bring its ring."""
        found = self.least()
        passed = self.last if found is None else max(self.last, found[0])
        for _, said in self.unplaced:
            if isinstance(said, Forwarded) and Key(said.timestamp, said.ring) <= passed:
                self._say_refused(said)
        for key, ring in list(self.denied.items()):
            if key <= passed or not (self.pending or self.knows(ring)):
                del self.denied[key]
                if key not in self._refused:
                    remember(self._refused, key)
                    self.out.refused_safe(key)

    def least(self) -> tuple[Key, Data | Wants | Change | str, RingId] | None:
        """Step 5: the least candidate of all entries."""
        found: tuple[Key, Data | Wants | Change | str, RingId] | None = None
        key: Key
        what: Data | Wants | Change | str
        for ring, entry in self.entries.items():
            if entry.items:
                key, what = entry.items[0]
            elif (word := self._empty(ring, entry)) is not None:
                key, what = entry.placeholder, word
            else:
                continue
            if found is None or key < found[0]:
                found = (key, what, ring)
        return found

    def _empty(self, ring: RingId, entry: StreamEntry) -> str | None:
        """Step 5, MR-22, MR-27: what a ring stands for of which nothing waits. G-25 ext: one to
        which a gateway never came is kept until the change that takes the gateway along."""
        if entry.late:
            return WAIT if self.may_tell(ring) and not self._followed(ring) else None
        if ring not in self.topology:
            return None
        if ring in self.live()[0]:
            return WAIT
        changes = (*self.pending.values(), *self.late.values())
        if any(h.conf == ring or self.network.moves(h, ring) for h in changes):
            return None
        return DELETE

    def advance(self, env: Env) -> None:
        """Step 6, MR-14, MR-21: deliver, delete and install while the least is no placeholder."""
        while (found := self.least()) is not None:
            key, what, ring = found
            if what is WAIT:
                return
            if what is DELETE:
                self._delete(env, key, ring)
            elif type(what) is Data:
                if self.out.waits(key):
                    return
                if what.group and not self._whole(env, key, what, ring):
                    return
                if what.level is Level.SAFE and not self._is_safe(env, key):
                    return
                self._taken(ring)
                self.seen.discard(key)
                self.everywhere.discard(key)
                self.last = key
                self.acknowledged.delivered((key.timestamp, key.ring))
                self.out.deliver(env, key, what)
                self._drained(env, key, ring)
            elif type(what) is Wants:
                self._taken(ring)
                self.seen.discard(key)
                self.last = key
                self.out.interested(env, what)
                self._drained(env, key, ring)
            elif isinstance(what, Change):
                self._say_topology(what)
                if self.awaited(what):
                    return
                self._taken(ring)
                self._apply(env, what)

    def _whole(self, env: Env, key: Key, data: Data, ring: RingId) -> bool:
        """F7: whether all of a group's message is here that this processor needs; False: wait, as
        long as the gateway that withheld it can be reached."""
        self.out.reached(env, key, data, ring if ring != key.ring else None)
        if data.hollow and self.out.wants(data.group):
            _, gateways = self.live()
            if data.sender in gateways:
                return False
            self._lack(env, key, data, ring)
        self._hold(key)
        return True

    def _lack(self, env: Env, key: Key, data: Data, ring: RingId) -> None:
        """F7: the message will not come, and others deliver it in this topology. So this one
        ends here, as for a safe message that not all have (A5); what else came of the ring is
        delivered, for others may have done so already."""
        if key in self.unheld:
            self.unheld.discard(key)
            remember(self._refused, key)
            self.out.refused_safe(key)
        if ring not in self.lacking:
            self.lacking.add(ring)
            self.shrunk[ring] = frozenset()
            self.ends = True
            self._stale()
        if self.ends and data.level is not Level.SAFE:
            self._shrink(env, key)

    def _shrink(self, env: Env, key: Key) -> None:
        """A5, A6: another topology just before a message."""
        self.last = Key(key.timestamp, key.ring, Rank.SHRINK)
        self._changed(env, self.last)

    def _drained(self, env: Env, key: Key, ring: RingId) -> None:
        """A5 ext: a topology ends when a ring that was left behind has drained."""
        if ring not in self.entries:
            self.last = Key(key.timestamp, key.ring, Rank.CHANGE, ring)
            self._changed(env, self.last)

    def _taken(self, ring: RingId) -> None:
        """MR-38, G-22: the first item of an entry goes; a lost ring, once drained, is forgotten."""
        entry = self.entries[ring]
        del entry.items[0]
        if not entry.items and not self.knows(ring):
            del self.entries[ring]

    def _delete(self, env: Env, key: Key, ring: RingId) -> None:
        """MR-30, G-17: everybody who can tell that a ring is lost deletes it, at its own place."""
        self.topology.discard(ring)
        del self.entries[ring]
        self.network.cut_off(ring)
        self.last = key
        self._changed(env, key)

    def _is_safe(self, env: Env, key: Key) -> bool:
        """A4, A6: whether all have it, perhaps after those are gone who never will; False: wait."""
        if key in self.everywhere:
            return True
        seen = (key, self.acknowledged.version, self._turn)
        if self._waits_at == seen:
            return False  # nothing was said since it was looked at last
        survey = self._survey(key)
        shrunk: dict[RingId, frozenset[NodeId]] = {}
        rings, _ = self.live()
        for ring in sorted(self.topology):
            pids = self._pids(ring)
            waits = ring in rings and any(survey.word(pid, ring) is None for pid in pids)
            survivors = None if waits else survey.survivors(ring, ring, pids)
            if survivors is None:
                self._waits_at = seen
                return False
            if survivors != pids:
                shrunk[ring] = survivors
        if shrunk:
            self.shrunk |= shrunk
            self._stale()
            env.note("multi A4", "shrink", f"{key}: {sorted(map(str, shrunk))}")
        if shrunk or self.ends:
            self._shrink(env, key)
        return True

    def _siblings(self) -> dict[NodeId, tuple[tuple[NodeId, RingId], ...]]:
        """A3 ext: for each interface of a gateway, its other interfaces in the topology."""
        ends: dict[NodeId, list[tuple[NodeId, RingId]]] = {}
        for ring in sorted(self.topology):
            for member in self.network.members[ring]:
                if member.gateway:
                    ends.setdefault(member.node, []).append((member.pid, ring))
        return {
            pid: tuple(each for each in some if each[0] != pid)
            for some in ends.values()
            for pid, _ in some
        }

    def _survey(self, key: Key) -> Survey:
        """What is known of a safe message; the changes and who is live are looked up once."""
        if self._known is None:
            _, gateways = self.live()
            some = (*self.pending.values(), *self.late.values(), *self.done.values())
            changes = tuple(sorted(some, key=lambda change: change.key))
            regular = frozenset(c.conf for c in changes if not c.transitional)
            members = [m for ring in self.topology for m in self.network.members[ring]]
            live = frozenset(m.pid for m in members if m.gateway and m.node in gateways)
            ends = (*self.network.gateways.values(), self.network.own)
            at = {pid: ring for each in ends for pid, ring in each.items()}
            self._known = (changes, regular, live, at, self._siblings())
        return Survey((key.timestamp, key.ring), self.acknowledged, self.pids, *self._known)
