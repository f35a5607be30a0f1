"""Optimistic: everything is delivered at once, tentatively, and undone if the order was another.

Source    J.-Y. Chung, J. W. S. Liu, K.-J. Lin, *Optimistic Token-Driven Reliable Sequenced
          Broadcast Protocols*, ICPP 19, 1990, as far as the source of the comparison tells of it.
Rules     Everybody may send one message in a token period, and delivers tentatively what it gets as
          it gets it. The owner of the token acknowledges a batch: its token lists what it has got
          and nobody listed, in the order of all. Who had another order undoes what was too early.
          Who lacks a listed message asks all to roll back to what is committed, and its sender to
          send it again. What everybody has is committed.
Differs   Only tentative deliveries are undone: bodies that are here need not come again. They are
          notes of the trace (``tentative``, ``rollback``); what the application of a node gets is
          what was committed.
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received
from ringcast.protocols.compared.config import MOST_WINDOW, RingConfig
from ringcast.protocols.compared.member import shown, table
from ringcast.protocols.compared.messages import BatchToken, Data, Rollback
from ringcast.protocols.compared.ring import RingMember, Timer

Key = tuple[NodeId, int]


class Optimistic(RingMember[BatchToken]):
    """A member."""

    name = "optimistic"

    def __init__(self, me: NodeId, config: RingConfig) -> None:
        super().__init__(me, config)
        self.tentative: deque[Key] = deque()
        """Delivered tentatively and not committed, in that order."""
        self.order: dict[int, Key] = {}
        """What is listed and not committed, by place."""
        self.asked: dict[int, int] = {}
        """When we last asked for what has this place."""
        self.period = -1
        """The token period in which we sent last, and how much."""
        self.sent_in_period = 0

    def first(self) -> BatchToken:
        """Nothing was sent."""
        nothing = (0,) * len(self.ids)
        return BatchToken(self.group, 0, self.ids[-1], self.me, 0, (), nothing, nothing)

    def go_on(self, env: Env) -> None:
        """One message in a token period."""
        period = self.newest.hop if self.newest is not None else 0
        if period != self.period:
            self.period, self.sent_in_period = period, 0
        while self.sent_in_period < self.config.each_time:
            data = self.next_frame(env)
            if data is None:
                return
            self.sent_in_period += 1
            if len(self.ids) > 1:
                env.broadcast(data)
            self.try_it(env, data.key)

    def on_data(self, env: Env, event: Received) -> None:
        """Deliver it at once, tentatively: after what is here, or where it was listed."""
        data = event.message
        assert isinstance(data, Data)
        if not self.fresh(data):
            env.drop(self.name, "a message that is here")
            return
        self.keep(env, data)
        if data.key in self.order.values():
            self.straighten(env)
        else:
            self.try_it(env, data.key)

    def try_it(self, env: Env, key: Key) -> None:
        """A tentative delivery."""
        self.tentative.append(key)
        env.note(self.name, "tentative", data=shown(self.data[key]))

    def undo(self, env: Env, kept: int) -> list[Key]:
        """Take back all tentative deliveries but the first ones."""
        undone = [self.tentative.pop() for _ in range(len(self.tentative) - kept)]
        if undone:
            env.note(self.name, "rollback", f"{len(undone)} undone", data=(len(undone),))
        return undone[::-1]

    def straighten(self, env: Env) -> None:
        """The order is that of the token as far as it goes; the rest follows as it came."""
        wanted: list[Key] = []
        for seq in sorted(self.order):
            if self.order[seq] not in self.data:
                break
            wanted.append(self.order[seq])
        kept = 0
        for mine, due in zip(self.tentative, wanted, strict=False):
            if mine != due:
                break
            kept += 1
        stuck = len(wanted) < len(self.order)
        listed = set(self.order.values())
        if kept == len(wanted) and not (stuck and len(self.tentative) > kept):
            return  # it came as listed
        rest = [key for key in self.undo(env, kept) if key not in listed]
        for key in wanted[kept:]:
            self.try_it(env, key)
        if not stuck:
            for key in rest:
                self.try_it(env, key)

    def look(self, env: Env, token: BatchToken) -> None:
        """Learn the order, commit what everybody has, ask for what is lost."""
        pairs = iter(token.order)
        for seq, key in enumerate(zip(pairs, pairs, strict=True), token.base + 1):
            if seq > self.delivered:
                self.order[seq] = key
        self.straighten(env)
        for seq in range(self.delivered + 1, min(token.have) + 1):
            key = self.order.pop(seq)
            committed = self.tentative.popleft()
            assert committed == key
            self.hand_up(env, seq, self.data.pop(key))
        self.ask(env)
        self.go_on(env)

    def ask(self, env: Env) -> None:
        """What is listed and not here: everybody is to roll back, and its sender to send again."""
        lost: list[int] = []
        for seq, key in sorted(self.order.items()):
            recent = env.now_us - self.asked.get(seq, -self.settings.repair_us)
            if key not in self.data and recent >= self.settings.repair_us:
                self.asked[seq] = env.now_us
                lost += (seq, *key)
        if lost:
            env.broadcast(Rollback(self.group, tuple(lost[: 3 * MOST_WINDOW])))
        for seq in [seq for seq in self.asked if seq <= self.delivered]:
            del self.asked[seq]

    def on_rollback(self, env: Env, event: Received) -> None:
        """Undo what is not committed; deliver it again, in the order known, up to what is lost."""
        rollback = event.message
        assert isinstance(rollback, Rollback)
        words = iter(rollback.lost)
        for _, sender, k in zip(words, words, words, strict=True):
            if sender == self.me and (sender, k) in self.data:
                env.broadcast(self.data[sender, k])
        for key in self.undo(env, 0):
            self.try_it(env, key)

    def own(self, env: Env, token: BatchToken) -> BatchToken:
        """Nothing is the owner's alone before its time is over."""
        return token

    def next_token(self, env: Env, token: BatchToken) -> BatchToken:
        """Acknowledge the batch: list what is here and nobody has listed, each sender's in its
        order; say how far we have everything."""
        order, listed = list(token.order), list(token.listed)
        last = token.base + len(order) // 2
        for place, sender in enumerate(self.ids):
            while (key := (sender, listed[place] + 1)) in self.data:
                listed[place] += 1
                last += 1
                order += key
                self.order[last] = key
        have = list(token.have)
        have[self.place] = self.delivered
        while self.order.get(have[self.place] + 1) in self.data:
            have[self.place] += 1
        return replace(
            token,
            hop=token.hop + 1,
            c=self.me,
            n=self.successor,
            base=min(token.have),
            order=tuple(order[2 * (min(token.have) - token.base) :]),
            listed=tuple(listed),
            have=tuple(have),
        )


MESSAGES = (Data, BatchToken, Rollback)

Optimistic.table = table(
    {
        Data: Optimistic.on_data,
        BatchToken: Optimistic.on_token,
        Rollback: Optimistic.on_rollback,
    },
    {Timer.OWNER: Optimistic.on_owner, Timer.REPAIR: Optimistic.on_repair},
    Timer,
)
