"""Members of token-fd wired by hand, and frames as a peer would send them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from driver import Wires

from ringcast.blocks.packing import Contents
from ringcast.blocks.ring_detector import Timer as DetectorTimer
from ringcast.core.effects import Broadcast, Deliver, Effect, Send
from ringcast.core.ids import Level, NodeId
from ringcast.protocols.token_fd import Config, TokenFd
from ringcast.protocols.token_fd.config import LAN, PAPER
from ringcast.protocols.token_fd.messages import Body, Token

__all__ = ["LAN", "PAPER", "Group"]


class Group(Wires[TokenFd]):
    """Members ``1 .. n``; ids are places plus one, and a token does not rest."""

    def __init__(self, n: int = 3, config: Config = LAN, **settings: Any) -> None:
        fields: dict[str, Any] = {name: getattr(config, name) for name in config.__struct_fields__}
        members = tuple(range(1, n + 1))
        self.config = Config(**{**fields, "members": members, "hold_us": 0, **settings})
        super().__init__(n, lambda node: TokenFd(node, self.config))

    def up(self, *nodes: NodeId) -> Group:
        """Start these, or all; nothing that they send has arrived."""
        for node in nodes or self.ids:
            self.start(node)
        return self

    def suspect(self, node: NodeId) -> list[Effect]:
        """Let ``node`` lose patience with its predecessor."""
        return self.fire(node, DetectorTimer.WATCH)

    def until_hop(self, hop: int) -> None:
        """Let frames arrive until the token of this hop was sent."""
        node = self.ids[hop % len(self.ids)]
        self.run(lambda: (token := self[node].sent) is not None and token.hop >= hop)

    def token(
        self,
        hop: int,
        proposal: tuple[int, ...] = (),
        votes: int = 1,
        adeliv: tuple[int, ...] = (),
        base: tuple[int, ...] | None = None,
        known: tuple[int, ...] | None = None,
        held: dict[tuple[int, int], int] | None = None,
        bodies: tuple[Body, ...] = (),
    ) -> Token:
        """A token; unless ``held`` says who holds what, all hold all that it speaks of."""
        n = len(self.ids)
        nothing = (0,) * n
        ends = list(base or nothing)
        for at in range(0, len(adeliv), 2):
            ends[adeliv[at]] += adeliv[at + 1]
        for at in range(0, len(proposal), 2):
            ends[proposal[at]] += proposal[at + 1]
        matrix = tuple(ends) * n
        if held is not None:
            matrix = tuple(held.get((j, i), 0) for j in range(n) for i in range(n))
        return Token(
            self.config.group,
            hop,
            hop - 1,
            votes,
            proposal,
            base or nothing,
            adeliv,
            known or nothing,
            matrix,
            bodies,
        )

    def body(self, origin: int, number: int, *bodies: bytes) -> Body:
        """Frame ``number`` of the member at place ``origin``."""
        contents = Contents(number, bodies or (b"%d.%d" % (origin, number),))
        return Body(self.config.group, origin, number, Level.AGREED, contents)


def tokens(effects: Iterable[Effect]) -> dict[NodeId, Token]:
    """Tokens sent, by receiver."""
    return {
        e.to: e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Token)
    }


def bodies_sent(effects: Iterable[Effect]) -> list[Body]:
    """Bodies broadcast."""
    return [e.message for e in effects if isinstance(e, Broadcast) and isinstance(e.message, Body)]


def told(effects: Iterable[Effect]) -> list[bytes]:
    """What went up, in order."""
    return [body for e in effects if isinstance(e, Deliver) for body in e.batch.bodies]
