"""A core of multiple-ring in a network that is there already, fed by hand.

``A12`` is the message of ring A with timestamp 12. Rings are named by letters, ids and numbers
ascending with them; ``A2`` as a ring is a later one at the same place.
"""

from __future__ import annotations

from random import Random

from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId
from ringcast.core.rings import shaped
from ringcast.core.trace import TraceEvent
from ringcast.protocols.totem_multi import SHEET, Config
from ringcast.protocols.totem_multi.messages import (
    Bound,
    Change,
    Data,
    Forwarded,
    Key,
    Member,
    NetworkGraph,
    NetworkTopology,
    Rank,
    RingEntry,
    TopologyChange,
    Wants,
)
from ringcast.protocols.totem_multi.order import NetworkOrder
from ringcast.protocols.totem_multi.state import Reported, Streamed, StreamEntry
from ringcast.protocols.totem_single.messages import RingId
from ringcast.sim.cluster import Cluster
from ringcast.sim.presets import preset
from ringcast.sim.rings import attached

GATEWAY = 100
"""Ids from here on belong to gateways; each interface has one of its own: 101, 201, ... of 101."""


def ring(name: str) -> RingId:
    """``A``, ``B``: the first rings; ``At`` a transitional one after A, ``A2`` the next regular
    one, which is also ``A'``; ``Au`` another transitional one, ``A3`` or ``A''`` another regular
    one."""
    letter, rest = name[0], name[1:]
    later = {"": 0, "t": 2, "2": 4, "'": 4, "u": 6, "3": 8, "''": 8}[rest]
    return RingId(10 + later * 10 + ord(letter) - ord("A"), ord(letter))


def member(pid: NodeId) -> Member:
    """An interface; those of a gateway differ by hundreds."""
    gateway = pid > GATEWAY
    return Member(pid, GATEWAY + pid % 100 if gateway else pid, gateway)


NAMES = {ring(n): n for n in (x + y for x in "ABCDEFNX" for y in ("", "t", "2", "u", "3"))}


def place(order: NetworkOrder, rings: dict[str, tuple[NodeId, ...]]) -> None:
    """Put a core into a network that is there already, with nothing heard of any ring."""
    order.topology = {ring(name) for name in rings}
    order.network.members = {ring(name): tuple(map(member, pids)) for name, pids in rings.items()}
    order.entries = {
        each: StreamEntry(order.last, Key(1, each, Rank.CHANGE, each)) for each in order.topology
    }
    for name, pids in rings.items():
        for pid in pids:
            if pid > GATEWAY:
                ends = order.network.gateways.setdefault(member(pid).node, {})
                ends[pid] = ring(name)
    order._stale()
    order.reported = order._report()


class Core:
    """A core at one processor, and what it asked for."""

    def __init__(
        self, me: NodeId, own: dict[NodeId, str], rings: dict[str, tuple[NodeId, ...]]
    ) -> None:
        self.env = Env(me, Random(0))
        mine = {pid: ring(name) for pid, name in own.items()}
        members = {ring(name): member(pid) for pid, name in own.items()}
        self.said: list[tuple[str, object]] = []
        self.acked: list[Key] = []
        self.refused: list[Key] = []
        self.kept: set[Key] = set()
        self.released: list[Change] = []
        self.delivered: list[str] = []
        self.topologies: list[tuple[str, ...]] = []
        self.narrowed: list[bool] = []
        self.keys: list[Key] = []
        self.groups: set[int] = set()
        self.words: list[Wants] = []
        self.reached_places: list[int] = []
        self.names = NAMES
        self.order = NetworkOrder(me, mine, members, self, 1)
        place(self.order, rings)

    # What the core asks for.

    def forward(self, said: Streamed, came: NodeId | None) -> None:
        self.said.append(("forward", said))

    def exchange(self, pid: NodeId, said: NetworkTopology) -> None:
        self.said.append(("exchange", said))

    def stored_safe(self, key: Key) -> None:
        self.acked.append(key)

    def refused_safe(self, key: Key) -> None:
        self.refused.append(key)

    def waits(self, key: Key) -> bool:
        return key in self.kept

    def deliver(self, env: Env, key: Key, data: Data) -> None:
        self.delivered.append(f"{self.names[key.ring]}{key.timestamp}")
        self.keys.append(key)

    def wants(self, group: int) -> bool:
        return group in self.groups

    def may_want(self, group: int) -> bool:
        return group in self.groups

    def interested(self, env: Env, word: Wants) -> None:
        self.words.append(word)

    def reached(self, env: Env, key: Key, data: Data, via: RingId | None) -> None:
        self.reached_places.append(key.timestamp)

    def filled(self, said: Forwarded) -> bool:
        return False

    def install(self, env: Env, key: Key, reported: Reported, narrows: bool = False) -> None:
        topology = tuple(self.names[each] for each, pids in reported if pids)
        self.topologies.append(topology)
        self.narrowed.append(narrows)
        self.delivered.append("{" + " ".join(topology) + "}")
        self.keys.append(key)

    def release(self, env: Env, change: Change) -> None:
        self.released.append(change)

    # What happens to it.

    def message(self, *names: str, level: Level = Level.AGREED, via: str = "") -> None:
        """``A12``: a message of ring A with timestamp 12."""
        for name in names:
            data = Data(1, level, 1, (name.encode(),))
            self.accept(Forwarded(int(name[1:]), ring(name[0]), ring(via) if via else None, data))

    def bound(self, name: str, timestamp: int) -> None:
        self.accept(Forwarded(timestamp, ring(name), None, Bound(ring(name), ())))

    def ack(self, pid: NodeId, stream: str, *names: str, refused: bool = False) -> None:
        keys = tuple((int(name[1:]), ring(name[0])) for name in names)
        has, lacks = ((), keys) if refused else (keys, ())
        self.order.acknowledged.heard(pid, ring(stream), has, lacks)
        self.order.advance(self.env)

    def change(
        self, new: str, old: str, timestamp: int, *pids: NodeId, mine: bool = False
    ) -> Change:
        members = tuple(map(member, pids))
        said = Change(timestamp, ring(new), ring(old), members, new.endswith("t"))
        if mine:
            self.order.claim(said)
            pid = next(iter(self.order.pids & set(pids)))
            if not said.transitional:
                old_ones = self.order.neighbours[pid]
                self.order.neighbours[pid] = {
                    q: old_ones.get(q, said.key) for q in pids if q > GATEWAY and q != pid
                }
        self.accept(said)
        return said

    def topology_change(
        self, change: Change, rings: dict[str, tuple[NodeId, ...]], gateways: dict[int, str]
    ) -> None:
        self.accept(
            TopologyChange(change.timestamp, change.ring, change.conf, graph_of(rings, gateways))
        )

    def network_topology(
        self,
        change: Change,
        pid: NodeId,
        rings: dict[str, tuple[NodeId, ...]],
        ends: dict[int, str],
    ) -> None:
        graph = graph_of(rings, ends)
        said = NetworkTopology(change.timestamp, change.ring, member(pid).node, graph)
        came = next(iter(self.order.pids))
        self.order.hear_topology(self.env, came, pid, said)
        self.order.advance(self.env)

    def accept(self, said: Streamed) -> None:
        self.order.accept(self.env, next(iter(self.order.pids)), said)
        self.order.advance(self.env)

    @property
    def topology(self) -> str:
        return " ".join(sorted(self.names[each] for each in self.order.topology))


def graph_of(rings: dict[str, tuple[NodeId, ...]], ends: dict[int, str]) -> NetworkGraph:
    """A graph; the interfaces of a gateway are put together."""
    gateways: dict[NodeId, list[tuple[NodeId, RingId]]] = {}
    for pid, name in sorted(ends.items()):
        gateways.setdefault(member(pid).node, []).append((pid, ring(name)))
    return NetworkGraph(
        tuple(RingEntry(ring(name), tuple(map(member, pids))) for name, pids in rings.items()),
        tuple((node, tuple(each)) for node, each in sorted(gateways.items())),
    )


CHAIN: dict[str, tuple[NodeId, ...]] = {"A": (1, 2, 101), "B": (3, 201, 102), "C": (4, 202)}
"""A with 1 and 2, gateway 101 (201 on B), B with 3, gateway 102 (202 on C), C with 4."""


def chain(me: NodeId = 1, own: str = "A") -> Core:
    """A processor of the chain."""
    return Core(me, {me: own}, CHAIN)


def gateway() -> Core:
    """101, between A and B."""
    return Core(101, {101: "A", 201: "B"}, CHAIN)


def pair() -> tuple[Cluster, list[TraceEvent]]:
    """1 and 2 on a ring, 3 and 4 on another, gateway 5."""
    places = attached(shaped("chain", 2, 2, Random(0)))
    events: list[TraceEvent] = []
    config = Config(acyclic=True)
    cluster = Cluster(SHEET, config, places, preset("ideal"), 1, [events.append], places)
    cluster.start()
    cluster.run_for(3_000_000)
    events.clear()
    return cluster, events
