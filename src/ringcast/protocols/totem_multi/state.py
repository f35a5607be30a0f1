"""The state of the resolved core (dossier 4.5), and what follows from it.

``last``, G, T, P, H and the entries, under these names in the dossier; which rings and gateways are
live, and what applications are told.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, TypeVar

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.settings import MIB
from ringcast.protocols.totem_multi.messages import (
    Change,
    Data,
    Denied,
    Forwarded,
    Key,
    Member,
    NetworkTopology,
    Rank,
    SafeKey,
    TopologyChange,
    Wants,
    digest,
)
from ringcast.protocols.totem_multi.network import RingNetwork
from ringcast.protocols.totem_multi.receipts import Acknowledged
from ringcast.protocols.totem_single.messages import RingId

T = TypeVar("T")

ChangeId: TypeAlias = tuple[RingId, RingId]
"""New ring and old ring: what tells one Configuration Change from another (G-13)."""

Streamed: TypeAlias = Forwarded | Change | TopologyChange | Denied
"""What goes through the network."""

Reported: TypeAlias = tuple[tuple[RingId, tuple[NodeId, ...]], ...]
"""The rings of a topology with their members, ascending: what applications are told."""


Known: TypeAlias = tuple[
    tuple[Change, ...],
    frozenset[RingId],
    frozenset[NodeId],
    dict[NodeId, RingId],
    dict[NodeId, tuple[tuple[NodeId, RingId], ...]],
]
"""What ``receipts.Survey`` looks at beside the words themselves."""

MOST_REMEMBERED = 4096
"""Refused messages, and topology changes that were passed on, that are remembered, so that none
goes round in a cycle."""

MOST_FORETOLD = 256
"""Topology changes that are kept for a change of which nothing is known yet."""

ITEM_BYTES = 1024
"""What a waiting item takes besides its bodies, about."""

MOST_WAITING = 256 * MIB
"""Bytes that may wait for ring changes."""


def weight(said: Streamed) -> int:
    """About how many bytes it takes to keep it."""
    message = said.message if isinstance(said, Forwarded) else None
    bodies = message.bodies if isinstance(message, Data) else ()
    return ITEM_BYTES + sum(map(len, bodies))


def check_waiting(env: Env, taken: int) -> None:
    """Stop rather than skip: every item is part of the order, and a gateway that forwards messages
    without ever sending its Network Topology would fill the memory."""
    if taken > MOST_WAITING:
        env.stop(
            f"more than {MOST_WAITING // MIB} MiB from other rings wait for a ring change that is "
            "not complete; group.blocked of the other nodes names those it waits for: end them, "
            "then start this node again"
        )


def seated(reported: Reported) -> set[NodeId]:
    """The interfaces in a topology."""
    return {pid for _, pids in reported for pid in pids}


def remember(some: dict[T, None], key: T) -> None:
    """Add to a set that forgets the oldest."""
    some[key] = None
    while len(some) > MOST_REMEMBERED:
        del some[next(iter(some))]


class Outlet(Protocol):
    """What the core asks of the machine around it."""

    def forward(self, said: Streamed, came: NodeId | None) -> None:
        """Pass on, on every interface but the one it came from."""

    def exchange(self, pid: NodeId, said: NetworkTopology) -> None:
        """Tell the others on the ring at an interface."""

    def stored_safe(self, key: Key) -> None:
        """A1: a safe message was stored, and is to be acknowledged."""

    def refused_safe(self, key: Key) -> None:
        """A4 ext: a safe message was discarded."""

    def waits(self, key: Key) -> bool:
        """T5: whether a message has to be heard on another ring before it is delivered here."""

    def deliver(self, env: Env, key: Key, data: Data) -> None:
        """The next message in the order."""

    def wants(self, group: int) -> bool:
        """F6: whether this processor is in a group."""

    def may_want(self, group: int) -> bool:
        """F9: whether it may be at the place of a message that has just come."""

    def interested(self, env: Env, word: Wants) -> None:
        """F6: the next in the order tells who is in which groups."""

    def reached(self, env: Env, key: Key, data: Data, via: RingId | None) -> None:
        """F7: a message of a group is the next in the order."""

    def filled(self, said: Forwarded) -> bool:
        """F7: a message came of which the place may have been told before; whether that place is
        behind us, and somebody waits for it."""

    def install(self, env: Env, key: Key, reported: Reported, narrows: bool) -> None:
        """The topology is another one; whether it only lost rings or members."""

    def release(self, env: Env, change: Change) -> None:
        """Step 8: accept what came from gateways that this change of a ring of mine admitted."""


class StreamEntry:
    """One known ring: what came of it and waits, and how far its stream is known."""

    __slots__ = ("items", "last", "late", "placeholder", "since")

    def __init__(
        self, last: Key, placeholder: Key, late: bool = False, since: SafeKey | None = None
    ) -> None:
        self.items: list[tuple[Key, Data | Wants | Change]] = []
        self.last = last
        self.placeholder = placeholder  # MR-15, G-10: the key that the ring's deletion would have
        self.late = late  # G-16
        self.since = since  # the change that brought it, if it is not known from its beginning


class OrderState:
    """What one processor knows of the network and its order."""

    def __init__(
        self,
        me: NodeId,
        rings: dict[NodeId, RingId],
        members: dict[RingId, Member],
        out: Outlet,
        timestamp: int,
    ) -> None:
        self.me, self.out = me, out
        self.pids = frozenset(rings)
        self.network = RingNetwork(me, rings)
        self.network.members = {ring: (member,) for ring, member in members.items()}
        self.topology = set(rings.values())  # T
        self.last = Key(timestamp, min(rings.values()), Rank.SHRINK)
        self.pending: dict[ChangeId, Change] = {}  # P
        self.late: dict[ChangeId, Change] = {}  # H
        self.done: dict[ChangeId, Change] = {}
        self.mine: set[ChangeId] = set()  # changes of my own rings
        self.exchanged: set[RingId] = set()  # rings on which I have sent my NT
        self.heard_from: dict[RingId, dict[NodeId, NetworkTopology]] = {}  # NTs by ring and sender
        self.neighbours: dict[NodeId, dict[NodeId, Key]] = {pid: {} for pid in rings}
        """On each interface the gateways there, and the change that first showed them."""
        self.told: dict[ChangeId, TopologyChange] = {}
        self.foretold: dict[ChangeId, tuple[NodeId, TopologyChange]] = {}
        """G-18 ext: by the change that each is about, and of which nothing is known yet."""
        self.unplaced: list[tuple[NodeId | None, Forwarded | Change]] = []  # A7
        self._unplaced_bytes = 0
        self.shrunk: dict[RingId, frozenset[NodeId]] = {}  # A5's shr
        self.lacking: set[RingId] = set()
        """F7: rings of which a message is lacking here since the last change."""
        self.ends = False  # F7: this topology does, though no other members are known
        self.acknowledged = Acknowledged()
        self.seen: set[Key] = set()  # stored, not delivered
        self.unheld: set[Key] = set()
        """F9: safe ones of these that are not acknowledged, for their bodies may be wanted."""
        self.everywhere: set[Key] = set()
        """Safe messages that their ring has shown to have reached all that they were for."""
        self.entries = {
            ring: StreamEntry(self.last, Key(timestamp, ring, Rank.CHANGE, ring))
            for ring in sorted(self.topology)
        }
        self._live: tuple[set[RingId], set[NodeId]] | None = None
        self._known: Known | None = None
        self._interfaces: dict[RingId, frozenset[NodeId]] = {}
        self._turn = 0
        self._waits_at: tuple[Key, int, int] | None = None
        self._refused: dict[Key, None] = {}
        self.denied: dict[Key, RingId] = {}
        """A4 ext: refused by a gateway, and by stream, which may still come another way."""
        self._passed_on: dict[ChangeId, None] = {}
        self.reported = self._report()

    def claim(self, change: Change) -> None:
        """A10: a change of a ring of mine, by my own word. Another gateway may have told it before,
        but what can be reached from here depends on this one."""
        self.mine.add((change.ring, change.conf))
        self._stale()

    def knows(self, ring: RingId) -> bool:
        """G-23: in the topology, or about to be."""
        return (
            ring in self.topology
            or any(new == ring for new, _ in self.pending)
            or any(new == ring for new, _ in self.late)
        )

    def ahead(self, since: SafeKey | None) -> bool:
        """G-14, MR-31 for those beyond: whether a stream was joined by a change that is not applied
        here. What I have of the ring may be from before it was lost; what lies between is gone."""
        return since is not None and (self.last.timestamp, self.last.ring) < since

    def raise_bound(self, ring: RingId, key: Key) -> bool:
        """MR-12, G-34: a stream has come to ``key``; whether that is news."""
        entry = self.entries.get(ring)
        if entry is None or not self.knows(ring) or key <= entry.last or key <= self.last:
            return False
        entry.last = key
        entry.placeholder = Key(key.timestamp, ring, Rank.CHANGE, ring)
        return True

    @property
    def alone(self) -> RingId | None:
        """The only ring there is, if nothing waits and nothing changes."""
        if len(self.entries) > 1 or self.pending or self.late or self.unplaced:
            return None
        ring, entry = next(iter(self.entries.items()))
        return ring if self.topology == {ring} and not entry.items else None

    def delivered_upto(self, ring: RingId, timestamp: int) -> None:
        """Messages of the only ring were delivered as they came."""
        if self.raise_bound(ring, key := Key(timestamp, ring)):
            self.last = key

    def counting(self) -> list[Change]:
        """Step 3, MR-34: received changes that move interfaces, in key order; a transitional one
        only with the regular one that follows it."""
        confs = {conf for _, conf in self.pending}
        some = [*self.pending.values(), *self.late.values()]
        return sorted(
            (c for c in some if not c.transitional or c.ring in confs), key=lambda c: c.key
        )

    def live(self) -> tuple[set[RingId], set[NodeId]]:
        """Step 4: rings and gateways that can be reached."""
        if self._live is None:
            if not self.pending and not self.late:
                self._live = set(self.topology), {self.me, *self.network.gateways}
            else:
                self._live = self.network.live(*self._moving())
        return self._live

    def _moving(self) -> tuple[list[Change], list[Change]]:
        """The changes that count, and those of my own rings among them."""
        changes = self.counting()
        return changes, [c for c in changes if (c.ring, c.conf) in self.mine]

    def _stale(self) -> None:
        """What was derived from changes and topology is to be derived anew."""
        self._turn += 1
        self._live = self._known = None
        self._interfaces.clear()

    def _pids(self, ring: RingId) -> frozenset[NodeId]:
        """Members of a ring, less those that a shrinking took out."""
        found = self._interfaces.get(ring)
        if found is None:
            found = self.shrunk.get(ring)
            if found is None:
                found = frozenset(member.pid for member in self.network.members[ring])
            self._interfaces[ring] = found
        return found

    def _report(self) -> Reported:
        """A5 ext: a ring without survivors is listed, with nobody: its messages still come, and not
        in the topology of those that never knew it. So is one that was left behind and drains."""
        draining = {
            ring for ring, entry in self.entries.items() if entry.items and not self.knows(ring)
        }
        return tuple(
            (ring, () if ring in draining else tuple(sorted(self._pids(ring))))
            for ring in sorted(self.topology | draining)
        )

    def nodes(self) -> tuple[NodeId, ...]:
        """The processors of the topology, a gateway once."""
        members = self.network.members
        shown = {
            m.node for ring, pids in self.reported for m in members[ring] if m.pid in set(pids)
        }
        return tuple(sorted(shown))

    def _changed(self, env: Env, key: Key, narrows: bool = True) -> None:
        """A9, G-8: report the topology, if it is another one, under a key that tells it apart."""
        self._stale()
        reported = self._report()
        if reported != self.reported or self.ends:
            narrows = narrows and seated(reported) <= seated(self.reported)  # A5 ext: or anew
            self.reported, self.ends = reported, False
            self.out.install(env, key._replace(digest=digest(reported)), reported, narrows)
