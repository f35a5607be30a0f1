"""Consensus by a token: its rules one by one, and many runs (token-fd TF-10 to TF-21)."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from alone import CONSENSUS, Alone, Config

from ringcast.blocks import token_consensus
from ringcast.blocks.ring_detector import Timer as DetectorTimer
from ringcast.blocks.token_consensus import (
    Ballot,
    BallotAck,
    Decided,
    Phase,
    Terms,
    Timer,
    TokenConsensus,
    count,
)
from ringcast.core.effects import Effect, Send, Up
from ringcast.core.env import Env
from ringcast.core.inputs import Input, Received, Started, TimerFired
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import Loss, inflict
from ringcast.sim.model import Constant, LinkModel, NetworkModel, Uniform


class Member:
    """One member, given inputs by hand."""

    def __init__(self, me: int, n: int = 3, f: int = 1, **terms: int) -> None:
        config = Config(members=tuple(range(1, n + 1)))
        shared = Terms(members=config.members, f=f, **terms)
        self.part = TokenConsensus(me, shared, config.patience)
        self.env = Env(me, Random(0))

    def do(self, event: Input) -> list[Effect]:
        self.part.handle(self.env, event)
        return self.env.take()

    def start(self) -> list[Effect]:
        return self.do(Started(1, {}))

    def propose(self, value: bytes) -> list[Effect]:
        self.part.propose(self.env, value)
        return self.env.take()

    def receive(self, src: int, ballot: Ballot) -> list[Effect]:
        return self.do(Received(src, 1, ballot))

    def suspect(self) -> list[Effect]:
        return self.do(TimerFired(DetectorTimer.WATCH))


def ballots(effects: Iterable[Effect]) -> dict[int, Ballot]:
    """Ballots sent, by receiver."""
    return {
        e.to: e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Ballot)
    }


def decisions(effects: Iterable[Effect]) -> list[bytes]:
    return [e.what.value for e in effects if isinstance(e, Up) and isinstance(e.what, Decided)]


def test_tf_11_a_hop_that_is_not_the_senders_is_dropped() -> None:
    member = Member(2)
    member.propose(b"b")
    assert not ballots(member.receive(1, Ballot(1, b"x", 1, 0, False)))
    assert not ballots(member.receive(9, Ballot(0, b"x", 1, 0, False)))
    assert member.env.dropped == {"a hop that is not the sender's": 1, "not from another member": 1}


def test_tf_12_settings_that_do_not_ensure_agreement_are_refused() -> None:
    seven = tuple(range(1, 8))
    Terms(members=seven, f=2).check()
    assert Terms(members=seven, f=2).votes_needed == 3
    assert Terms(members=seven, f=2, gap_threshold=1).votes_needed == 5
    with pytest.raises(ValueError, match=r"vote_threshold = 2 is too low.* = 3 is safe"):
        Terms(members=seven, f=2, vote_threshold=2).check()
    with pytest.raises(ValueError, match=r"vote_threshold = 4 is too low.* = 5 is safe"):
        Terms(members=seven, f=2, gap_threshold=1, vote_threshold=4).check()
    with pytest.raises(ValueError, match="more than the 7 members"):
        Terms(members=seven, f=2, gap_threshold=3).check()
    with pytest.raises(ValueError, match="needs 7 members or more"):
        Terms(members=seven[:6], f=2).check()


def test_tf_13_the_first_member_begins_and_has_had_its_turn() -> None:
    member = Member(1)
    member.start()
    first = Ballot(0, b"a", 1, 0, False)
    assert ballots(member.propose(b"a")) == {2: first, 3: first}
    assert member.part.tokens.last_hop == 0
    assert not ballots(member.propose(b"z")), "one proposal each"


@pytest.mark.parametrize(
    ("me", "n", "f", "receivers"),
    [(3, 3, 1, {2}), (2, 3, 1, set()), (6, 7, 2, {2}), (7, 7, 2, {2, 3}), (5, 7, 2, set())],
)
def test_tf_14_dummies_stand_in_for_members_that_never_ran(
    me: int, n: int, f: int, receivers: set[int]
) -> None:
    sent = ballots(Member(me, n, f).start())
    assert sent.keys() == receivers
    assert set(sent.values()) <= {Ballot(me - 1 - n, None, 0, 0, False)}


def test_tf_15_a_dummy_takes_the_value_of_who_accepts_it() -> None:
    member = Member(2)
    member.propose(b"b")
    assert not ballots(member.receive(3, Ballot(-1, None, 0, 0, False)))
    mine = Ballot(1, b"b", 1, 0, False)
    assert ballots(member.suspect()) == {3: mine, 1: mine}


@pytest.mark.parametrize(
    ("votes", "gap", "distance", "threshold", "result"),
    [
        (1, 0, 1, 0, (2, 0)),
        (1, 0, 2, 0, (1, 0)),  # across a gap the votes are lost
        (3, 0, 2, 1, (4, 1)),
        (3, 1, 2, 1, (1, 0)),
        (6, 0, 1, 0, (7, 0)),
        (7, 0, 1, 0, (1, 0)),  # nobody is counted twice
        (6, 0, 2, 1, (1, 0)),  # A4: nor with the new gap
    ],
)
def test_tf_16_votes_and_gaps(
    votes: int, gap: int, distance: int, threshold: int, result: tuple[int, int]
) -> None:
    assert count(Ballot(0, b"x", votes, gap, False), distance, 7, threshold) == result


def test_tf_17_enough_votes_decide_and_tf_18_the_ballot_says_so() -> None:
    member = Member(2)
    member.propose(b"b")
    effects = member.receive(1, Ballot(0, b"a", 1, 0, False))
    assert decisions(effects) == [b"a"]
    assert ballots(effects) == dict.fromkeys((3, 1), Ballot(1, b"a", 2, 0, True))


def test_tf_19_a_decision_is_forwarded_whatever_the_token_says() -> None:
    member = Member(2, n=7, f=2)
    member.propose(b"b")
    assert decisions(member.receive(7, Ballot(6, b"a", 3, 0, True))) == [b"a"]
    effects = member.receive(1, Ballot(7, b"z", 1, 0, False))
    assert decisions(effects) == []
    assert set(ballots(effects).values()) == {Ballot(8, b"a", 2, 0, True)}


def test_tf_20_any_ballot_with_a_decision_decides_even_before_a_proposal() -> None:
    member = Member(4, n=7, f=2)
    assert decisions(member.receive(7, Ballot(-1, b"a", 3, 0, True))) == [b"a"]
    assert member.part.phase is Phase.DECIDED
    assert not ballots(member.propose(b"d"))


def test_tf_21_after_one_ballot_with_the_decision_a_member_takes_no_more() -> None:
    member = Member(2)
    member.propose(b"b")
    member.receive(1, Ballot(0, b"a", 1, 0, False))
    effects = member.receive(1, Ballot(3, b"a", 2, 0, True))
    assert effects[-1] == Send(1, BallotAck(3))
    assert not ballots(effects)


def test_tf_39_a_ballot_is_sent_again_to_those_who_have_not_said_they_have_it() -> None:
    member = Member(1)
    member.propose(b"a")
    assert ballots(member.do(TimerFired(Timer.RESEND))).keys() == {2, 3}
    member.do(Received(2, 1, BallotAck(0)))
    assert ballots(member.do(TimerFired(Timer.RESEND))).keys() == {3}
    member.do(Received(3, 1, BallotAck(-3)))
    assert ballots(member.do(TimerFired(Timer.RESEND))).keys() == {3}
    member.do(Received(3, 1, BallotAck(0)))
    assert not ballots(member.do(TimerFired(Timer.RESEND)))


# --- groups -----------------------------------------------------------------------------------


def group(
    n: int, seed: int = 0, delay_us: tuple[int, int] = (100, 100), **settings: int
) -> Cluster:
    config = Config(members=tuple(range(1, n + 1)), **settings)  # type: ignore[arg-type]
    low, high = delay_us
    delay = Constant(low) if low == high else Uniform(low, high)
    model = NetworkModel(link=LinkModel(delay=delay))
    return Cluster(CONSENSUS, config, config.members, model, seed)


def begin(cluster: Cluster, *nodes: int) -> None:
    """Let these start, each proposing its own number."""
    for node in nodes or cluster.ids:
        cluster.start(node)
        cluster.submit(node, (b"v%d" % node,))


def decided(cluster: Cluster) -> dict[int, list[bytes]]:
    """What each member that is up decided."""
    found = {}
    for node in cluster.up():
        alone = cluster.machine(node)
        assert isinstance(alone, Alone)
        decided = [word.what for word in alone.said if isinstance(word, Up)]
        found[node] = [word.value for word in decided if isinstance(word, Decided)]
        assert len(found[node]) == len(decided)
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 13])
def test_without_failures_the_first_members_value_is_decided(n: int) -> None:
    cluster = group(n)
    begin(cluster)
    cluster.run_until(50_000)
    assert decided(cluster) == {node: [b"v1"] for node in cluster.ids}


def naive(token: Ballot, distance: int, n: int, gap_threshold: int) -> tuple[int, int]:
    """TF-10: everybody votes, whatever was left out."""
    return token.votes + 1, 0


@pytest.mark.parametrize("threshold", [2, 3, 9])
def test_tf_10_the_naive_algorithm_disagrees_for_any_threshold(
    threshold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TF-T8: everybody suspects everybody, and two chains of votes go round past each other."""
    for counting, outcomes in ((naive, 2), (count, 0)):
        monkeypatch.setattr(token_consensus, "count", counting)
        monkeypatch.setattr(Terms, "check", lambda terms: None)
        cluster = group(3, vote_threshold=threshold)
        for src, dst in ((1, 2), (2, 3), (3, 1)):
            cluster.cut(src, dst)
        begin(cluster)
        cluster.run_until(100_000)
        assert len({value for values in decided(cluster).values() for value in values}) == outcomes


@pytest.mark.parametrize("n", [3, 4, 7])
@pytest.mark.parametrize("seed", range(12))
def test_agreement_always_and_termination_once_the_detector_is_right(n: int, seed: int) -> None:
    """Wild suspicion, loss and up to f crashes; then calm."""
    rng = Random(f"{n}/{seed}")
    cluster = group(n, seed, (50, 600), suspect_us=300, grow_us=200)
    f = (n + 1) // 4
    begin(cluster, *(node for node in cluster.ids if rng.random() < 0.9))
    inflict(Loss(0, 0.3, 0.3), cluster)
    cluster.expire(0, "ring detector watch", every_us=400)
    crashed = [node for node in cluster.ids if node not in cluster.up()][:f]
    begin(cluster, *(n for n in cluster.ids if n not in cluster.up() and n not in crashed))
    while len(crashed) < f:
        cluster.run_for(rng.randrange(20_000))
        crashed.append(rng.choice(cluster.up()))
        cluster.crash(crashed[-1])
    cluster.run_for(rng.randrange(20_000))
    cluster.calm()
    cluster.run_for(300_000)
    values = decided(cluster)
    assert set(map(len, values.values())) == {1}, values
    (value,) = {value for (value,) in values.values()}
    assert value in {b"v%d" % node for node in cluster.ids}
