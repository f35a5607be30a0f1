"""Members of the counter-based protocol wired by hand, and frames as a peer would send them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from driver import Wires, only, sent

from ringcast.blocks.packing import Contents
from ringcast.core.effects import Deliver, Effect
from ringcast.core.ids import Level, NodeId
from ringcast.protocols.counter import Config, CounterBased
from ringcast.protocols.counter.messages import Entry, Msg, PassingList, Seat, Token
from ringcast.protocols.counter.state import Timer

__all__ = ["Group", "Timer", "msgs", "said", "settle", "tokens"]


class Group(Wires[CounterBased]):
    """Members ``1 .. n``. The owner keeps the token until a test lets its time run out."""

    def __init__(self, n: int = 3, **settings: Any) -> None:
        members = tuple(range(1, n + 1))
        self.config = Config(**{"members": members, "token_us": 1_000, "idle_us": 0, **settings})
        super().__init__(n, lambda node: CounterBased(node, self.config))

    def up(self, *nodes: NodeId) -> Group:
        """Start these, or all; nothing that they send has arrived."""
        for node in nodes or self.ids:
            self.start(node)
        return self

    def owner(self) -> NodeId:
        """Who has the token; all broadcasts have arrived."""
        self.quiet()
        (node,) = (node for node, machine in self.machines.items() if machine.held is not None)
        return node

    def pass_on(self, count: int = 1) -> list[Effect]:
        """Let the owner's time run out so often, and everybody hear of it; the last effects."""
        effects: list[Effect] = []
        for _ in range(count):
            effects = self.fire(self.owner(), Timer.OWNER)
            self.quiet()
            while self.unicasts:
                self.step()
            self.quiet()
        return effects

    def told(self, node: NodeId) -> list[bytes]:
        """All that a member has delivered, in order."""
        return said(self.log[node])

    def list(self, *members: NodeId, no: int = 1, first: int = 0) -> PassingList:
        """A list of members that were there from the beginning."""
        return PassingList(no, first, tuple(Seat(m, 0, 0) for m in members or self.ids))

    def token(
        self, c: NodeId, n: NodeId, t: int, hop: int, *entries: Entry, **more: object
    ) -> Token:
        """A token of the first epoch."""
        fields = {"epoch": 0, "lists": (self.list(),), **more}
        return Token(self.config.group, fields.pop("epoch"), hop, c, n, t, entries, **fields)  # type: ignore[arg-type]

    def entry(self, sender: NodeId, cycle: int, ids: tuple[int, ...], *acks: NodeId) -> Entry:
        """What a sender sent to all in a cycle."""
        return Entry(sender, cycle, ids[0], ids, (), acks, 0)

    def msg(
        self, sender: NodeId, p: int, k: int, body: bytes = b"", to: tuple[NodeId, ...] = ()
    ) -> Msg:
        """A message as its sender stamps it."""
        contents = Contents(k, (body or b"%d.%d" % (sender, k),))
        return Msg(self.config.group, sender, p, k, to, Level.AGREED, contents)


def tokens(effects: Iterable[Effect]) -> list[Token]:
    """Tokens passed on or sent again."""
    return sent(effects, Token)


def msgs(effects: Iterable[Effect]) -> list[Msg]:
    """Messages sent or sent again."""
    return sent(effects, Msg)


def said(effects: Iterable[Effect]) -> list[bytes]:
    """What went up, in order."""
    return [body for effect in only(effects, Deliver) for body in effect.batch.bodies]


def settle(group: Group) -> None:
    """Let everything on its way arrive."""
    while group.broadcasts or group.unicasts:
        group.step()
