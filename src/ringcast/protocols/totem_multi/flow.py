"""Flow control over the whole network (MR-39 to MR-44, as G-39 mends them).

A processor whose send queue is full says so on the token, and all that hear of it refuse their
applications' messages. The dissertation passes on one bit, which two gateways between the same
rings can keep alive for ever. Here the token carries a small table: for each processor that has
ever been congested a version, odd while it is. Everybody merges by the higher version, so only the
processor itself ends what it began. Forwarded messages and those of the protocol are exempt (G-40).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated

import msgspec

from ringcast.core.ids import NodeId, Seq

Blocks = Annotated[tuple[tuple[NodeId, Seq], ...], msgspec.Meta(max_length=1024)]
"""Processors and versions, ascending."""


class Brakes:
    """Who is congested, as one processor knows it. A gateway has one for all its rings (MR-44).

    ``full`` says whether the processor's own queues are."""

    def __init__(self, me: NodeId, full: Callable[[], bool]) -> None:
        self._me, self._full = me, full
        self._nodes: Collection[NodeId] = (me,)
        self._versions: dict[NodeId, int] = {}
        self.mine = False
        """Whether my own queues are among the reasons, so that it has to be looked at what left
        them. A field, for every input asks."""

    @property
    def blocked(self) -> bool:
        """MR-41: whether applications have to wait."""
        return any(version % 2 for version in self._versions.values())

    def look(self) -> None:
        """MR-39, MR-40: something came into my queues, or left them."""
        self.congested(self._full())

    def congested(self, full: bool) -> None:
        """MR-39, MR-40: my queues are full, or have room again."""
        version = self._versions.get(self._me, 0)
        if full != bool(version % 2):
            self._versions[self._me] = version + 1
        self.mine = full

    def hear(self, blocks: Blocks) -> None:
        """MR-42, MR-43, G-39: merge; of myself I know better, and say so in a higher version."""
        for node, version in blocks:
            mine = self._versions.get(node, 0)
            if version <= mine or node not in self._nodes:
                continue
            if node == self._me:
                version += (version - mine) % 2
            self._versions[node] = version

    def told(self) -> Blocks:
        """MR-44: what the token leaves with."""
        return tuple(sorted(self._versions.items())) if self._versions else ()

    def keep(self, nodes: Collection[NodeId]) -> None:
        """G-39: at a topology change, forget those that are gone; they would never end it."""
        self._nodes = nodes
        self._versions = {n: v for n, v in self._versions.items() if n in nodes}
        self.mine = self.mine and self._me in nodes
