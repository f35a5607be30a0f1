"""Engines that are wrong on purpose: each breaks one rule, or is what replicas were before them."""

from __future__ import annotations

import msgspec

from ringcast.core.ids import NodeId, ViewId
from ringcast.replica.effects import BarrierPassed, Phase, Say
from ringcast.replica.engine import Engine
from ringcast.replica.exchange import Decision
from ringcast.replica.log import ReplicaLog
from ringcast.replica.tally import Tally
from ringcast.replica.words import Barrier, LogEntry, Status, Ticket


class AcksBeforeTheDisk(Engine):
    """RS-12: acknowledges what is only written."""

    def _append(self, entry: LogEntry) -> None:
        super()._append(entry)
        self._synced = self.log.length
        self._acknowledge()


class SaysTooLittle(Engine):
    """RS-12: counts its own disk among those that have said enough."""

    def _acknowledge(self) -> None:
        if self.tally.on_disk < self._synced:
            super()._acknowledge()


class CountsBlankDisks(Engine):
    """RS-2: a disk that lost everything takes part in quorums."""

    def _decide(self, last: Status) -> None:
        known = [status for status in self.statuses.values() if status.founder]
        if known:
            founder, voters = known[0].founder, known[0].voters
            for node, status in self.statuses.items():
                if not status.founder:
                    counted = msgspec.structs.replace(status, founder=founder, voters=voters)
                    self.statuses[node] = counted
            last = known[0]
        super()._decide(last)


class AppendsAfterTheView(Engine):
    """RS-5: goes on appending what a transitional view delivers."""

    def on_view(self, view: ViewId, transitional: bool, attempt: int = 0) -> None:
        if not transitional:
            super().on_view(view, transitional, attempt)


class SmallTally(Tally):
    """RS-13: one disk less than a majority is enough."""

    @property
    def quorum(self) -> int:
        return max(1, len(self.voters) // 2)


class TooFewDisks(Engine):
    """RS-13."""

    def _decide(self, last: Status) -> None:
        super()._decide(last)
        if self._decision is not None:
            self.tally = SmallTally(self._decision.voters)


class ReadsAtOnce(Engine):
    """RS-14: answers a read from what is applied here."""

    def read(self) -> Ticket | None:
        ticket = super().read()
        if ticket is not None:
            self._do(BarrierPassed(ticket, self.applied))
            self._effects = [
                e for e in self._effects if not (isinstance(e, Say) and isinstance(e.word, Barrier))
            ]
        return ticket


class AppendsBeforeActivation(Engine):
    """RS-9: a command counts as soon as its own disk is ready."""

    def _on_action(self, ticket: Ticket, command: bytes) -> None:
        if self.phase is Phase.READY:
            self._become(Phase.PRIMARY, "early")
            self._active = True
        super()._on_action(ticket, command)


class AloneTally(Tally):
    """One disk is enough."""

    @property
    def quorum(self) -> int:
        return 1


class RefusesInAMinority(Engine):
    """Before there were quorums, with a machine that refuses what comes without a majority: the
    longest history wins a merge, and what was refused counts as history."""

    kind: type[Tally] = Tally

    def on_members(self, members: tuple[NodeId, ...]) -> None:
        """Who is in the view that comes next."""
        self._members = frozenset(members)

    def _decide(self, last: Status) -> None:
        said = self.statuses
        if said.keys() < self._members:
            return
        _, holder = max((status.length, -node) for node, status in said.items())
        self._decision = Decision(-holder, said[-holder], self.named, 1)
        self.tally = self.kind(self.named)
        self._become(Phase.TRANSFER, "the longest wins")
        if self.me == -holder:
            self._supply([status for node, status in said.items() if node != self.me])
        self._receive()

    def _on_ready(self, sender: NodeId) -> None:
        if self._decision is not None and not self._active:
            self.tally.ready.add(sender)
            self.tally.acknowledge(sender, self._decision.base.length)
            if self.tally.ready >= self._members:
                self._active = True
                self._go_on()

    def _turn_green(self, upto: int) -> None:
        """Refused in a minority; all that a history of a majority holds is confirmed."""
        if len(self._members) > self.count // 2:
            super()._turn_green(upto)


class LongestWins(RefusesInAMinority):
    """Before there were quorums: every part of a partition goes on and confirms what it orders."""

    kind = AloneTally

    def _turn_green(self, upto: int) -> None:
        Engine._turn_green(self, upto)


class InMemory(Engine):
    """Before there were disks: a process that starts again begins at zero."""

    def __init__(
        self, me: NodeId, boot: int, members: int | frozenset[NodeId], log: ReplicaLog, piece: int
    ) -> None:
        super().__init__(me, boot, members, ReplicaLog(), piece)
