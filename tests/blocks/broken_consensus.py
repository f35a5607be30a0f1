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
    """Z4: counts frames, not members."""

    def _count(self, env: Env, node: int) -> None:
        if node in self.adopters:
            node = next((each for each in self.members if each not in self.adopters), node)
        super()._count(env, node)


class SilentCoordinator(Consensus):
    """Z7: the coordinator of a later round does not call those that wait in an earlier one."""

    def _tell_others(self, env: Env, message: Message) -> None:
        if isinstance(message, Proposal):
            super()._tell_others(env, message)


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
    CountsFrames: ("agreement", "12"),
    SilentCoordinator: ("termination", "0"),
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
