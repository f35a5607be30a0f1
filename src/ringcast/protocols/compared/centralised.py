"""Centralised, as the source counts it: one site gives every message its place by a frame.

Source    J.-M. Chang and N. F. Maxemchuk, *Reliable Broadcast Protocols*, ACM TOCS 2(3), 1984.
Rules     The sender's frame goes to all. The site answers each with a frame that says its place.
          Everybody delivers by places, and asks the site for what is missing. The sender repeats
          what got no place.
Differs   The site stays the same, as the source of the comparison has it ("the central node").
          In the original the acknowledgement passes the token on.
"""

from __future__ import annotations

from enum import StrEnum

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.compared.config import CentralisedConfig
from ringcast.protocols.compared.member import Member, table
from ringcast.protocols.compared.messages import Ack, Data, Have, Nack

MOST_ASKED = 64
"""Places that one frame asks for."""


class Timer(StrEnum):
    """There is one."""

    REPAIR = "centralised repair"
    """Something is missing, or has no place, or somebody may lack the last."""


class Centralised(Member):
    """A member; the first of them is the site."""

    name = "centralised"

    def __init__(self, me: NodeId, config: CentralisedConfig) -> None:
        super().__init__(me, config)
        self.config = config
        self.site = self.ids[0]
        self.order: dict[int, tuple[NodeId, int]] = {}
        """Places above what all have delivered."""
        self.placed: dict[NodeId, int] = dict.fromkeys(self.ids, 0)
        """The last message of each that got a place; what comes out of order waits."""
        self.highest = 0
        self.have = dict.fromkeys(self.ids, 0)
        """At the site: how far each has delivered."""
        self.armed = False
        self.before = (0, 0)
        """Own messages and places known when the timer last fired: what is newer may be on its
        way."""

    def begin(self, env: Env) -> None:
        """Nothing: frames begin it."""

    def go_on(self, env: Env) -> None:
        """Everything goes out at once."""
        while (data := self.next_frame(env)) is not None:
            if self.me == self.site:
                if not self.config.relay:
                    env.broadcast(data)
                self.place(env)
            elif self.config.relay:
                env.send(self.site, data)
            else:
                env.broadcast(data)
        self.watch(env)

    def on_data(self, env: Env, event: Received) -> None:
        """Keep it; a frame with a place comes from the site."""
        data = event.message
        assert isinstance(data, Data)
        if self.me == self.site:
            self.have[event.src] = max(self.have[event.src], data.have)
            self.forget()
            if data.k <= self.placed[data.sender]:
                seq = next((s for s, key in self.order.items() if key == data.key), 0)
                if seq:
                    self.tell(env, seq)  # the sender has not heard of it
                return
        if self.fresh(data):
            self.keep(env, data)
        if data.seq:
            self.learn(data.seq, data.key)
        if self.me == self.site:
            self.place(env)
        self.deliver_ready(env)
        self.go_on(env)

    def place(self, env: Env) -> None:
        """At the site: the next places, to each sender's messages in their order."""
        for sender in self.ids:
            while (key := (sender, self.placed[sender] + 1)) in self.data:
                if len(self.order) > self.settings.window * len(self.ids):
                    return  # until those that lag say that they do not
                self.learn(self.highest + 1, key)
                self.tell(env, self.highest)
        self.deliver_ready(env)

    def tell(self, env: Env, seq: int) -> None:
        """At the site: a place; with the body where that has not gone to all."""
        sender, k = self.order[seq]
        if self.config.relay:
            data = self.data[sender, k]
            env.broadcast(
                Data(self.group, sender, k, data.level, data.contents, seq, self.delivered)
            )
        else:
            env.broadcast(Ack(self.group, seq, sender, k))

    def learn(self, seq: int, key: tuple[NodeId, int]) -> None:
        """A place in the order."""
        if seq > self.delivered:
            self.order[seq] = key
            self.highest = max(self.highest, seq)
            sender, k = key
            self.placed[sender] = max(self.placed[sender], k)

    def on_ack(self, env: Env, event: Received) -> None:
        """A place in the order."""
        ack = event.message
        assert isinstance(ack, Ack)
        if event.src != self.site:
            env.drop(self.name, "a place that is not the site's")
            return
        self.learn(ack.seq, (ack.sender, ack.k))
        self.deliver_ready(env)
        if ack.asks:
            env.send(self.site, Have(self.group, self.delivered))
        self.go_on(env)

    def deliver_ready(self, env: Env) -> None:
        """In the order of places; nothing is skipped."""
        while (key := self.order.get(self.delivered + 1)) in self.data:
            assert key is not None
            self.hand_up(env, self.delivered + 1, self.data[key])
            if self.me != self.site:
                del self.order[self.delivered], self.data[key]
        if self.me == self.site:
            self.have[self.me] = self.delivered
            self.forget()

    def forget(self) -> None:
        """At the site: what all have delivered."""
        least = min(self.have.values())
        for seq in [seq for seq in self.order if seq <= least]:
            del self.data[self.order.pop(seq)]

    # --- what is lost ---

    def watch(self, env: Env) -> None:
        """Arm the timer while something is open."""
        if self.open and not self.armed:
            self.armed = True
            env.set_timer(Timer.REPAIR, self.settings.repair_us)

    @property
    def open(self) -> bool:
        """Whether there is anything to wait for."""
        lags = self.me == self.site and min(self.have.values()) < self.highest
        return bool(self.under_way) or self.highest > self.delivered or lags

    def on_repair(self, env: Env, event: TimerFired) -> None:
        """Repeat what got no place, ask for what is missing; the site asks who lags."""
        self.armed = False
        mine, known = self.before
        self.before = (self.last_k, self.highest)
        for key in sorted(key for key in self.data if key[0] == self.me and key[1] <= mine):
            if self.me != self.site and key not in self.order.values():
                data = self.data[key]
                if self.config.relay:
                    env.send(self.site, data)
                else:
                    env.broadcast(data)
        missing = [
            seq
            for seq in range(self.delivered + 1, known + 1)
            if self.order.get(seq) not in self.data
        ]
        if missing and self.me != self.site:
            env.send(self.site, Nack(self.group, tuple(missing[:MOST_ASKED])))
        if self.me == self.site and self.order and known == self.highest:
            last = max(self.order)
            env.broadcast(Ack(self.group, last, *self.order[last], asks=True))
        self.go_on(env)

    def on_nack(self, env: Env, event: Received) -> None:
        """The site sends again what it keeps, body and place."""
        nack = event.message
        assert isinstance(nack, Nack)
        for seq in nack.places:
            if (key := self.order.get(seq)) in self.data:
                assert key is not None
                data = self.data[key]
                env.broadcast(
                    Data(self.group, *key, data.level, data.contents, seq, self.delivered)
                )

    def on_have(self, env: Env, event: Received) -> None:
        """At the site: how far a member is."""
        have = event.message
        assert isinstance(have, Have)
        self.have[event.src] = max(self.have[event.src], min(have.seq, self.highest))
        self.forget()
        self.place(env)
        self.go_on(env)


MESSAGES = (Data, Ack, Nack, Have)

Centralised.table = table(
    {
        Data: Centralised.on_data,
        Ack: Centralised.on_ack,
        Nack: Centralised.on_nack,
        Have: Centralised.on_have,
    },
    {Timer.REPAIR: Centralised.on_repair},
    Timer,
)
