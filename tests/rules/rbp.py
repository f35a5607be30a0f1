"""Members of RBP wired by hand, and frames as a peer would send them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from driver import Wires, only, sent

from ringcast.blocks.packing import Contents
from ringcast.core.effects import Deliver, Effect, InstallView
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.protocols.rbp import Config, Rbp
from ringcast.protocols.rbp.epochs import Data, Epoch, EpochConfig, Ids
from ringcast.protocols.rbp.messages import Ack
from ringcast.protocols.rbp.originator import ReformTimer
from ringcast.protocols.rbp.state import Phase, Timer

__all__ = ["FIRST", "Group", "Phase", "ReformTimer", "Timer", "acks", "said", "views"]

FIRST = Epoch(ViewId(1, 1))
"""The first list of sites that start together."""


class Group(Wires[Rbp]):
    """Sites ``1 .. n``."""

    def __init__(self, n: int = 3, **settings: Any) -> None:
        members = tuple(range(1, n + 1))
        self.config = Config(**{"members": members, **settings})
        super().__init__(n, lambda node: Rbp(node, self.config))

    def up(self, *nodes: NodeId) -> Group:
        """Start these, or all, and let them form a list; its first number is the token's, which
        rests at the second member."""
        for node in nodes or self.ids:
            self.start(node)
        return self.form()

    def form(self) -> Group:
        """Let those that are in no list ask for one until all are in one together."""
        for node in self.out:
            self.fire(node, ReformTimer.JOIN)
        self.settle()
        self.now_us += 2 * self.config.join_us
        if self.out:
            self.fire(min(self.out), ReformTimer.JOIN)
            self.settle()
        if self.out:  # whoever has not answered is not waited for
            self.votes_in(min(self.out))
        assert not self.out
        return self

    @property
    def out(self) -> list[NodeId]:
        """Sites that are up and in no list."""
        return [n for n, machine in sorted(self.machines.items()) if machine.phase is Phase.OUT]

    def settle(self) -> None:
        """Let every frame arrive that is on its way."""
        while self.broadcasts or self.unicasts:
            self.step()

    def holder(self) -> NodeId:
        """Who has the token; all frames have arrived."""
        self.settle()
        (node,) = (node for node, machine in self.machines.items() if machine.holds_token)
        return node

    def pass_on(self, count: int = 1) -> list[Effect]:
        """Let the token's rest be over so often; the effects at the last holder."""
        effects: list[Effect] = []
        for _ in range(count):
            effects = self.fire(self.holder(), Timer.IDLE)
            self.settle()
        return effects

    def token_at(self, node: NodeId) -> Group:
        """Pass the token on until it rests there."""
        while self.holder() != node:
            self.pass_on()
        return self

    def reform(self, originator: NodeId) -> list[Effect]:
        """A member finds that nothing goes on; the effects at once."""
        return self.fire(originator, Timer.ACT)

    def votes_in(self, originator: NodeId) -> None:
        """Let the time for votes run out, while frames arrive."""
        for _ in range(16):
            self.settle()
            for node in sorted(self.machines):
                if Timer.NACK in self.timers[node]:
                    self.fire(node, Timer.NACK)
            self.settle()
            if ReformTimer.VOTE not in self.timers[originator]:
                return
            self.fire(originator, ReformTimer.VOTE)

    def told(self, node: NodeId) -> list[bytes]:
        """All that a member has delivered, in order."""
        return said(self.log[node])

    def list(self, node: NodeId) -> EpochConfig:
        """The list that a member is in."""
        current = self[node].current
        assert current is not None
        return current

    def ack(
        self, number: int, issuer: NodeId, *ids: Ids, epoch: Epoch = FIRST, next: NodeId = 0
    ) -> Ack:
        """An ACK as a member issues it."""
        following = next or self.list(issuer).after(issuer)
        return Ack(self.config.group, epoch, number, ids, issuer, following)

    def data(
        self, source: NodeId, counter: int, body: bytes = b"", view: ViewId = FIRST.view
    ) -> Data:
        """A body as its source sends it."""
        contents = Contents(counter, (body or b"%d.%d" % (source, counter),))
        return Data(self.config.group, view, source, counter, Level.AGREED, contents)


def said(effects: Iterable[Effect]) -> list[bytes]:
    """The bodies delivered."""
    return [body for each in only(effects, Deliver) for body in each.batch.bodies]


def views(effects: Iterable[Effect]) -> list[tuple[NodeId, ...]]:
    """The members of each view installed."""
    return [each.members for each in only(effects, InstallView)]


def acks(effects: Iterable[Effect]) -> list[Ack]:
    """ACKs issued or sent again."""
    return sent(effects, Ack)
