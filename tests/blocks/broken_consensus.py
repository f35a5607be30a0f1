"""Consensus, broken in one place each: what the schedules must notice."""

from __future__ import annotations

from collections.abc import Iterable

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
            env.send(event.src, Adopted(proposal.round))
        super().on_proposal(env, event)


class NoStamp(Consensus):
    """Z5: forgets in which round it adopted its estimate."""

    def _adopt(self, proposal: Proposal[Message]) -> None:
        super()._adopt(proposal)
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
        before = self.choose() if self.proposed else None
        super().on_estimate(env, event)
        if before is not None and self.round == estimate.round and self.choose() != before:
            self.proposed = None
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


class WaitsForEver(Consensus):
    """Z5: waits for a coordinator that it suspects, if it has adopted the proposal."""

    def suspect(self, env: Env, nodes: Iterable[int]) -> None:
        if self.adopted:
            self.suspected = frozenset(nodes)
        else:
            super().suspect(env, nodes)


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
    AnyEstimate: ("agreement", "117"),
    OwnValueAlways: ("agreement", "52"),
    NoneOfMany: ("agreement", "52"),
    LateAdoption: ("agreement", "44"),
    NoStamp: ("agreement", "117"),
    GoesBack: ("termination", "1502"),
    TwoProposals: ("agreement", "3310"),
    CountsFrames: ("agreement", "5502"),
    SilentCoordinator: ("termination", "1"),
    WaitsForEver: ("termination", "235"),
    BelievesNone: ("termination", "94"),
    TellsNobody: ("termination", "3"),
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
