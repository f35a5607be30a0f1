"""Two-phase: every destination proposes a priority, the sender makes the highest one final.

Source    K. P. Birman and T. A. Joseph, *Reliable Communication in the Presence of Failures*, ACM
          TOCS 5(1), 1987: ABCAST.
Rules     The sender's frame goes to all; each answers with a priority above all it has seen; the
          sender says the highest of them to all. A message is delivered when its priority is final
          and no other one that is here could get a lower one.
Differs   Messages of one sender are taken in its order, so that their priorities ascend.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.compared.config import Config
from ringcast.protocols.compared.member import Member, table
from ringcast.protocols.compared.messages import Ask, Data, Final, Propose

RANK_BITS = 8
"""Priorities end in the rank of who proposed them, so that no two are the same."""

MOST_ASKED = 64


class Timer(StrEnum):
    """There is one."""

    REPAIR = "two-phase repair"
    """An answer is missing."""


class Sent(msgspec.Struct):
    """A message of mine: who has proposed what, and whether that is final."""

    proposed: dict[NodeId, int]
    final: int = 0


class TwoPhase(Member):
    """A member: sender of its own messages, destination of all."""

    name = "two-phase"

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__(me, config)
        self.clock = 0
        self.taken = dict.fromkeys(self.ids, 0)
        """Of each sender, the last message that got a priority here; what comes out of order
        waits."""
        self.priority: dict[tuple[NodeId, int], int] = {}
        """Of each message that waits to be delivered, and of mine that some may not know of."""
        self.final: set[tuple[NodeId, int]] = set()
        self.sent: dict[int, Sent] = {}
        """My messages, until all know what is final."""
        self.known = {node: 0 for node in self.ids if node != me}
        """How many of mine each knows to be final, from the first on."""
        self.ended = dict.fromkeys(self.ids, 0)
        """The same of theirs, here."""
        self.armed = False
        self.before: dict[NodeId, int] = dict.fromkeys(self.ids, 0)
        """The last message of each that was known when the timer last fired: what is newer may be
        on its way."""

    def begin(self, env: Env) -> None:
        """Nothing: frames begin it."""

    def go_on(self, env: Env) -> None:
        """Everything goes out at once."""
        while len(self.sent) < self.settings.window:
            data = self.next_frame(env)
            if data is None:
                break
            env.broadcast(data)
            self.sent[data.k] = Sent({})
            self.take(env, self.me)
        self.watch(env)

    def on_data(self, env: Env, event: Received) -> None:
        """A priority for it, and for those that waited for it."""
        data = event.message
        assert isinstance(data, Data)
        sender = data.sender
        if self.fresh(data):
            self.keep(env, data)
            self.take(env, sender)
        elif data.k <= self.taken[sender]:
            priority = self.priority.get(data.key, 0)  # of one that is delivered, nothing is left
            env.send(sender, Propose(self.group, data.k, priority, self.ended[sender]))
        self.go_on(env)

    def take(self, env: Env, sender: NodeId) -> None:
        """The next messages of a sender get their priorities, above all that were seen."""
        while (key := (sender, self.taken[sender] + 1)) in self.data:
            self.taken[sender] += 1
            self.clock += 1
            priority = self.clock << RANK_BITS | self.places[self.me]
            self.priority[key] = priority
            if sender == self.me:
                self.propose(env, self.me, key[1], priority)
            else:
                env.send(sender, Propose(self.group, key[1], priority, self.ended[sender]))

    def on_propose(self, env: Env, event: Received) -> None:
        """A destination's priority, and how much it knows."""
        said = event.message
        assert isinstance(said, Propose)
        self.known[event.src] = max(self.known[event.src], min(said.done, self.last_k))
        self.propose(env, event.src, said.k, said.priority)
        least = min(self.known.values())
        for k in [k for k, sent in self.sent.items() if k <= least and sent.final]:
            del self.sent[k]
        self.go_on(env)

    def propose(self, env: Env, node: NodeId, k: int, priority: int) -> None:
        """The highest of all is final."""
        sent = self.sent.get(k)
        if sent is None or sent.final or not priority:
            return
        sent.proposed[node] = priority
        if len(sent.proposed) == len(self.ids):
            sent.final = max(sent.proposed.values())
            if len(self.ids) > 1:
                env.broadcast(Final(self.group, k, sent.final))
            else:
                del self.sent[k]
            self.conclude(env, self.me, k, sent.final)

    def on_final(self, env: Env, event: Received) -> None:
        """What the sender made final."""
        said = event.message
        assert isinstance(said, Final)
        if said.k <= self.taken[event.src]:
            self.conclude(env, event.src, said.k, said.priority)
        if said.asks:
            done = self.ended[event.src]
            env.send(event.src, Propose(self.group, said.k, 0, done))
        self.go_on(env)

    def conclude(self, env: Env, sender: NodeId, k: int, priority: int) -> None:
        """The priority of a message is final; deliver what no other can precede any more."""
        key = (sender, k)
        if key in self.final or k <= self.done[sender]:
            return
        self.priority[key] = priority
        self.final.add(key)
        while (sender, self.ended[sender] + 1) in self.final:
            self.ended[sender] += 1
        self.clock = max(self.clock, priority >> RANK_BITS)
        while self.priority:
            least = min(self.priority, key=self.priority.__getitem__)
            if least not in self.final:
                break
            self.hand_up(env, self.priority.pop(least), self.data.pop(least))
            self.final.discard(least)

    # --- what is lost ---

    def watch(self, env: Env) -> None:
        """Arm the timer while something is open."""
        if (self.sent or self.data) and not self.armed:
            self.armed = True
            env.set_timer(Timer.REPAIR, self.settings.repair_us)

    def on_repair(self, env: Env, event: TimerFired) -> None:
        """Repeat what got no answer; ask for what is not final, or does not come."""
        self.armed = False
        before, self.before = self.before, dict.fromkeys(self.ids, 0)
        for sender, k in self.data:
            self.before[sender] = max(self.before[sender], k)
        self.before[self.me] = self.last_k
        for k, sent in list(self.sent.items())[:MOST_ASKED]:
            if not sent.final and k <= before[self.me]:
                env.broadcast(self.data[self.me, k])
            elif sent.final and k == self.last_k == before[self.me]:
                env.broadcast(Final(self.group, k, sent.final, asks=True))
        for sender in self.ids:
            if sender != self.me:
                last = before[sender]
                lacks = [k for k in range(self.done[sender] + 1, last + 1) if self.lacks(sender, k)]
                if lacks:
                    env.send(sender, Ask(self.group, tuple(lacks[:MOST_ASKED])))
        self.watch(env)

    def lacks(self, sender: NodeId, k: int) -> bool:
        """Whether a message or its final priority is not here."""
        return (sender, k) not in self.data or (sender, k) not in self.final

    def on_ask(self, env: Env, event: Received) -> None:
        """Send again what is asked for."""
        ask = event.message
        assert isinstance(ask, Ask)
        for k in ask.ks:
            sent = self.sent.get(k)
            if sent is not None and sent.final:
                env.broadcast(Final(self.group, k, sent.final))
            elif sent is not None:
                env.broadcast(self.data[self.me, k])


MESSAGES = (Data, Propose, Final, Ask)

TwoPhase.table = table(
    {
        Data: TwoPhase.on_data,
        Propose: TwoPhase.on_propose,
        Final: TwoPhase.on_final,
        Ask: TwoPhase.on_ask,
    },
    {Timer.REPAIR: TwoPhase.on_repair},
    Timer,
)
