"""Members of iRBP wired by hand."""

from __future__ import annotations

from typing import Any

from driver import Wires

from ringcast.core.ids import NodeId
from ringcast.protocols.irbp import Config, Irbp
from ringcast.protocols.irbp.messages import Kind

__all__ = ["Sites"]


class Sites(Wires[Irbp]):
    """Sites ``1 .. n``, which start as the members of the first view."""

    def __init__(self, n: int = 3, **settings: Any) -> None:
        members = tuple(range(1, n + 1))
        self.config = Config(**{"members": members, **settings})
        super().__init__(n, lambda node: Irbp(node, self.config))
        for node in members:
            self.start(node)
        self.settle()

    def settle(self) -> None:
        """Let every frame arrive that is on its way."""
        while self.broadcasts or self.unicasts:
            self.step()

    def holder(self) -> NodeId:
        """Who has the token; all frames have arrived."""
        self.settle()
        (node,) = (node for node, machine in self.machines.items() if machine.holds_token)
        return node

    def blame(self, accused: NodeId, *judges: NodeId, for_long: bool = False) -> None:
        """These members suspect one; ``for_long``, by both limits."""
        for node in judges:
            detector = self[node].chooser.detector.machine
            detector.suspected.add(accused)
            if for_long:
                detector.excludable.add(accused)
            self.do(node, self[node].chooser.suspicions)

    def change(self, node: NodeId, kind: Kind) -> None:
        """Let a member ask for a change."""
        self.do(node, lambda env: self[node].chooser.start_change(env, kind, "a test"))
