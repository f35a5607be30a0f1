"""Consensus: agreement and validity in every schedule, an end when the detector settles."""

from __future__ import annotations

from random import Random

import pytest
from broken_consensus import MUTANTS
from schedules import Broken, Value, explore, wild

from ringcast.blocks.consensus import (
    Adopted,
    Begin,
    Consensus,
    Decided,
    Estimate,
    Phase,
    Proposal,
)
from ringcast.blocks.reliable_broadcast import Relay
from ringcast.core.effects import Effect, Send, Up
from ringcast.core.env import Env
from ringcast.core.inputs import Message, Received, Started

A, B, C = Value(1), Value(2), Value(3)


class Member:
    """One member, given inputs by hand."""

    def __init__(self, me: int, n: int = 3, first: int = 0) -> None:
        self.part = Consensus(me, tuple(range(1, n + 1)), first)
        self.env = Env(me, Random(0))
        self.part.handle(self.env, Started(1, {}))
        self.begun = self.env.take()

    def propose(self, value: Message) -> list[Effect]:
        self.part.propose(self.env, value)
        return self.env.take()

    def suspect(self, *nodes: int) -> list[Effect]:
        self.part.suspect(self.env, nodes)
        return self.env.take()

    def receive(self, src: int, message: Message) -> list[Effect]:
        self.part.handle(self.env, Received(src, 1, message))
        return self.env.take()


def sent(effects: list[Effect]) -> dict[int, Message]:
    return {e.to: e.message for e in effects if isinstance(e, Send)}


def decisions(effects: list[Effect]) -> list[Message]:
    return [e.what.value for e in effects if isinstance(e, Up) and isinstance(e.what, Decided)]


def test_z1_z2_a_majority_and_who_coordinates() -> None:
    assert [Consensus(1, tuple(range(1, n + 1))).majority for n in (1, 2, 3, 4, 5)] == [
        1, 2, 2, 3, 3,
    ]  # fmt: skip
    part = Consensus(1, (4, 7, 9), first=2)
    assert [part.coordinator(r) for r in (1, 2, 3, 4)] == [9, 4, 7, 9]


def test_z3_the_first_coordinator_proposes_its_own_value_at_once() -> None:
    member = Member(1)
    assert member.begun == []
    assert sent(member.propose(A)) == {2: Proposal(1, A), 3: Proposal(1, A)}
    assert member.propose(B) == [], "one value each"


def test_z3_without_a_value_a_member_says_so() -> None:
    member = Member(3)
    assert sent(member.suspect(1)) == {2: Estimate(2, 0, None)}


def test_z4_of_a_majority_the_latest_stamp_wins_and_none_is_never_chosen() -> None:
    member = Member(2, n=5)
    member.propose(B)
    calls = sent(member.suspect(1))
    assert calls == dict.fromkeys((1, 3, 4, 5), Begin(2))
    assert sent(member.receive(3, Estimate(2, 0, None))) == {}
    effects = member.receive(4, Estimate(2, 1, A))
    assert sent(effects) == dict.fromkeys((1, 3, 4, 5), Proposal(2, A))
    assert member.receive(5, Estimate(2, 1, C)) == [], "one value a round"


def test_z4_at_stamp_0_the_coordinators_own_value_is_preferred() -> None:
    member = Member(2)
    member.propose(B)
    member.suspect(1)
    assert sent(member.receive(3, Estimate(2, 0, C)))[1] == Proposal(2, B)


def test_z4_it_waits_while_nobody_has_a_value() -> None:
    member = Member(2)
    member.suspect(1)
    assert member.receive(3, Estimate(2, 0, None)) == []
    assert sent(member.propose(B))[3] == Proposal(2, B)


def test_z5_adopt_once_and_not_after_leaving_the_round() -> None:
    member = Member(3, n=5)
    assert sent(member.receive(1, Proposal(1, A))) == dict.fromkeys((1, 2, 4, 5), Adopted(1))
    assert member.receive(1, Proposal(1, A))[0].text == "a proposal of a round that is over"  # type: ignore[union-attr]
    other = Member(3)
    other.propose(C)
    other.suspect(1)
    assert sent(other.receive(1, Proposal(1, A))) == {}
    assert (other.part.estimate, other.part.stamp) == (C, 0)


def test_z6_a_majority_decides_even_after_the_round_is_over() -> None:
    member = Member(1, n=5)
    member.propose(A)
    member.receive(2, Adopted(1))
    member.receive(2, Adopted(1))
    assert member.part.phase is Phase.VOTING, "members are counted, not frames"
    member.receive(3, Begin(3))
    effects = member.receive(3, Adopted(1))
    assert decisions(effects) == [A]
    assert sent(effects) == dict.fromkeys((2, 3, 4, 5), Relay(1, "decision", A))


def test_z6_who_adopted_another_proposal_does_not_count() -> None:
    member = Member(5, n=5)
    member.receive(1, Proposal(1, A))
    member.receive(2, Begin(2))
    assert decisions(member.receive(2, Proposal(2, B))) == [], "1 adopted another one"
    assert decisions(member.receive(3, Adopted(1))) == []
    assert decisions(member.receive(3, Adopted(2))) == [B]


def test_z7_an_adopter_waits_until_a_later_round_calls_or_it_suspects() -> None:
    member = Member(3, n=5)
    member.receive(1, Proposal(1, A))
    assert sent(member.receive(2, Begin(2))) == {2: Estimate(2, 1, A)}
    other = Member(3, n=5)
    other.receive(1, Proposal(1, A))
    assert sent(other.suspect(1)) == {2: Estimate(2, 1, A)}


def test_z8_a_later_round_is_joined_and_earlier_ones_are_over() -> None:
    member = Member(3, n=5)
    assert sent(member.receive(4, Proposal(4, B))) == dict.fromkeys((1, 2, 4, 5), Adopted(4))
    assert member.part.round == 4
    assert sent(member.receive(1, Proposal(1, A))) == {}
    assert member.receive(2, Begin(2)) == []
    third = Member(3, n=5)
    assert sent(third.receive(5, Estimate(3, 0, B))) == dict.fromkeys((1, 2, 4, 5), Begin(3))


def test_z8_one_that_does_not_know_the_decision_is_told() -> None:
    member = Member(3)
    assert decisions(member.receive(1, Relay(1, "decision", A))) == [A]
    assert sent(member.receive(2, Begin(2))) == {2: Relay(3, "decision", A)}
    assert member.propose(C) == member.suspect(1, 2) == []


def test_z10_strangers_and_usurpers_are_not_heard() -> None:
    member = Member(3)
    for src, message in ((9, Begin(2)), (2, Proposal(1, B)), (2, Begin(3)), (2, Estimate(1, 0, B))):
        assert sent(member.receive(src, message)) == {}
    assert member.env.dropped == {
        "not from another member": 1,
        "not from the coordinator of its round": 2,
        "an estimate for another coordinator": 1,
    }


def test_g45_the_round_of_a_suspect_is_over_at_once() -> None:
    member = Member(3, n=5)
    member.propose(C)
    assert sent(member.suspect(1, 2)) == dict.fromkeys((1, 2, 4, 5), Begin(3))
    assert member.suspect(1, 2, 4, 5) == [], "nobody suspects itself"


def test_a_group_of_one_needs_no_frames() -> None:
    member = Member(1, n=1)
    effects = member.propose(A)
    assert decisions(effects) == [A] and not sent(effects)


def test_z6_of_three_whoever_reads_the_proposal_knows_of_a_majority() -> None:
    """Two hops: the proposal, and the decision of whoever read it."""
    member, other = Member(1), Member(2)
    proposals = sent(member.propose(A))
    effects = other.receive(1, proposals[2])
    assert decisions(effects) == [A]
    assert sent(effects) == dict.fromkeys((1, 3), Relay(2, "decision", A)), "no adoption besides"
    assert decisions(member.receive(2, sent(effects)[1])) == [A]
    assert member.part.round == 1


def test_z6_of_five_any_adopter_decides_when_it_hears_of_another() -> None:
    member = Member(3, n=5)
    assert member.receive(2, Adopted(1))[0].text == "an adoption in another round"  # type: ignore[union-attr]
    assert decisions(member.receive(1, Proposal(1, A))) == [], "the coordinator and we"
    assert decisions(member.receive(4, Adopted(2))) == [], "in another round"
    assert decisions(member.receive(4, Adopted(1))) == [A]


# --- schedules ----------------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(4))
def test_z9_agreement_and_validity_always_termination_when_the_detector_settles(
    block: int,
) -> None:
    """A short form; docs/simulator.md records the long one."""
    for seed in range(500):
        wild(f"{block}/{seed}")


def test_z9_every_schedule_of_three_members_and_two_rounds() -> None:
    """With all values there from the beginning; docs/simulator.md records more."""
    states, with_decision = explore(3, 2)
    assert (states, with_decision) == (250, 185)


def test_z9_every_schedule_of_four_members_and_one_round() -> None:
    """Three never send an adoption: whoever reads the proposal knows of a majority."""
    assert explore(4, 1) == (4_659, 4_426)


@pytest.mark.parametrize("kind", MUTANTS, ids=lambda kind: kind.__name__)
def test_z9_the_schedules_notice_what_is_broken(kind: type[Consensus]) -> None:
    broken, seed = MUTANTS[kind]
    with pytest.raises(Broken, match=broken):
        wild(seed, kind)
    wild(seed)


def test_z9_the_search_of_all_schedules_notices_too() -> None:
    for kind in MUTANTS:
        if kind.__name__ in ("LateAdoption", "OwnValueAlways", "NoneOfMany", "NoStamp"):
            with pytest.raises(Broken, match="agreement"):
                explore(3, 2, kind)
