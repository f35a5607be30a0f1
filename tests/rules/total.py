"""Members of TOTAL wired by hand, and frames as a peer would send them."""

from __future__ import annotations

from typing import Any, TypeVar

from driver import Wires

from ringcast.blocks import channel, detector
from ringcast.blocks.packing import Contents
from ringcast.blocks.view_messages import Leave
from ringcast.core.effects import Broadcast, Deliver, Effect, Note, Send
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.inputs import Received
from ringcast.protocols.total import Config, Mode, Total
from ringcast.protocols.total.messages import Bcast, Request
from ringcast.protocols.total.state import Phase, Timer

E = TypeVar("E")

BELOW = (*channel.Timer, *detector.Timer)


class Group(Wires[Total]):
    """Members ``1 .. n``; what they send arrives when a test says so."""

    def __init__(self, n: int = 3, mode: str = "agreed", **settings: Any) -> None:
        self.config = Config(mode=Mode(mode), **settings)
        super().__init__(n, lambda node: Total(node, self.config))

    def settle(self) -> None:
        """Let everything that is on its way arrive, and what it leads to."""
        for _ in range(5000):
            if not self.broadcasts and not self.unicasts:
                return
            self.step()
        raise AssertionError("there is no end to it")

    def together(self) -> Group:
        """All start and share view (8,1); nothing is on its way."""
        for node in self.ids:
            self.start(node)
        self.settle()
        self.fire(1, self.timer(1, "membership merge"))
        self.settle()
        assert {self[node].view for node in self.ids} == {ViewId(8, 1)}
        assert {self[node].phase for node in self.ids} == {Phase.ACTIVE}
        for node in self.ids:
            for timer in (Timer.NEW_VIEW, *BELOW):
                self.timers[node].pop(timer, None)
        return self

    def timer(self, node: NodeId, name: str) -> Any:
        """A timer that is set, by its name."""
        return next(timer for timer in self.timers[node] if timer == name)

    def gone(self, *nodes: NodeId) -> None:
        """These leave: they crash, and the others hear of it at once."""
        leaves = [(node, Leave(self[node].view), self.boots[node]) for node in nodes]
        for node in nodes:
            self.crash(node)
        for node, leave, boot in leaves:
            for other in sorted(self.machines):
                self.handle(other, Received(node, boot, leave))

    # --- frames -------------------------------------------------------------------------------

    def bcast(
        self,
        seq: int,
        origin: NodeId = 1,
        request: int = 0,
        body: bytes = b"x",
        level: Level = Level.AGREED,
        **changes: Any,
    ) -> Bcast:
        """A numbered message of view (8,1), as the sequencer 1 would send it."""
        values: dict[str, Any] = {"view": ViewId(8, 1), "first": 1, "stable": 0} | changes
        view, first, stable = values["view"], values["first"], values["stable"]
        contents = values.get("contents") or Contents(request or seq, (body,))
        return Bcast(view, seq, first, stable, origin, request or seq, level, contents)

    def request(self, number: int, lowest: int = 1, body: bytes = b"x") -> Request:
        """A request in view (8,1)."""
        return Request(ViewId(8, 1), number, lowest, Level.AGREED, Contents(number, (body,)))


def sent(effects: list[Effect], kind: type[E]) -> list[E]:
    """The messages of one kind that were sent or broadcast."""
    frames = (e.message for e in effects if isinstance(e, Send | Broadcast))
    return [message for message in frames if isinstance(message, kind)]


def unicasts(effects: list[Effect], kind: type[E]) -> list[tuple[NodeId, E]]:
    """The messages of one kind that were sent to one member, and to whom."""
    return [(e.to, e.message) for e in effects if isinstance(e, Send) and type(e.message) is kind]


def broadcasts(effects: list[Effect], kind: type[E]) -> list[E]:
    """The messages of one kind that were broadcast."""
    return [e.message for e in effects if isinstance(e, Broadcast) and type(e.message) is kind]


def delivered(effects: list[Effect]) -> list[int]:
    """The numbers of the messages delivered."""
    return [e.batch.seq for e in effects if isinstance(e, Deliver)]


def bodies(effects: list[Effect]) -> list[bytes]:
    """The messages delivered."""
    return [body for e in effects if isinstance(e, Deliver) for body in e.batch.bodies]


def drops(effects: list[Effect]) -> list[str]:
    """Why inputs were dropped."""
    return [e.text for e in effects if isinstance(e, Note) and e.what == "drop"]
