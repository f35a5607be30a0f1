"""Replicas over every protocol with a membership, under swarm faults, lost disks included; and
engines that are wrong on purpose, which the judge must catch."""

from __future__ import annotations

import msgspec
import pytest
from simulated import World, Wrong

from ringcast.core.ids import ViewId
from ringcast.replica.effects import Passed, Phase, Say
from ringcast.replica.engine import Engine
from ringcast.replica.tally import Tally
from ringcast.replica.words import Barrier, LogEntry, Status, Ticket

SEEDS = range(20)


@pytest.mark.parametrize("protocol", ["totem", "total", "token-fd"])
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_confirmed_is_lost_or_contradicted(protocol: str, seed: int) -> None:
    world = World(seed, protocol, by_number=seed % 3 == 0)
    world.run()
    if protocol != "token-fd":  # crashed members do not come back there
        world.settle()


@pytest.mark.parametrize("protocol", ["totem", "total"])
def test_nor_while_cuts_move_and_all_are_killed(protocol: str) -> None:
    """Much is confirmed, and reads are answered, although disks are lost."""
    confirmed = reads = 0
    for seed in range(12):
        world = World(seed, protocol, by_number=seed % 3 == 0, moving=True)
        world.run()
        world.settle()
        confirmed += world.judge.confirmed
        reads += world.judge.reads
    assert confirmed > 12 * 40
    assert reads > 12 * 4


class AcksBeforeTheDisk(Engine):
    """RS-12: acknowledges what is only written."""

    def _append(self, entries: tuple[LogEntry, ...]) -> None:
        super()._append(entries)
        self._synced = self.log.length
        self._acknowledge()


class CountsBlankDisks(Engine):
    """RS-2: a disk that lost everything takes part in quorums."""

    def _status(self) -> Status:
        status = super()._status()
        if not status.founder and self._statuses:
            other = next(iter(self._statuses.values()))
            return msgspec.structs.replace(status, founder=other.founder, voters=other.voters)
        return status


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
            self._tally = SmallTally(self._decision.voters)


class ReadsAtOnce(Engine):
    """RS-14: answers a read from what is applied here."""

    def read(self) -> Ticket | None:
        ticket = super().read()
        if ticket is not None:
            self._do(Passed(ticket, self.applied))
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


CAUGHT = {
    AcksBeforeTheDisk: 20,
    CountsBlankDisks: 176,
    AppendsAfterTheView: 477,
    TooFewDisks: 12,
    ReadsAtOnce: 0,
    AppendsBeforeActivation: 2,
}
"""Each wrong engine, and a seed that once showed it."""


def caught(mutant: type[Engine], seed: int) -> bool:
    world = World(seed, engine=mutant, moving=True)
    try:
        world.run()
        world.settle()
    except Wrong:
        return True
    return False


@pytest.mark.parametrize("mutant", CAUGHT, ids=lambda mutant: mutant.__name__)
def test_a_wrong_engine_is_caught(mutant: type[Engine]) -> None:
    """By its seed or, when a change makes that take another course, by one of the first ones."""
    seeds = (CAUGHT[mutant], *range(600))
    assert any(caught(mutant, seed) for seed in seeds), mutant.__doc__
