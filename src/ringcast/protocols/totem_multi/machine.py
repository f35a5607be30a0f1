"""The machine: rings at its ports, one clock, one order (dossier 1.1, 2.3).

A processor has one port, a gateway several. At each port there is a Totem ring as a part, whose
rider stamps what it transmits. What a ring hands up goes to the core (order.py), and what the core
passes on goes to the other rings.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import ClassVar

from ringcast.core.effects import InstallView, Stop, Up
from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Input, Leaving, Received, Started, Submitted
from ringcast.core.machine import Table
from ringcast.core.owned import Heard, Owned, Parts
from ringcast.protocols.totem_multi.clock import (
    CLOCK,
    OUT_OF_REACH,
    ClockRider,
    LamportClock,
    RingFrame,
)
from ringcast.protocols.totem_multi.config import Config
from ringcast.protocols.totem_multi.departures import Departures
from ringcast.protocols.totem_multi.messages import (
    LEVELS,
    Ack,
    Addressed,
    Admitted,
    Bound,
    Change,
    Data,
    Forwarded,
    Key,
    Member,
    NetworkTopology,
    Promises,
    Rank,
    Sort,
    TopologyChange,
    Wants,
    legible,
    read,
    view_of,
    written,
)
from ringcast.protocols.totem_multi.order import NetworkOrder
from ringcast.protocols.totem_multi.places import batch_of, key_of, position
from ringcast.protocols.totem_multi.ring_port import RingPort
from ringcast.protocols.totem_multi.speaker import Speaker
from ringcast.protocols.totem_multi.state import Reported, Streamed
from ringcast.protocols.totem_single.machine import TotemSingle
from ringcast.protocols.totem_single.messages import RingId


class Phase(StrEnum):
    """There is one: the phases are those of the rings."""

    UP = "Up"


class Timer(StrEnum):
    """Every timer of this layer."""

    BOUND = "bound"
    KEPT = "kept"


class TotemMulti(Speaker):
    """A processor of a network of rings."""

    table: ClassVar[Table]

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__(me, config)
        self.phase: Phase = Phase.UP
        self.parts: Parts = Parts()
        self._rings = self.parts.ports
        self.clock = LamportClock(config.timestamp_interval)
        self.view = ViewId(0, me)
        self.nodes: tuple[NodeId, ...] = ()
        self.departures = Departures()
        self._leaving: list[str] | None = None

    # --- inputs ------------------------------------------------------------------------------

    def start(self, env: Env, event: Started) -> None:
        """MR-1, MR-2: a ring of one at each port, and a topology of these."""
        self.boot = event.boot
        ids = event.ports or (self.me,)
        if ids[0] != self.me or len(set(ids)) < len(ids):
            env.stop(f"ports {ids}: the first has the processor's own id {self.me}, each its own")
            return
        stable = [v for k, v in event.stable.items() if k.rpartition("/")[2] == CLOCK]
        self.clock.start(env, max(stable, default=None), event.boot)
        for port, pid in enumerate(ids):
            mine = Member(pid, self.me, len(ids) > 1)
            rider = ClockRider(self.clock, mine, self.brakes)
            machine = TotemSingle(pid, self.config.for_ring(1), rider)
            part = Owned(machine, partial(self.hear, pid), f"ring-{port}", port, pid)
            self.parts.add(part)
            self.ports[pid] = RingPort(part, rider, mine)
            self._queues.append(machine.new_message_queue)
        for each in self.ports.values():
            each.part.handle(env, event)
        now = self.clock.my_timestamp
        rings = {pid: each.ring for pid, each in self.ports.items()}
        members = {each.ring: each.mine for each in self.ports.values()}
        self.order = NetworkOrder(self.me, rings, members, self, now)
        self.install(env, Key(now, min(members), Rank.CHANGE), self.order.reported)

    def handle(self, env: Env, event: Input) -> None:
        """One input; then whatever has become possible. MR-40: a ring of one passes no token on."""
        if type(event) is Received and (ring := self._rings.get(event.port)) is not None:
            inner = ring.at_port  # ``Owned.receive``, written out for every frame
            if inner.owner is env:
                inner.now_us, inner.effects = env.now_us, env.effects
            else:
                inner.within(env)
            ring.machine.handle(inner, event)
        else:
            super().handle(env, event)
        if self._stirred:
            self._settle(env)
        if self.brakes.mine or self.paced:
            self.look_again()

    def admit(self, env: Env, event: Received) -> bool:
        """The rings look at frames themselves."""
        return True

    @property
    def ready(self) -> bool:
        """MR-41, W1."""
        return not self.brakes.blocked and self._queues.takes_own

    def on_submitted(self, env: Env, event: Submitted) -> None:
        """G-4: an application's messages originate at the first port. F6: or it says which groups
        it is in."""
        if event.wants is not None:
            if self.interests.ask(event.wants):
                self._stirred = True
                self.say_interests(env)
            return
        if not self.ready or not self._queues.allow(event.bodies):
            env.drop("multi MR-41", "a submission over the bounds")
            return
        ring, bodies, sort = self.ports[self.me].part, event.bodies, event.level.value
        if event.to or event.group:  # F1, F6
            sort, group = Sort.SOME, 0 if event.to else event.group
            bodies = tuple(written(Addressed(event.level, event.to, b, group)) for b in bodies)
        ring.call(env, ring.machine.carry, bodies, sort)
        self.brakes.look()

    def on_leaving(self, env: Env, event: Leaving) -> None:
        """Every ring is left; then there is nothing more to do."""
        self._leaving = []
        for each in self.ports.values():
            each.part.handle(env, event)
        if self._leaving:
            env.stop(self._leaving[0])
        self._leaving = None

    # --- what the rings hand up --------------------------------------------------------------

    def hear(self, pid: NodeId, env: Env, heard: Heard) -> None:
        """A word of the ring at one interface. It calls no ring: this one has not finished."""
        self._stirred = True
        self._take_up()
        match heard:
            case Up(RingFrame() as frame):
                self._hand_up(env, self.ports[pid], frame)
            case InstallView():
                self._ring_changed(env, self.ports[pid], heard)
            case Stop(reason):
                if self._leaving is not None:
                    self._leaving.append(reason)
                else:
                    env.stop(f"interface {pid}: {reason}")

    def _hand_up(self, env: Env, at: RingPort, frame: RingFrame) -> None:
        """Step 1: a frame of this ring, of messages originated on it, or forwarded to it."""
        message = frame.message
        if message.stamp is None or not legible(message.stamp):
            env.drop("multi MR-12", "a frame that cannot be read")
            return
        sort, stamp, first = message.stamp
        if not self._reaches(env, stamp):
            return
        sender, pid = message.sender_id, at.mine.pid
        if sort <= Sort.SAFE:
            data = Data(sender, LEVELS[sort], first, frame.bodies)
            if sort and message.service and not at.gateways:
                self.order.everywhere.add(Key(stamp, message.ring_id))
            self._hand_up_own(env, at, frame, stamp, data)
            return
        for number, body in enumerate(frame.bodies, first):
            said = read(body)
            if (type(said) is Addressed) != (sort == Sort.SOME):
                said = None
            match said:
                case None:
                    env.drop("multi MR-12", "a message that cannot be read")
                case Addressed(level, to, body, group):
                    data = Data(sender, level, number, (body,), to, group)
                    self._hand_up_own(env, at, frame, stamp, data)
                    stamp += 1
                case Promises() as said:
                    at.promised = at.promised and sender != pid
                    for each in said.each():
                        self._hand_up_forwarded(env, pid, sender, each)
                case (Ack() | Bound() | Wants()) as said:
                    self._hand_up_own(env, at, frame, stamp, said)
                    stamp += 1
                case Admitted(ring):
                    if ring == at.ring:
                        at.admitted.add(sender)
                case NetworkTopology() as said:
                    if self._reaches(env, said.timestamp):
                        self._see(said.timestamp, said.ring)
                        if sender != pid:
                            self.order.hear_topology(env, pid, sender, said)
                case said:
                    self._hand_up_forwarded(env, pid, sender, said)

    def _hand_up_own(
        self,
        env: Env,
        at: RingPort,
        frame: RingFrame,
        stamp: int,
        said: Data | Ack | Bound | Wants,
    ) -> None:
        """Stamped on this ring."""
        view, ring, sender = frame.view, frame.message.ring_id, frame.message.sender_id
        self._see(stamp, ring)
        if view == ring:
            at.highest = stamp
        if isinstance(said, Ack):
            self._hear_ack(sender, view, Key(stamp, ring), said)
            return
        if sender == at.mine.pid and isinstance(said, Bound):
            at.asked = False
        self._heard(at.mine.pid, view, Key(stamp, ring))
        via = None if view == ring else view  # G-9
        self.order.accept(env, at.mine.pid, Forwarded(stamp, ring, via, said))

    def _see(self, timestamp: int, ring: RingId) -> None:
        """MR-4, MR-7."""
        self.clock.see(timestamp)
        self.clock.see_ring(ring)

    def _reaches(self, env: Env, timestamp: int) -> bool:
        """MR-4 ext."""
        reached = self.clock.reaches(timestamp)
        if not reached:
            env.drop("multi MR-4", OUT_OF_REACH)
        return reached

    def _hear_ack(self, sender: NodeId, stream: RingId, key: Key, said: Ack) -> None:
        """A3; to a gateway falls the duty of telling others (4.7)."""
        self.order.raise_bound(stream, key)
        known = self.order.acknowledged
        hear = known.hear_own if len(self.ports) > 1 else known.heard
        hear(sender, stream, said.keys, said.refused)

    def _hand_up_forwarded(self, env: Env, pid: NodeId, sender: NodeId, said: Streamed) -> None:
        """Step 1, MR-31, MR-32: what a gateway new on the ring passes on waits for the change that
        introduced it; G-6: what is older than that change never crosses, but for a Topology
        Change that is waited for (G-18 ext), and a transitional change, which may come late (A11):
        whoever on the ring has applied the other one takes it, so that nobody says it here again.
        """
        if not self._reaches(env, said.timestamp):
            return
        self._see(said.timestamp, said.ring)
        if sender == pid:
            return  # MR-13: my own copy
        if isinstance(said, Forwarded):
            self._heard(pid, said.via or said.ring, key_of(said))
        begun = self.order.neighbours[pid].get(sender)
        if begun is None:
            env.drop("multi MR-31", "forwarded by one that is no gateway here")
        elif (waits := (begun.ring, begun.conf)) in self.order.pending:
            if not key_of(said) < begun or (isinstance(said, Change) and said.transitional):
                self._buffer(env, waits, pid, sender, said)
            elif isinstance(said, TopologyChange):
                self.order.foretell(env, pid, said)
            else:
                env.drop("multi MR-31", "older than the change that joins its gateway")
        else:
            self.order.accept(env, pid, said)

    def _ring_changed(self, env: Env, at: RingPort, change: InstallView) -> None:
        """MR-18, G-9: the ring at an interface changed; a transitional ring is a ring."""
        pid, ring = at.mine.pid, change.view
        if change.conf_id is None:  # the ring of one that every life begins with
            at.ring, at.highest = ring, self.clock.my_timestamp
            return
        close = self.order.acknowledged.close
        if change.transitional:
            at.together = frozenset(change.members)
            self.departures.judged(ring, at.ring, at.members, change.departures)
            members = tuple(m for m in at.members if m.pid in at.together)
            said = Change(at.highest, ring, at.ring, members, True, close(at.ring))
        else:
            self._pass_on_buffered(at)
            begins = at.rider.begins[ring]
            mine = [m.pid for m in begins.members if m.pid in self.ports]
            if len(mine) > 1:
                env.stop(f"interfaces {mine} are on one ring; give each port its own network")
                return
            at.ring, at.members, at.highest = ring, begins.members, begins.timestamp
            at.admitted.clear()
            conf = change.conf_id
            said = Change(begins.timestamp, ring, conf, begins.members, False, close(conf))
            old = self.order.neighbours[pid]
            self.order.neighbours[pid] = {  # MR-19; G-20: "left" is decided here
                q: old[q] if q in old and q in at.together else said.key
                for q in at.gateways
                if q != pid
            }
            at.rider.install(len(at.gateways), self.config.acyclic)
        self.order.claim(said)
        self._see(said.timestamp, ring)
        self.order.accept(env, pid, said)

    # --- what the core asks for --------------------------------------------------------------

    def deliver(self, env: Env, key: Key, data: Data) -> None:
        """MR-14; F1, F6: if it is for this processor."""
        if data.to or data.group:
            mine = self.me in data.to or (data.group and self.wants(data.group))
            if not mine or not data.bodies:
                return
        env.deliver(self.view, batch_of(key, data))

    def install(self, env: Env, key: Key, reported: Reported, narrows: bool = False) -> None:
        """MR-29, G-8: a topology is named by the place of its change and by what is in it."""
        self.view = view_of(key, reported)
        self.withholding.topology_changed(self.order)
        self.routing.topology_changed()
        nodes = self.order.nodes()
        went = [q for q in self.nodes if q not in nodes]
        gone = self.departures.at(key, went, self.order.topology)
        self.nodes = nodes
        self.brakes.keep(nodes)
        if len(self.ports) > 1:
            self.pace()
        members = self.order.network.members
        self.departures.seated = {
            ring: tuple(sorted({m.node for m in members[ring] if m.pid in set(pids)}))
            for ring, pids in reported
            if pids
        }
        sets = tuple((f"ring {ring}", seated) for ring, seated in self.departures.seated.items())
        place = (key.timestamp, key.ring.seq, key.ring.rep, int(key.rank))
        rings = tuple(n for ring, _ in reported for n in (ring.seq, ring.rep))
        data = (*place, key.conf.seq, key.conf.rep, key.digest, *rings)
        text = "; ".join(f"{name}: {' '.join(map(str, seated))}" for name, seated in sets)
        env.note("multi MR-29", "topology", text, self.view, nodes, data)
        stamp, ring, at = key.timestamp, key.ring, position(key)
        env.install_view(
            InstallView(self.view, nodes, False, ring, stamp, None, gone, sets, at, narrows)
        )
        self.interests.topology_changed()
        self.say_interests(env)
        self.say_admitted()

    # --- after each input --------------------------------------------------------------------

    def _settle(self, env: Env) -> None:
        """Say, order, acknowledge, until there is nothing left of it."""
        order = self.order
        self._take_up()
        self.clock.keep(env)
        while True:
            if self._to_say:
                while self._to_say:
                    pid, said = self._to_say.popleft()
                    self._say(env, pid, said)
                self.brakes.look()
            if self._passed:
                self.tell_passed(env)
            if not (delayed := self._queues[0].delays_first):  # MR-10 ext: by a large message
                order.advance(env)
            self._promise_owed()
            if order.unplaced or order.denied:
                order.refuse_passed()
            if self._to_ack or self._to_refuse:
                self._acknowledge()
            elif not self._to_say:
                break
        self._stirred = delayed
        if len(self.ports) == 1:
            (at,) = self.ports.values()
            at.deliver_at_once(order, self.view)
        elif not self._timed and any(map(self._needed, self.ports.values())):
            self._timed = True
            env.set_timer(Timer.BOUND, self._patience_us())
        if not self._watched and self.routing.keeping:
            self._watched = True
            env.set_timer(Timer.KEPT, self.config.token_loss_us)

    def _take_up(self) -> None:
        """The core goes on from what was delivered at once."""
        for at in self.ports.values():
            if at.rider.at_once is not None:
                at.take_up(self.order)

    @property
    def blocked(self) -> str:
        """Step 7: a ring change is next in the order, and not everybody has reported on it."""
        found = self.order.least() if self.order.pending else None
        if found is None or not isinstance(change := found[1], Change):
            return ""
        waits = ", ".join(map(str, sorted({*self.order.awaited(change)} - {self.me})))
        return f"ring {change.conf} is changing; waiting to hear from {waits}" if waits else ""

    def snapshot(self) -> dict[str, object]:
        """What a person would ask for."""
        order = self.order
        self._take_up()
        self._stirred = True  # they are looked at again with the next input
        return {
            "view": str(self.view),
            "topology": [str(ring) for ring, _ in order.reported],
            "timestamp": self.clock.my_timestamp,
            "last": str(order.last),
            "waiting": sum(len(each.items) for each in order.entries.values()),
            "pending": [f"{conf} -> {ring}" for ring, conf in sorted(order.pending)],
            "blocked": self.brakes.blocked,
            "rings": {name: self.parts[name].machine.snapshot() for name in self.parts},
        }


TotemMulti.table = Table(
    Phase,
    (),
    Timer,
    {
        (Phase.UP, Submitted): TotemMulti.on_submitted,
        (Phase.UP, Leaving): TotemMulti.on_leaving,
        (Phase.UP, Timer.BOUND): TotemMulti.on_bound,
        (Phase.UP, Timer.KEPT): TotemMulti.on_kept,
    },
)
