"""Consensus with a rotating coordinator, for one decision among a fixed list of members.

Round r has one coordinator. It learns what others think (``Estimate``) and proposes one value.
Whoever adopts it tells all, and whoever knows of a majority that did decides, and tells all of
that instead. A member that suspects the coordinator goes on to the next round, and never comes
back. Whoever adopts a value remembers the round, and a coordinator takes, of a majority of
estimates, one of the latest round: so once a majority has adopted a value no other can be proposed,
whatever is suspected. When somebody correct is no longer suspected by anybody, its round decides.

A member that has adopted waits in its round for the decision, until it suspects the coordinator or
the coordinator of a later round calls (``Begin``). So without suspicions one round is all there
is: proposal and adoptions. In a group of two or three the proposal itself tells of a majority, the
coordinator and whoever reads it.

Frames must not be lost, so an owner lets a reliable channel carry them (``Owned``, ``over``). They
may come twice and in any order. Nothing survives a restart: a processor that starts again is no
member. An owner makes an instance for each decision, and drops it afterwards.

Source: Chandra and Toueg, JACM 43(2), 1996, figure 6. Rules: Z1 to Z10.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

import msgspec

from ringcast.blocks.reliable_broadcast import HandedUp, Relay, ReliableBroadcast
from ringcast.core.effects import Up
from ringcast.core.env import Env
from ringcast.core.ids import NodeId, Seq
from ringcast.core.inputs import Leaving, Message, Received, Started, Submitted
from ringcast.core.machine import Cell, Impossible, Key, Machine, Table
from ringcast.core.owned import Heard, Owned

T = TypeVar("T")

DECISION = "decision"
"""The key of the reliable broadcast."""


class Phase(StrEnum):
    """Whether there is a decision."""

    VOTING = "Voting"
    DECIDED = "Decided"


class Estimate(msgspec.Struct, Generic[T], frozen=True, array_like=True, tag=36, gc=False):
    """Z3: what the sender thinks in ``round``: a value adopted in round ``stamp``; with stamp 0 its
    own, or none yet."""

    round: Seq
    stamp: Seq
    value: T | None


class Proposal(msgspec.Struct, Generic[T], frozen=True, array_like=True, tag=37, gc=False):
    """Z4: the one value of this round."""

    round: Seq
    value: T


class Adopted(msgspec.Struct, frozen=True, array_like=True, tag=38, gc=False):
    """Z5: the sender has adopted the proposal of ``round``, and does not know of a majority yet.
    All members hear it, so that each decides as soon as it knows of one."""

    round: Seq


class Begin(msgspec.Struct, frozen=True, array_like=True, tag=39, gc=False):
    """Z7: the coordinator of ``round`` is in it, and waits for estimates. It takes the place of the
    nack: a round that somebody left is over when the coordinator of the next one calls."""

    round: Seq


class Decided(msgspec.Struct, frozen=True, gc=False):
    """To the owner: the value."""

    value: Message


class Consensus(Machine):
    """One member, for one decision. ``first`` is the place of the first coordinator in the list."""

    table: ClassVar[Table]

    def __init__(self, me: NodeId, members: tuple[NodeId, ...], first: int = 0) -> None:
        super().__init__()
        self.me = me
        self.phase: Phase = Phase.VOTING
        self.members = members
        self.first = first
        self.majority = len(members) // 2 + 1
        self.decision = Owned(ReliableBroadcast(me, members), self._hear)
        self.decided: Message | None = None
        self.suspected: frozenset[NodeId] = frozenset()
        self.round = 0
        self.estimate: Message | None = None
        self.stamp = 0
        """Z1: the round in which the estimate was adopted."""
        self.estimates: dict[NodeId, tuple[int, Message | None]] = {}
        """Z4: of the last round that had me as its coordinator."""
        self.proposal: Proposal[Message] | None = None
        """The last one that we made or adopted."""
        self.adopters: set[NodeId] = set()
        """Z6: members that adopted it, as far as we know."""

    def coordinator(self, round_: int) -> NodeId:
        """Z2: whose round it is."""
        return self.members[(round_ - 1 + self.first) % len(self.members)]

    @property
    def adopted(self) -> bool:
        """Z5: whether the proposal of this round is our estimate."""
        return self.proposal is not None and self.proposal.round == self.round

    @property
    def ready(self) -> bool:
        """Values come through ``propose``."""
        return False

    def admit(self, env: Env, event: Received) -> bool:
        """Z10: members only, and a coordinator's word from the coordinator."""
        message, src = event.message, event.src
        if src not in self.members or src == self.me:
            env.drop("Z10", "not from another member")
            return False
        if isinstance(message, Proposal | Begin) and self.coordinator(message.round) != src:
            env.drop("Z2", "not from the coordinator of its round")
            return False
        if isinstance(message, Estimate) and self.coordinator(message.round) != self.me:
            env.drop("Z2", "an estimate for another coordinator")
            return False
        return True

    # --- what the owner says ------------------------------------------------------------------

    def start(self, env: Env, event: Started) -> None:
        """Z3: round 1 needs no estimates: no other value can have been adopted before."""
        self._enter(env, 1)

    def propose(self, env: Env, value: Message) -> None:
        """Z3: have a value, unless one was adopted already. Every member must have one some day:
        a coordinator to whom nobody else sent any waits for its own."""
        if self.estimate is not None or self.phase is Phase.DECIDED:
            return
        self.estimate = value
        if self.coordinator(self.round) == self.me:
            self.estimates[self.me] = (0, value)
            self._consider(env)

    def suspect(self, env: Env, nodes: Iterable[NodeId]) -> None:
        """Z5, Z7: these are suspected now, and no others; leave the round of one that is."""
        self.suspected = frozenset(nodes) - {self.me}
        if self.phase is Phase.VOTING and self.coordinator(self.round) in self.suspected:
            self._enter(env, self.round + 1)

    # --- rounds -------------------------------------------------------------------------------

    def _enter(self, env: Env, round_: int) -> None:
        """Z3, Z7: tell the coordinator what we think, or everybody that we are it. The round of
        a suspect is over at once."""
        coordinator = self.coordinator(round_)
        while coordinator in self.suspected:
            round_ += 1
            coordinator = self.coordinator(round_)
        self.round = round_
        if coordinator == self.me:
            self.estimates = {self.me: (self.stamp, self.estimate)}
            if round_ > 1:
                self._tell_others(env, Begin(round_))
            self._consider(env)
        elif round_ > 1:
            env.send(coordinator, Estimate(round_, self.stamp, self.estimate))

    def _tell_others(self, env: Env, message: Message) -> None:
        for node in self.members:
            if node != self.me:
                env.send(node, message)

    def on_begin(self, env: Env, event: Received) -> None:
        """Z8: a later round calls; nothing of the rounds in between is adopted any more."""
        begin = event.message
        assert isinstance(begin, Begin)
        if begin.round > self.round:
            self._enter(env, begin.round)

    def on_estimate(self, env: Env, event: Received) -> None:
        """Z4, Z8: count it, if its round is the present one or a later one."""
        estimate = event.message
        assert isinstance(estimate, Estimate)
        if estimate.round > self.round:
            self._enter(env, estimate.round)
        if estimate.round < self.round:
            env.drop("Z8", "an estimate of an earlier round")
            return
        self.estimates.setdefault(event.src, (estimate.stamp, estimate.value))
        self._consider(env)

    def _consider(self, env: Env) -> None:
        """Z4: propose one value, once."""
        if self.adopted:
            return
        value = self.choose()
        if value is None:
            return
        proposal = Proposal(self.round, value)
        self._tell_others(env, proposal)
        self._adopt(env, proposal, self.me)

    def choose(self) -> Message | None:
        """Z4: of a majority's estimates one with the latest stamp; of stamp 0 our own, if any."""
        if self.round > 1 and len(self.estimates) < self.majority:
            return None
        latest = max(stamp for stamp, _ in self.estimates.values())
        order = (self.me, *self.members)
        found = (self.estimates.get(node, (-1, None)) for node in order)
        return next((v for stamp, v in found if stamp == latest and v is not None), None)

    def _adopt(self, env: Env, proposal: Proposal[Message], coordinator: NodeId) -> None:
        """Z5: it is our estimate now, and its coordinator's."""
        self.estimate, self.stamp = proposal.value, proposal.round
        self.proposal, self.adopters = proposal, {self.me}
        self._count(env, coordinator)

    def on_proposal(self, env: Env, event: Received) -> None:
        """Z5: adopt it, unless its round is over for us; Z8: a later round needs no estimate any
        more. Z7: then tell all, and wait for the decision, if that is none already."""
        proposal = event.message
        assert isinstance(proposal, Proposal)
        if proposal.round < self.round or (proposal.round == self.round and self.adopted):
            env.drop("Z5", "a proposal of a round that is over")
            return
        self.round = proposal.round
        self._adopt(env, proposal, event.src)
        if self.phase is Phase.VOTING:
            self._tell_others(env, Adopted(proposal.round))

    def on_adopted(self, env: Env, event: Received) -> None:
        """Z6: count it, once for each member, even if that round is over for ourselves, until we
        adopt a later proposal. One that comes before its proposal is lost on us: the first that
        adopted hears all others, and tells us."""
        adopted = event.message
        assert isinstance(adopted, Adopted)
        if self.proposal is None or adopted.round != self.proposal.round:
            env.drop("Z6", "an adoption in another round")
            return
        self._count(env, event.src)

    def _count(self, env: Env, node: NodeId) -> None:
        """Z6: a majority decides."""
        assert self.proposal is not None
        self.adopters.add(node)
        if len(self.adopters) >= self.majority:
            block = self.decision
            block.call(env, block.machine.broadcast, DECISION, self.proposal.value)

    # --- the decision -------------------------------------------------------------------------

    def to_decision(self, env: Env, event: Received) -> None:
        """Z6: decisions are broadcast reliably."""
        self.decision.handle(env, event)

    def _hear(self, env: Env, heard: Heard) -> None:
        """Z9: the first is the only one."""
        assert isinstance(heard, Up) and isinstance(heard.what, HandedUp)
        self.phase, self.decided = Phase.DECIDED, heard.what.payload
        env.up(Decided(heard.what.payload))

    def answer(self, env: Env, event: Received) -> None:
        """Z8: it is decided; one that does not know is told."""
        assert self.decided is not None
        env.send(event.src, Relay(self.me, DECISION, self.decided))

    def late(self, env: Env, event: Received) -> None:
        """Z6: adoptions and relays change nothing any more."""

    def snapshot(self) -> dict[str, object]:
        """What a person would ask for."""
        return {
            "phase": self.phase.value,
            "round": self.round,
            "coordinator": self.coordinator(self.round) if self.round else 0,
            "stamp": self.stamp,
            "estimates": len(self.estimates),
            "adopters": len(self.adopters),
        }


MESSAGES = (Estimate, Proposal, Adopted, Begin, Relay)

CELLS: dict[tuple[StrEnum, Key], Cell] = {
    (Phase.VOTING, Estimate): Consensus.on_estimate,
    (Phase.VOTING, Proposal): Consensus.on_proposal,
    (Phase.VOTING, Adopted): Consensus.on_adopted,
    (Phase.VOTING, Begin): Consensus.on_begin,
    (Phase.VOTING, Relay): Consensus.to_decision,
    (Phase.DECIDED, Estimate): Consensus.answer,
    (Phase.DECIDED, Proposal): Consensus.answer,
    (Phase.DECIDED, Begin): Consensus.answer,
    (Phase.DECIDED, Adopted): Consensus.late,
    (Phase.DECIDED, Relay): Consensus.late,
}
for _phase in Phase:
    CELLS[_phase, Submitted] = Impossible("values come through propose, not as submissions")
    CELLS[_phase, Leaving] = Impossible("the owner leaves, not its part")

Consensus.table = Table(Phase, MESSAGES, (), CELLS)
