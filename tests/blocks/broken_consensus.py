"""Consensus, broken in one place each: what the schedules must notice."""

from __future__ import annotations

from ringcast.blocks.consensus import MESSAGES, Adopted, Begin, Consensus, Estimate, Phase, Proposal
from ringcast.core.env import Env
from ringcast.core.inputs import Message, Received
from ringcast.core.machine import Table


class HalfIsEnough(Consensus):
    """Z1: half of the members count as a majority."""

    def __init__(self, me: int, members: tuple[int, ...], first: int = 0) -> None:
        super().__init__(me, members, first)
        self.majority = len(members) // 2


class AnyEstimate(Consensus):
    """Z4: takes the first estimate of a majority, whatever its stamp."""

    def choose(self) -> Message | None:
        if self.round > 1 and len(self.estimates) < self.majority:
            return None
        return next((v for _, v in self.estimates.values() if v is not None), None)


class OwnValueAlways(Consensus):
    """Z3: the shortcut of round 1, in every round."""

    def choose(self) -> Message | None:
        return self.estimate


class NoneOfMany(Consensus):
    """Z4: does not wait for a majority of estimates."""

    def choose(self) -> Message | None:
        latest = max(stamp for stamp, _ in self.estimates.values())
        found = self.estimates.values()
        return next((v for stamp, v in found if stamp == latest and v is not None), None)


class LateAdoption(Consensus):
    """Z5: adopts a proposal of a round that it has left."""

    def on_proposal(self, env: Env, event: Received) -> None:
        proposal = event.message
        assert isinstance(proposal, Proposal)
        if proposal.round < self.round:
            self._tell_others(env, Adopted(proposal.round))
        super().on_proposal(env, event)


class NoStamp(Consensus):
    """Z5: forgets in which round it adopted its estimate."""

    def _adopt(self, env: Env, proposal: Proposal[Message], coordinator: int) -> None:
        super()._adopt(env, proposal, coordinator)
        self.stamp = 0


class GoesBack(Consensus):
    """Z8: follows the call of a round that it has left."""

    def on_begin(self, env: Env, event: Received) -> None:
        begin = event.message
        assert isinstance(begin, Begin)
        self._enter(env, begin.round)


class TwoProposals(Consensus):
    """Z4: proposes again when a better estimate comes in the same round."""

    def on_estimate(self, env: Env, event: Received) -> None:
        estimate = event.message
        assert isinstance(estimate, Estimate)
        mine = self.coordinator(self.round) == self.me
        before = self.choose() if self.adopted and mine else None
        super().on_estimate(env, event)
        if before is not None and self.round == estimate.round and self.choose() != before:
            self.proposal = None
            self._consider(env)


class CountsFrames(Consensus):
    """Z4: counts frames of adoptions, not members."""

    def on_adopted(self, env: Env, event: Received) -> None:
        if event.src in self.adopters:
            src = next((each for each in self.members if each not in self.adopters), event.src)
            event = Received(src, event.boot, event.message)
        super().on_adopted(env, event)


class SilentCoordinator(Consensus):
    """Z7: the coordinator of a later round does not call those that wait in an earlier one."""

    def _tell_others(self, env: Env, message: Message) -> None:
        if not isinstance(message, Begin):
            super()._tell_others(env, message)


class KeepsAdopters(Consensus):
    """Z6: whoever adopted the proposal before counts for the present one."""

    def _adopt(self, env: Env, proposal: Proposal[Message], coordinator: int) -> None:
        before = self.adopters
        super()._adopt(env, proposal, coordinator)
        if self.phase is Phase.VOTING:
            for node in sorted(before - self.adopters):
                self._count(env, node)


class EarlyCounts(Consensus):
    """Z6: an adoption that comes before its proposal counts for whichever comes next."""

    early: frozenset[int] = frozenset()

    def on_adopted(self, env: Env, event: Received) -> None:
        adopted = event.message
        assert isinstance(adopted, Adopted)
        if self.proposal is None or adopted.round > self.proposal.round:
            self.early |= {event.src}
        super().on_adopted(env, event)

    def _adopt(self, env: Env, proposal: Proposal[Message], coordinator: int) -> None:
        super()._adopt(env, proposal, coordinator)
        for node in sorted(self.early) if self.phase is Phase.VOTING else ():
            self._count(env, node)


class ReaderTellsNobody(Consensus):
    """B1: whoever decides by a proposal that it reads tells nobody."""

    def on_proposal(self, env: Env, event: Received) -> None:
        everybody, self.decision.machine.members = self.members, (self.me,)
        super().on_proposal(env, event)
        self.decision.machine.members = everybody


class AnyRound(Consensus):
    """Z6: counts adoptions of whichever round."""

    def on_adopted(self, env: Env, event: Received) -> None:
        if self.proposal is not None:
            self._count(env, event.src)


class BelievesNone(Consensus):
    """Z3: members that have no value yet do not count."""

    def on_estimate(self, env: Env, event: Received) -> None:
        estimate = event.message
        assert isinstance(estimate, Estimate)
        if estimate.value is not None or estimate.round > self.round:
            super().on_estimate(env, event)


class TellsNobody(Consensus):
    """B1: decides at the first relay and passes nothing on."""

    def to_decision(self, env: Env, event: Received) -> None:
        if self.decided is None:
            self.decision.machine.members = (self.me, event.src)
            super().to_decision(env, event)


MUTANTS: dict[type[Consensus], tuple[str, str]] = {
    HalfIsEnough: ("agreement", "8"),
    AnyEstimate: ("agreement", "13"),
    OwnValueAlways: ("agreement", "12"),
    NoneOfMany: ("agreement", "12"),
    LateAdoption: ("agreement", "12"),
    NoStamp: ("agreement", "13"),
    GoesBack: ("termination", "23303"),
    TwoProposals: ("agreement", "641"),
    CountsFrames: ("agreement", "1508"),
    SilentCoordinator: ("termination", "1"),
    KeepsAdopters: ("agreement", "37801"),
    EarlyCounts: ("agreement", "3583"),
    ReaderTellsNobody: ("termination", "4"),
    AnyRound: ("agreement", "146"),
    BelievesNone: ("termination", "94"),
    TellsNobody: ("termination", "22559"),
}
"""Each with what it breaks, and the first schedule that shows it."""

for _kind in MUTANTS:
    _kind.table = Table(
        Phase,
        MESSAGES,
        (),
        {
            key: getattr(_kind, cell.__name__, cell) if callable(cell) else cell
            for key, cell in Consensus.table.cells.items()
        },
    )
