"""Scribe: what one processor does, written down as trace events.

The simulator and the live runtime use the same one, so their traces cannot differ in form.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from ringcast.core.effects import Deliver, InstallView, Note, Originate, Uncertain
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.to_some import DeliveredTo, SubmittedTo
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Installed,
    Noted,
    Originated,
    ReportedUncertain,
    Restarted,
    Submit,
    TraceEvent,
    digests,
)


class Scribe:
    """Numbers the events of one processor over all its incarnations and hands them on."""

    __slots__ = ("_emit", "_n", "_submitted", "_view", "incarnation", "node")

    def __init__(self, node: NodeId, emit: Callable[[TraceEvent], None], n: int = 0) -> None:
        self.node = node
        self.incarnation = 0
        self._emit = emit
        self._n = n
        self._submitted = 0
        self._view: ViewId | None = None

    def started(self, t_us: int, incarnation: int, storage_kept: bool = True) -> None:
        """An incarnation begins; its submissions are numbered from 1."""
        self._n += 1
        self.incarnation = incarnation
        self._submitted = 0
        self._view = None
        self._emit(Restarted(self.node, self._n, t_us, incarnation, storage_kept))

    def crashed(self, t_us: int, reason: str = "") -> None:
        """It ends."""
        self._n += 1
        self._emit(Crashed(self.node, self._n, t_us, reason))

    def submitted(
        self,
        t_us: int,
        bodies: tuple[bytes, ...],
        level: Level,
        to: tuple[NodeId, ...] = (),
        group: int = 0,
    ) -> None:
        """The application's messages were accepted."""
        self._n += 1
        first = self._submitted + 1
        self._submitted += len(bodies)
        if to or group:
            some = SubmittedTo(to, self.incarnation, first, level, digests(bodies), group)
            self._emit(some.noted(self.node, self._n, t_us))
            return
        sizes = tuple(map(len, bodies))
        self._emit(
            Submit(
                self.node,
                self._n,
                t_us,
                self.incarnation,
                first,
                level,
                sizes,
                digests(bodies),
            )
        )

    def originated(self, t_us: int, effect: Originate) -> None:
        """Messages got their place in the order."""
        self._n += 1
        batch = effect.batch
        self._emit(
            Originated(
                self.node,
                self._n,
                t_us,
                batch.ring,
                batch.seq,
                batch.level,
                batch.first,
                digests(batch.bodies),
                batch.sender,
            )
        )

    def delivered(self, t_us: int, effect: Deliver) -> None:
        """Messages went up."""
        self._n += 1
        batch = effect.batch
        if batch.to or batch.group:
            some = DeliveredTo.of(effect.view, batch)
            self._emit(some.noted(self.node, self._n, t_us))
            return
        self._emit(
            Delivered(
                self.node,
                self._n,
                t_us,
                effect.view,
                batch.ring,
                batch.seq,
                batch.sender,
                batch.level,
                batch.first,
                digests(batch.bodies),
            )
        )

    def installed(self, t_us: int, effect: InstallView) -> None:
        """The configuration changed."""
        self._n += 1
        prev, self._view = self._view, effect.view
        self._emit(
            Installed(
                self.node,
                self._n,
                t_us,
                effect.view,
                effect.members,
                effect.transitional,
                effect.ring,
                effect.seq,
                effect.conf_id,
                prev,
            )
        )

    def uncertain(self, t_us: int, effect: Uncertain) -> None:
        """The application was told that some of its messages are uncertain."""
        self._n += 1
        self._emit(ReportedUncertain(self.node, self._n, t_us, effect.first, effect.count))

    def noted(self, t_us: int, effect: Note) -> None:
        """A rule acted."""
        self._n += 1
        self._emit(
            Noted(
                self.node,
                self._n,
                t_us,
                effect.rule,
                effect.what,
                effect.text,
                effect.view,
                effect.members,
                effect.data or UNSET,
            )
        )
