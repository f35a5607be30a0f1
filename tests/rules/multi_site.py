"""One whole multiple-ring machine in a network that is there already, fed by hand.

Its rings hand up what the test names. What it says on them waits in their queues, and is read
there. Rings, interfaces and messages are named as in ``multi_driver``, rings with primes.
"""

from __future__ import annotations

from random import Random

from multi_driver import member, place, ring

from ringcast.blocks.packing import Contents
from ringcast.core.effects import InstallView, Up
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId
from ringcast.core.inputs import Started
from ringcast.protocols.totem_multi import Config, TotemMulti
from ringcast.protocols.totem_multi.clock import Beginning, RingFrame
from ringcast.protocols.totem_multi.messages import (
    Bound,
    Change,
    Data,
    Forwarded,
    Key,
    NetworkGraph,
    NetworkTopology,
    Said,
    Sort,
    TopologyChange,
    read,
    written,
)
from ringcast.protocols.totem_multi.order import NetworkOrder
from ringcast.protocols.totem_multi.ring_port import RingPort
from ringcast.protocols.totem_multi.state import Reported, Streamed
from ringcast.protocols.totem_single.messages import Regular, RingId

NAMES = {ring(n): n for n in (x + y for x in "ABCDEF" for y in ("", "t", "'", "u", "''"))}

Rings = dict[str, tuple[NodeId, ...]]


class Watched(TotemMulti):
    """Remembers the order of what it delivers and installs."""

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__(me, config)
        self.delivered: list[str] = []
        self.keys: list[Key] = []

    def deliver(self, env: Env, key: Key, data: Data) -> None:
        super().deliver(env, key, data)
        self.delivered.append(f"{NAMES[key.ring]}{key.timestamp}")
        self.keys.append(key)

    def install(self, env: Env, key: Key, reported: Reported, narrows: bool = False) -> None:
        super().install(env, key, reported)
        self.delivered.append("{" + " ".join(NAMES.get(each, "?") for each, _ in reported) + "}")
        self.keys.append(key)


class Site:
    """A machine at one processor, the words of its rings, and what it says on them."""

    def __init__(self, own: dict[NodeId, str], rings: Rings) -> None:
        me = min(own)
        self.env = Env(me, Random(0))
        self.machine = machine = Watched(me, Config(timestamp_interval=2))
        machine.handle(self.env, Started(1, {}, tuple(own)))
        mine = {pid: ring(name) for pid, name in own.items()}
        seats = {ring(name): member(pid) for pid, name in own.items()}
        self.order = machine.order = NetworkOrder(me, mine, seats, machine, 1)
        place(machine.order, rings)
        machine.clock.my_timestamp = 1
        for pid, name in own.items():
            at = machine.ports[pid]
            at.ring, at.members, at.highest = ring(name), tuple(map(member, rings[name])), 1
            begun = Key(1, ring(name))
            machine.order.neighbours[pid] = {q: begun for q in at.gateways if q != pid}
        machine.delivered.clear()
        machine.keys.clear()
        self.said()

    @property
    def delivered(self) -> list[str]:
        return self.machine.delivered

    @property
    def topology(self) -> str:
        return " ".join(sorted(NAMES[each] for each in self.order.topology))

    # What happens to it.

    def own(self, *names: str) -> None:
        """``A12``: A, which is a ring of its own, hands up a message with timestamp 12."""
        for name in names:
            self._frame(ring(name[0]), ring(name[0]), int(name[1:]), Sort.AGREED, name.encode())

    def own_bound(self, name: str, timestamp: int) -> None:
        """A gateway speaks for a ring of its own."""
        said = written(Bound(ring(name), ()))
        self._frame(ring(name), ring(name), timestamp, Sort.SAID, said)

    def passed(self, by: NodeId, *names: str) -> None:
        """The gateway ``by`` passes on messages."""
        for name in names:
            data = Data(1, Level.AGREED, 1, (name.encode(),))
            self.hear(by, Forwarded(int(name[1:]), ring(name[0]), None, data))

    def passed_bound(self, by: NodeId, name: str, timestamp: int) -> None:
        """It passes on the word of another one for a ring."""
        self.hear(by, Forwarded(timestamp, ring(name), None, Bound(ring(name), ())))

    def passed_change(
        self, by: NodeId, new: str, old: str, timestamp: int, *pids: NodeId
    ) -> Change:
        """It passes on a change of another ring."""
        members = tuple(map(member, pids))
        said = Change(timestamp, ring(new), ring(old), members, new[1:] in ("t", "u"))
        self.hear(by, said)
        return said

    def hear(self, by: NodeId, said: Streamed | NetworkTopology) -> None:
        """The gateway ``by`` says something on a ring of this processor."""
        (at,) = (at for at in self.machine.ports.values() if by in {m.pid for m in at.members})
        self._frame(at.ring, at.ring, 1, Sort.SAID, written(said), by)

    def changes(self, old: str, transitional: str, new: str, timestamp: int, *pids: NodeId) -> None:
        """A ring of its own installs two configurations; the interfaces ``pids`` are in the new
        one, and those of them that were in the old one in the transitional one."""
        at, after, between = self._at(ring(old)), ring(new), ring(transitional)
        came = tuple(m.pid for m in at.members if m.pid in pids)
        at.rider.begins[after] = Beginning(timestamp, tuple(map(member, pids)))
        for view in (
            InstallView(between, came, True, at.ring, at.highest, at.ring),
            InstallView(after, pids, False, after, 0, between),
        ):
            self.machine.hear(at.mine.pid, self.env, view)
        self.machine._settle(self.env)

    def _frame(
        self,
        view: RingId,
        of: RingId,
        timestamp: int,
        sort: int,
        body: bytes,
        by: NodeId = 1,
    ) -> None:
        at = self._at(view)
        frame = Regular(by, of, 1, Level.AGREED, Contents(1, (body,)), (sort, timestamp, 1))
        self.machine.hear(at.mine.pid, self.env, Up(RingFrame(view, frame, (body,))))
        self.machine._settle(self.env)

    def _at(self, view: RingId) -> RingPort:
        (at,) = (at for at in self.machine.ports.values() if at.ring == view)
        return at

    # What it says.

    def said(self) -> dict[NodeId, list[Said]]:
        """On each of its rings, since it was asked last."""
        found: dict[NodeId, list[Said]] = {}
        for pid, at in self.machine.ports.items():
            queue = at.part.machine.new_message_queue
            found[pid] = []
            while len(queue):
                taken = queue.take(100_000)
                assert taken is not None
                for body in taken[2]:
                    said = read(body)
                    assert said is not None
                    found[pid].append(said)
        return found


def plain(said: Said) -> str:
    """In short."""
    match said:
        case Forwarded(timestamp, of, _, message):
            word = "" if isinstance(message, Data) else " bound"
            return f"{NAMES[of]}{timestamp}{word}"
        case Change(timestamp, new, old):
            return f"CC({timestamp} {NAMES[new]} {NAMES[old]})"
        case TopologyChange(timestamp, new, old):
            return f"TC({timestamp} {NAMES[new]} {NAMES[old]})"
        case NetworkTopology(timestamp, new):
            return f"NT({timestamp} {NAMES[new]})"
        case _:
            return type(said).__name__


def beyond(graph: NetworkGraph, own: dict[NodeId, str]) -> str:
    """The rings that a Network Topology leads to from the interfaces ``own``."""
    ends = {node: dict(each) for node, each in graph.gateways}
    found = {ring(name) for name in own.values()}
    while more := [
        e for e in ends.values() if found & {*e.values()} and not {*e.values()} <= found
    ]:
        found |= {each for e in more for each in e.values()}
    return " ".join(sorted(NAMES[each] for each in found))
