"""A replica's log with what is on its way to the disk: what an engine asks its host to do."""

from __future__ import annotations

from ringcast.core.ids import NodeId
from ringcast.replica.effects import Became, Effect, Phase, Sync, Write
from ringcast.replica.log import Append, Record, ReplicaLog
from ringcast.replica.words import NEVER, Epoch, LogEntry, Status


class DiskLog:
    """The part of an engine that writes: records in order, one sync of entries at a time."""

    def __init__(
        self, me: NodeId, boot: int, members: int | frozenset[NodeId], log: ReplicaLog
    ) -> None:
        self.me, self.boot = me, boot
        self.named = () if isinstance(members, int) else tuple(sorted(members))
        self.count = members if isinstance(members, int) else len(members)
        self.log = log
        self.phase = Phase.APART
        self.epoch = NEVER
        """Of the attempt under way, or of the primary component."""
        self._effects: list[Effect] = []
        self._fresh: list[LogEntry] = []
        """At the end of the log, and no record of the disk's yet: one takes all of them."""
        self._synced = log.length
        self._syncs: dict[int, tuple[str, Epoch, int]] = {}
        self._ticket = 0

    def take(self) -> list[Effect]:
        """What is to be done, in order."""
        if self._fresh:
            self._write_fresh()
        effects, self._effects = self._effects, []
        return effects

    @property
    def pending(self) -> bool:
        """Whether there is anything to be done."""
        return bool(self._effects or self._fresh)

    def status(self) -> Status:
        """What this replica has on disk."""
        return self.log.status(self.epoch, self.named, self.count, self.boot)

    def _sync(self, what: str) -> None:
        self._ticket += 1
        self._syncs[self._ticket] = (what, self.epoch, self.log.length)
        self._do(Sync(self._ticket))

    def _write(self, record: Record) -> None:
        self._write_fresh()
        self.log.take(record)
        self._do(Write(record))

    def _write_fresh(self) -> None:
        """RS-10: the entries that came together are one record, and wait for one sync."""
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            self._do(Write(Append(tuple(fresh), self.log.green)))
            self._sync_appended()

    def _sync_appended(self) -> None:
        """One sync at a time: what comes meanwhile goes with the next."""
        under_way = any(w == "append" and e == self.epoch for w, e, _ in self._syncs.values())
        if self.log.length > self._synced and not under_way and not self._fresh:
            self._sync("append")

    def _become(self, phase: Phase, why: str) -> None:
        self.phase = phase
        self._do(Became(phase, why))

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)
