"""What a processor has to say on its rings, until it is said: forwarded, withheld, acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import TimerFired
from ringcast.core.machine import Machine
from ringcast.protocols.totem_multi.config import Config
from ringcast.protocols.totem_multi.flow import FREE, Brakes, SendQueues
from ringcast.protocols.totem_multi.interests import INTERESTED, PASSED, Interests
from ringcast.protocols.totem_multi.messages import (
    MOST_RINGS,
    Ack,
    Admitted,
    Bound,
    Change,
    Data,
    Denied,
    Forwarded,
    Key,
    NetworkTopology,
    Promises,
    SafeKey,
    Said,
    Sort,
    Wants,
    written,
)
from ringcast.protocols.totem_multi.order import NetworkOrder
from ringcast.protocols.totem_multi.places import joined_by, key_of
from ringcast.protocols.totem_multi.receipts import MOST_KEYS
from ringcast.protocols.totem_multi.ring_port import RingPort
from ringcast.protocols.totem_multi.routing import TreeRouting
from ringcast.protocols.totem_multi.state import ChangeId, Streamed, check_waiting, weight
from ringcast.protocols.totem_multi.withholding import Withholding, shares
from ringcast.protocols.totem_single.messages import RingId


class Speaker(Machine):
    """What the core asks to be said (``state.Outlet``), by interface and in order."""

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__()
        self.me, self.config = me, config
        self.ports: dict[NodeId, RingPort] = {}
        self._queues = SendQueues(config)
        most = config.each_time if config.adaptive else 0
        self.brakes = Brakes(me, self._queues.level, most)
        self.paced = 0  # W4: the level that the rings' settings follow
        self.order: NetworkOrder
        self.interests = Interests(me)
        self.withholding = Withholding(config.acyclic, self.interests)
        self.routing = TreeRouting(me, config.acyclic)
        self._passed: list[tuple[Key, int, NodeId | None]] = []
        """F7: messages of groups that were passed on, and for whom."""
        self._to_say: deque[tuple[NodeId, Said]] = deque()
        self._buffers: dict[ChangeId, list[tuple[NodeId, NodeId, Streamed]]] = {}
        """MR-31: what waits for a change, at which interface and from whom it came."""
        self._buffered_bytes = 0
        self._to_ack: list[SafeKey] = []
        self._to_refuse: list[SafeKey] = []
        self._stirred = False  # something came up that the core has to look at
        self._timed = False
        self._watched = False  # what is kept

    def _say(self, env: Env, pid: NodeId, said: Said) -> None:
        """MR-10 ext: into the one queue of an interface; what a gateway passes on goes first. Its
        own messages are stamped when they leave (MR-9), and what it has delivered by then is their
        cause (P-12). Its word on groups keeps its place among its messages (F6). G-40: nor does
        what a processor acknowledges wait for messages that wait for its window (W2)."""
        ring, alone = self.ports[pid].part, len(self.ports) == 1
        if type(said) is Wants or (alone and self.brakes.window == FREE):
            ring.call(env, ring.machine.carry, (written(said),), Sort.SAID)
        else:
            ring.call(env, ring.machine.carry_first, written(said), Sort.SAID)

    def look_again(self) -> None:
        """MR-40: my queues are among the reasons to brake, or were."""
        self.brakes.look()
        if self.config.adaptive and len(self.ports) > 1 and self.paced != self.brakes.mine:
            self.pace()

    def pace(self) -> None:
        """MR-45: a gateway may send as much as those for which it sends. W4: with a longer queue
        as for so many more as its level. W5: of its own one message for each of theirs."""
        self.paced = self.brakes.mine if self.config.adaptive else 0
        for pid, share in shares(self.order.network).items():
            ring = self.ports[pid].part.machine
            ring.config = self.config.for_ring(share + self.paced)
            ring.new_message_queue.yields = share if self.config.adaptive else 0

    def forward(self, said: Streamed, came: NodeId | None) -> None:
        """MR-13: on every interface but that one. F2: as far as somebody is there that it is for;
        F3: what was withheld before a change goes ahead of it; T3: so does what was kept. T2:
        another gateway may pass it on."""
        for pid in self.ports:
            if type(said) is Denied:
                if pid != came:
                    self._to_say.append((pid, said))
                continue
            if type(said) is not Forwarded:
                self._to_say.extend((pid, kept) for kept in self.routing.release(pid))
            if pid == came:
                continue
            if type(said) is not Forwarded:
                self._promise(pid)
                self._to_say.append((pid, said))
            elif self.ports[pid].settled and self.routing.keeps(pid, came, said, self.order):
                continue
            elif (part := self.withholding.part(pid, said, self.order)) is not None:
                self._to_say.extend((pid, kept) for kept in self.routing.kept_before(pid, part))
                if self.withholding.hollow(pid):
                    self._promise(pid)  # F8
                self._to_say.append((pid, part))
                self._note_passed(pid, part)

    def _pass_on_buffered(self, at: RingPort) -> None:
        """A8 ext: gateways are lost, and what they brought waits for the change that joined them.
        Those beyond who know them another way do not wait for that change's TC, and this change
        must not overtake what they would lack."""
        lost = {m.pid: m.node for m in at.members if m.gateway and m.pid not in at.together}
        known = {pid for pid, node in lost.items() if node in self.order.network.gateways}
        for id, waiting in self._buffers.items() if not self.config.acyclic else ():
            begun = self.order.pending[id]
            for pid, sender, said in waiting:
                if pid == at.mine.pid and sender in known:
                    self.forward(joined_by(begun, said), pid)

    def _buffer(
        self, env: Env, waits: ChangeId, pid: NodeId, sender: NodeId, said: Streamed
    ) -> None:
        """MR-31: until the change is applied that joins its gateway."""
        self._buffers.setdefault(waits, []).append((pid, sender, said))
        self._buffered_bytes += weight(said)
        check_waiting(env, self._buffered_bytes)

    def release(self, env: Env, change: Change) -> None:
        """Step 8, G-20: gateways whose word never came are not admitted."""
        for pid, sender, said in self._buffers.pop((change.ring, change.conf), ()):
            self._buffered_bytes -= weight(said)
            node = next((m.node for m in change.members if m.pid == sender), None)
            if node in self.order.network.gateways:
                self.order.accept_released(env, pid, said)
            elif (later := self.order.may_admit(pid, sender, key_of(said))) is not None:
                self._buffer(env, later, pid, sender, said)
            else:
                self.order.refuse(env, pid, said, "from a gateway that was not admitted")

    def _note_passed(self, pid: NodeId, said: Forwarded) -> None:
        """F7: for whom a message of a group goes out at an interface."""
        data = said.message
        if isinstance(data, Data) and data.group and data.bodies and self.filters:
            witness = self.withholding.wanted_beyond(pid, data.group, self.order)
            if witness is not None or self.order.knows(said.via or said.ring):
                self._passed.append((key_of(said), data.group, witness))

    def tell_passed(self, env: Env) -> None:
        """A trace tells what was passed on, by what was known then."""
        for key, group, witness in self._passed:
            members = () if witness is None else (witness,)
            data = (key.timestamp, key.ring.seq, key.ring.rep, group)
            env.note("multi F7", PASSED, "", None, members, data)
        self._passed.clear()

    def _promise(self, pid: NodeId) -> None:
        """F3: say how far the streams have come of which something was withheld."""
        withheld = self.withholding.take(pid)
        for at in range(0, len(withheld), MOST_RINGS):
            self.ports[pid].promised = True
            self._to_say.append((pid, Promises.of(withheld[at : at + MOST_RINGS])))

    def reached(self, env: Env, key: Key, data: Data, via: RingId | None) -> None:
        """F7: send what was withheld, and is waited for beyond."""
        for pid in self.withholding.reached(key, data, self.order):
            said = Forwarded(key.timestamp, key.ring, via, data)
            self._to_say.append((pid, said))
            self._note_passed(pid, said)

    def filled(self, said: Forwarded) -> bool:
        """F7: a message that was withheld before it came here came after all; whether somebody
        beyond waits for it."""
        pids = self.withholding.filled(key_of(said))
        self._to_say.extend((pid, said) for pid in pids)
        return bool(pids)

    def wants(self, group: int) -> bool:
        """F6."""
        return self.interests.wants(group)

    def may_want(self, group: int) -> bool:
        """F9."""
        return self.interests.may_want(group)

    @property
    def filters(self) -> bool:
        """F6: whether there are gateways that may withhold messages of groups."""
        return self.withholding.acyclic and bool(self.order.network.gateways)

    def interested(self, env: Env, word: Wants) -> None:
        """F6: from here on a processor is in these groups. A word of its own that was said when
        there were gateways takes back nothing that was decided since."""
        self.tell_passed(env)
        self.interests.hear(word.node, word.groups)
        groups: Iterable[int] = word.groups
        if word.node == self.me and not self.filters:
            groups = self.interests.decide()
        self._note_groups(env, word.node, groups)

    def _note_groups(self, env: Env, node: NodeId, groups: Iterable[int]) -> None:
        place = self.order.last
        data = (place.timestamp, place.ring.seq, place.ring.rep, *groups)
        env.note("multi F6", INTERESTED, "", None, (node,), data)

    def say_admitted(self) -> None:
        """T2: once on each ring with several gateways."""
        for pid, at in self.ports.items():
            if self.config.acyclic or len(at.gateways) < 2 or pid in at.admitted:
                continue
            if self.order.network.own[pid] == at.ring:
                at.admitted.add(pid)
                self._to_say.append((pid, Admitted(at.ring)))

    def say_interests(self, env: Env) -> None:
        """F6: in every topology anew, and when they change."""
        if self.interests.latest is None:
            return
        if self.filters:
            self._to_say.append((self.me, Wants(self.me, self.interests.say())))
        else:
            self._note_groups(env, self.me, self.interests.decide())

    def _heard(self, pid: NodeId, stream: RingId, key: Key) -> None:
        """T2."""
        self._to_say.extend(self.routing.heard(pid, stream, key, self.order))

    def waits(self, key: Key) -> bool:
        """T5."""
        return self.routing.waits(key)

    def exchange(self, pid: NodeId, said: NetworkTopology) -> None:
        """MR-24."""
        self._to_say.append((pid, said))

    def stored_safe(self, key: Key) -> None:
        """A1."""
        self._to_ack.append((key.timestamp, key.ring))

    def refused_safe(self, key: Key) -> None:
        """A4 ext."""
        self._to_refuse.append((key.timestamp, key.ring))

    def _acknowledge(self) -> None:
        """A1: on every interface, what was stored and what was refused."""
        words = [(key, True) for key in self._to_ack] + [(key, False) for key in self._to_refuse]
        self._to_ack, self._to_refuse = [], []
        for at in range(0, len(words), MOST_KEYS):
            some = words[at : at + MOST_KEYS]
            has, lacks = (tuple(k for k, yes in some if yes is each) for each in (True, False))
            for pid in self.ports:
                self._to_say.append((pid, Ack(has, lacks)))

    def _promise_owed(self) -> None:
        """F3: one word at a time on each interface."""
        for pid in self.withholding.owing():
            if not self.ports[pid].promised:
                self._promise(pid)

    def _patience_us(self) -> int:
        """G-33: the lowest gateway of a ring speaks for it, others if it does not."""
        first = all(at.gateways[0] == pid for pid, at in self.ports.items() if self._needed(at))
        return self.config.gv_min_us * (1 if first else 3)

    def _needed(self, at: RingPort) -> bool:
        """G-33: whether something waits for a word of the ring."""
        if at.asked or len(self.order.entries) < 2:
            return False
        if self.order.acknowledged.unreported.get(at.ring):
            return True
        entry = self.order.entries.get(at.ring)
        return entry is not None and any(
            each.items and each.items[-1][0] > entry.placeholder
            for each in self.order.entries.values()
        )

    def on_bound(self, env: Env, event: TimerFired) -> None:
        """MR-16, G-33: speak for the silent rings."""
        self._timed, self._stirred = False, True
        for pid, at in self.ports.items():
            if self._needed(at):
                at.asked = True
                receipts = self.order.acknowledged.report(at.ring, MOST_KEYS)
                self._to_say.append((pid, Bound(at.ring, receipts)))

    def on_kept(self, env: Env, event: TimerFired) -> None:
        """T4: nobody has passed it on."""
        self._watched, self._stirred = False, True
        self._to_say.extend(self.routing.overdue())
