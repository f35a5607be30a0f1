"""Flow control over the whole network (MR-39 to MR-44, as G-39 mends them; W1 to W5).

A processor whose send queue is full says so on the token, and all that hear of it refuse their
applications' messages. The dissertation passes on one bit, which two gateways between the same
rings can keep alive for ever. Here the token carries a small table: for each processor that has
ever been congested a version and a level, from 0 to ``FULL``. Everybody merges by the higher
version, so only the processor itself ends what it began. Forwarded messages and those of the
protocol are exempt (G-40).

With ``adaptive``, a gateway tells how long the queue is of what it passes on, in steps, and
everybody sends less of its own before it is full (W1 to W3). Without, there are two levels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any

import msgspec

from ringcast.blocks.packing import Outbox, QueueBounds
from ringcast.core.ids import NodeId
from ringcast.protocols.totem_multi.config import Config

STEPS = 8
FULL = STEPS - 1
"""The level at which applications have to wait (MR-41)."""

LAST_VERSION = 2**60
FREE = 2**31
"""A window that bounds nothing."""

Told = Annotated[int, msgspec.Meta(ge=0, le=LAST_VERSION)]
Blocks = Annotated[tuple[tuple[NodeId, Told], ...], msgspec.Meta(max_length=1024)]
"""Processors, ascending, each with its version times ``STEPS`` plus its level."""


class SendQueues(list[Outbox[Any]]):
    """The queues of a processor, one for each interface, and how full they are."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._adaptive, self._max_message = config.adaptive, config.max_message
        bounds = config.max_queue, config.min_queue, config.max_queue_bytes
        self._bounds, self._own = QueueBounds(*bounds), QueueBounds(*bounds)

    def level(self) -> int:
        """MR-39, MR-40: full or not. W1: or in steps, and only of what a gateway passes on: one
        whose application has much to say keeps nobody waiting but that."""
        if not self._adaptive:
            return FULL if self._bounds.full_any(self) else 0
        count = size = 0
        for queue in self:
            if queue.ahead > count:
                count = queue.ahead
            if 2 * queue.size > self._bounds.max_bytes:
                size = max(size, queue.bytes_ahead())
        if self._bounds.full(count, size):
            return FULL
        return max(count * FULL // self._bounds.high, size * FULL // self._bounds.max_bytes)

    @property
    def takes_own(self) -> bool:
        """W1: whether there is room for what the application says. MR-41 asks everybody's."""
        if not self._adaptive:
            return True
        queue = self[0]
        return not self._own.full(len(queue) - queue.ahead, queue.size)

    def allow(self, bodies: tuple[bytes, ...]) -> bool:
        """Whether a submission is small enough for empty queues."""
        return self._bounds.allow(bodies, self._max_message)


class Brakes:
    """Who is congested, as one processor knows it. A gateway has one for all its rings (MR-44).

    ``level`` says how far the processor's own queues are; ``most`` is how many frames a processor
    may send in a visit, or 0 if its window does not follow the levels."""

    def __init__(self, me: NodeId, level: Callable[[], int], most: int = 0) -> None:
        self._me, self._level, self._most = me, level, most
        self._nodes: Collection[NodeId] = (me,)
        self.table: dict[NodeId, int] = {}
        self.mine = 0
        """My own level. A field, for every input asks whether it is to be looked at."""
        self.window = FREE
        """W2: frames of its own application's messages that this processor may send in a visit."""

    @property
    def blocked(self) -> bool:
        """MR-41: whether applications have to wait."""
        return any(told % STEPS == FULL for told in self.table.values())

    def look(self) -> None:
        """MR-39, MR-40: something came into my queues, or left them."""
        self.congested(self._level())

    def congested(self, level: int) -> None:
        """MR-39, MR-40, W1: my queues are so full now."""
        if level != self.mine:
            version = self.table.get(self._me, 0) // STEPS + 1
            self.table[self._me] = min(version * STEPS + level, LAST_VERSION)
            self.mine = level

    def hear(self, blocks: Blocks) -> None:
        """MR-42, MR-43, G-39: merge; of myself I know better, and say so in a higher version."""
        for node, told in blocks:
            if told <= self.table.get(node, 0) or node not in self._nodes:
                continue
            if node == self._me:
                told = min((told // STEPS + 1) * STEPS + self.mine, LAST_VERSION)
            self.table[node] = told

    def rotate(self) -> None:
        """W2, W3: once in a rotation, the window falls by as many eighths as the worst level, and
        rises by one frame when nobody is congested."""
        if not self._most:
            return
        worst = max((told % STEPS for told in self.table.values()), default=0)
        if worst:
            window = min(self.window, self._most)
            self.window = max(1, window * (STEPS - worst) // STEPS)
        elif self.window < FREE:
            self.window = self.window + 1 if self.window < self._most else FREE

    def told(self) -> Blocks:
        """MR-44: what the token leaves with."""
        return tuple(sorted(self.table.items())) if self.table else ()

    def keep(self, nodes: Collection[NodeId]) -> None:
        """G-39: at a topology change, forget those that are gone; they would never end it."""
        self._nodes = nodes
        self.table = {n: told for n, told in self.table.items() if n in nodes}
        self.mine = self.table.get(self._me, 0) % STEPS
