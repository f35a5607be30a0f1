"""Gather: dossier section 3.5, R33-R46."""

from __future__ import annotations

import pytest
from driver import (
    Bench,
    Phase,
    Timer,
    cancelled,
    deliveries,
    drops,
    entry,
    only,
    only_dropped,
    sent,
    set_timers,
    stops,
    upcalls,
)
from msgspec.structs import replace

from ringcast.core.effects import Effect, Note
from ringcast.core.ids import Level, ViewId
from ringcast.core.inputs import TimerFired
from ringcast.protocols.totem_single.messages import Announce, CommitToken, Join, Token

RING = ViewId(8, 1)


@pytest.fixture
def bench() -> Bench:
    """B3; processor 2 lost the token and gathers, nobody has answered yet."""
    ring = Bench().to_ring().to_gather(2)
    ring.lose()
    return ring


def commit_token(number: int = 12, memb: tuple[int, ...] = (1, 2, 3)) -> CommitToken:
    """The first-rotation Commit token as it leaves representative 1."""
    return CommitToken(ViewId(number, memb[0]), 0, memb, (entry(),))


def test_r33_entering_gather_proposes_my_sets() -> None:
    """F4.5: say it to all, stop waiting for a token, wait for Joins and for consensus."""
    bench = Bench().to_ring()
    bench.lose()
    effects = bench.fire(2, Timer.TOKEN_LOSS)
    assert sent(effects, Join) == [bench.join(2, (1, 2, 3), ring_seq=8, rotation_count=0)]
    assert {"token_loss", "token_retransmit"} <= cancelled(effects)
    config = bench.config
    assert set_timers(effects) == {"join": config.join_us, "consensus": config.consensus_us}


def test_r33_the_rotation_count_starts_at_zero_coming_from_operational(bench: Bench) -> None:
    """G13: it counts per attempt; Operational counts thousands."""
    assert bench[2].token.my_rotation_count == 0


def test_r33_the_rotation_count_of_a_failed_attempt_is_told() -> None:
    """F4.5, G13: coming from Commit, the Join says how often I saw the Commit token."""
    bench = Bench().to_ring().to_gather().to_phase(2, Phase.COMMIT)
    bench.lose()
    (join,) = sent(bench.fire(2, Timer.TOKEN_LOSS), Join)
    assert (join.rotation_count, join.ring_seq) == (1, 12)


def test_r34_regular_tokens_are_discarded(bench: Bench) -> None:
    """F4.5, F4.6: from entering Gather until Recover."""
    assert only_dropped(bench.receive(2, bench.token(2, token_seq=10**6), src=1))


def test_r35_old_ring_messages_are_delivered_as_in_operational(bench: Bench) -> None:
    """F4.6: agreed ones, in order; a safe one still needs to be known everywhere."""
    assert not deliveries(bench.receive(2, bench.message(2), src=3))
    assert deliveries(bench.receive(2, bench.message(1), src=3)) == [(RING, 1), (RING, 2)]
    assert not deliveries(bench.receive(2, bench.message(3, level=Level.SAFE), src=3))


def test_r35_not_once_the_exchange_is_complete() -> None:
    """G16 (S27): the exchanged set is fixed; a late extra copy at one member would split it."""
    bench = Bench().to_ring().to_gather()
    bench.run(until=lambda: bench[2].recovery.my_received_flg)
    bench.lose()
    bench.fire(2, Timer.TOKEN_LOSS)
    assert bench[2].phase is Phase.GATHER
    late = bench.receive(2, bench.message(1, ring=RING), src=3)
    assert drops(late) == ["the exchanged set is fixed"]
    assert bench[2].snapshot()["my_aru"] == 0


def test_r36_a_new_stranger_becomes_a_candidate(bench: Bench) -> None:
    """F4.6: enter Gather again, with the larger set."""
    (join,) = sent(bench.receive(2, Announce(ViewId(4, 9), 9), src=9), Join)
    assert join.proc_set == (1, 2, 3, 9)
    (join,) = sent(bench.receive(2, bench.message(1, ring=ViewId(4, 8)), src=8), Join)
    assert join.proc_set == (1, 2, 3, 8, 9)


def test_r36_a_candidates_foreign_message_changes_nothing(bench: Bench) -> None:
    """F4.6: it is a candidate already."""
    assert only_dropped(bench.receive(2, Announce(ViewId(4, 3), 3), src=3))
    assert only_dropped(bench.receive(2, bench.message(1, ring=ViewId(12, 3)), src=3))


def test_r37_a_join_with_my_sets_is_a_vote(bench: Bench) -> None:
    """F4.6: consensus once every candidate has shown exactly my two sets."""
    bench.receive(2, bench.join(1, (1, 2, 3)), src=1)
    assert Timer.CONSENSUS in bench.timers[2]
    effects = bench.receive(2, bench.join(3, (1, 2, 3)), src=3)
    assert "consensus" in cancelled(effects)


def test_r38_a_join_with_smaller_sets_changes_nothing(bench: Bench) -> None:
    """F4.6: its sender will catch up."""
    effects = bench.receive(2, bench.join(3, (2, 3), rotation_count=5), src=3)
    assert effects == []
    assert bench[2].gather.my_last[3].rotation_count == 5


def test_r38_ext_a_late_smaller_join_takes_back_no_consent(bench: Bench) -> None:
    """R38 ext: a Join that was overtaken says what its sender wanted earlier."""
    bench.receive(2, bench.join(3, (1, 2, 3)), src=3)
    bench.receive(2, bench.join(3, (2, 3)), src=3)
    assert "consensus" in cancelled(bench.receive(2, bench.join(1, (1, 2, 3)), src=1))


def test_r39_a_join_of_a_failed_processor_is_ignored() -> None:
    """F4.6, §4.2: what it says does not count any more."""
    bench = Bench().to_ring().to_gather(2)
    bench.receive(2, bench.join(1, (1, 2, 3), fail=(3,)), src=1)
    assert bench[2].snapshot()["fail_set"] == (3,)
    assert only_dropped(bench.receive(2, bench.join(3, (1, 2, 3, 9)), src=3))
    assert bench[2].snapshot()["proc_set"] == (1, 2, 3)


@pytest.mark.parametrize(
    ("sender", "proc", "fail", "failed"),
    [
        (3, (1, 2, 3), (2,), (3,)),  # it excludes me: then I exclude it, and only it
        (3, (1, 2, 3, 8), (2, 8), (3,)),
        (3, (1, 2, 3, 8), (1, 8), (1, 8)),  # a member of my ring is believed
        (9, (1, 2, 3, 8, 9), (1, 8), (8,)),  # an outsider cannot break my ring
        (9, (2, 9), (2,), (9,)),
    ],
)
def test_r40_how_sets_are_merged(
    bench: Bench, sender: int, proc: tuple[int, ...], fail: tuple[int, ...], failed: object
) -> None:
    """§4.2, G12 (S30): F4.6 lost an else; the prose says whose fail_set is believed."""
    bench.receive(2, bench.join(sender, proc, fail), src=sender)
    assert bench[2].snapshot()["fail_set"] == failed
    assert bench[2].snapshot()["proc_set"] == tuple(sorted({1, 2, 3, *proc}))


def test_r41_gather_is_entered_again_only_if_a_set_changed(bench: Bench) -> None:
    """§4.2, G12: or an outsider with a fail_set we refuse would restart our timers for ever."""
    refused = bench.join(9, (1, 2, 3, 9), fail=(1,))
    first = bench.receive(2, refused, src=9)
    assert "consensus" in set_timers(first)  # 9 is new
    again = bench.receive(2, refused, src=9)
    assert not set_timers(again) and not cancelled(again)


def test_r42_the_join_is_repeated(bench: Bench) -> None:
    """F4.7: with the same sets, and so again."""
    effects = bench.fire(2, Timer.JOIN)
    assert sent(effects, Join) == [bench.join(2, (1, 2, 3))]
    assert set_timers(effects) == {"join": bench.config.join_us}


def test_r43_whoever_does_not_agree_in_time_is_failed(bench: Bench) -> None:
    """F4.7: silence and disagreement count alike; the votes are counted anew."""
    bench.receive(2, bench.join(1, (1, 2, 3)), src=1)
    (join,) = sent(bench.fire(2, Timer.CONSENSUS), Join)
    assert join.fail_set == (3,)
    assert bench[2].gather.my_last == {}
    assert bench[2].phase is Phase.GATHER


def test_r43_held_back_alone_the_timeout_forms_the_singleton() -> None:
    """F4.7, R7."""
    bench = Bench(1)
    bench.start(1)
    assert upcalls(bench.fire(1, Timer.CONSENSUS))[-1] == ("R", 8, 1, (1,))


def test_r43_everybody_silent_leaves_me_alone_at_once(bench: Bench) -> None:
    """F4.7, R8: with all others failed my own vote is consensus."""
    effects = bench.fire(2, Timer.CONSENSUS)
    assert upcalls(effects) == [("T", 10, 2, (2,)), ("R", 12, 2, (2,))]


def test_r43_ext_members_that_do_not_hear_each_other_are_parted() -> None:
    """R43 ext, G29, G30: the timeout excludes whoever is outside my group, and says why."""
    bench = Bench(mutual=True).to_ring()
    bench.cut |= {(1, 3), (3, 1)}
    bench.to_gather()
    for _ in range(2):
        bench.quiet()
        for node in bench.ids:
            bench.fire(node, Timer.JOIN)
    bench.quiet()
    effects = bench.fire(1, Timer.CONSENSUS)
    reasons = [note.text for note in only(effects, Note) if note.what == "exclude"]
    assert reasons == ["3: 1 does not hear 3, 3 does not hear 1"]
    assert bench[1].snapshot()["fail_set"] == (3,)


def test_r44_the_representative_forms_the_ring_at_consensus() -> None:
    """§4.2, F4.8: the smallest id of those not failed creates the Commit token."""
    bench = Bench().to_ring().to_gather(1)
    bench.receive(1, bench.join(2, (1, 2, 3)), src=2)
    assert bench[1].phase is Phase.GATHER
    effects = bench.receive(1, bench.join(3, (1, 2, 3)), src=3)
    assert bench.phase(1) is Phase.COMMIT
    assert sent(effects, CommitToken)


def test_r44_others_wait_for_the_commit_token(bench: Bench) -> None:
    """§4.2, G27: Consensus timer off, token_loss on, Joins go on."""
    bench.receive(2, bench.join(1, (1, 2, 3)), src=1)
    effects = bench.receive(2, bench.join(3, (1, 2, 3)), src=3)
    assert set_timers(effects) == {"token_loss": bench.config.token_loss_us}
    assert cancelled(effects) == {"consensus"}
    assert Timer.JOIN in bench.timers[2]
    assert bench[2].phase is Phase.GATHER


def test_r45_no_commit_token_came(bench: Bench) -> None:
    """§4.2, F4.7: the votes are forgotten and the same sets proposed again."""
    for q in (1, 3):
        bench.receive(2, bench.join(q, (1, 2, 3)), src=q)
    (join,) = sent(bench.fire(2, Timer.TOKEN_LOSS), Join)
    assert (join.proc_set, join.fail_set) == ((1, 2, 3), ())
    assert bench[2].gather.my_last == {}


def test_r45_a_commit_token_of_a_membership_given_up_is_discarded(bench: Bench) -> None:
    """§4.2, G15: its other members have gone on too; it would lead to a ring nobody is in."""
    for q in (1, 3):
        bench.receive(2, bench.join(q, (1, 2, 3)), src=q)
    bench.fire(2, Timer.TOKEN_LOSS)
    assert only_dropped(bench.receive(2, commit_token(), src=1))


def test_r45_only_a_waiting_processor_has_token_loss_set(bench: Bench) -> None:
    """R33, R44: token_retransmit never is."""
    assert Timer.TOKEN_LOSS not in bench.timers[2]
    assert stops(bench.handle(2, TimerFired(Timer.TOKEN_RETRANSMIT)))


def failed_attempt(*counts: int, me: int = 1) -> tuple[Bench, list[Effect]]:
    """B3 whose first attempt failed at ``me``; the others report these rotation counts."""
    bench = Bench().to_ring().to_gather()
    bench.to_phase(me, Phase.COMMIT)
    bench.lose()
    bench.fire(me, Timer.TOKEN_LOSS)
    effects: list[Effect] = []
    for q, count in zip([q for q in (1, 2, 3) if q != me], counts, strict=True):
        join = bench.join(q, (1, 2, 3), ring_seq=12, rotation_count=count)
        effects += bench.receive(me, join, src=q)
    return bench, effects


def test_r46_a_membership_reached_twice_loses_its_slowest_member() -> None:
    """§4.2, F4.7, G13 (S21): whoever saw the Commit token least is where it got stuck."""
    bench, effects = failed_attempt(1, 0)
    assert bench[1].snapshot()["fail_set"] == (3,)
    assert sent(effects, Join)[-1].fail_set == (3,)


def test_r46_of_equals_the_first_in_rotation_order_is_the_victim() -> None:
    """G13: representative first."""
    bench, _ = failed_attempt(1, 1, me=2)
    assert bench[2].snapshot()["fail_set"] == (1,)


def test_r46_the_victim_itself_goes_on_alone() -> None:
    """§4.2: everybody else is failed to it, and it forms a ring of one at once."""
    bench, effects = failed_attempt(5, 5, me=1)
    assert upcalls(effects)[-1] == ("R", 16, 1, (1,))
    assert bench[1].phase is Phase.OPERATIONAL


@pytest.mark.parametrize(
    "wrong",
    [
        {"ring_id": RING},
        {"token_seq": 3},
        {"memb": (1, 2)},
        {"entries": (entry(),) * 2},
        {"entries": (entry(),) * 3},
    ],
    ids=["old number", "too many hops", "other members", "not my turn", "full"],
)
def test_r48_a_commit_token_that_does_not_fit_is_discarded(
    bench: Bench, wrong: dict[str, object]
) -> None:
    """F4.7, §4.2, G36: larger ring number, too few hops, my candidates, and my turn."""
    assert only_dropped(bench.receive(2, replace(commit_token(), **wrong), src=1))


def test_r48_own_consensus_is_not_needed(bench: Bench) -> None:
    """§4.2: the representative's consensus is enough."""
    effects = bench.receive(2, commit_token(), src=1)
    assert bench[2].phase is Phase.COMMIT
    assert sent(effects, CommitToken) and not sent(effects, Token)


VARIABLES = (
    *("ring_id", "old_ring_id", "memb", "new_memb", "trans_memb", "deliver_memb", "proc_set"),
    *("fail_set", "consensus", "last", "max_ring_seq", "tried", "my_aru", "my_high_delivered"),
    *("my_token_seq", "last_aru_seen", "my_aru_count", "my_rotation_count", "my_received_flg"),
    *("low_ring_aru", "high_ring_delivered", "my_retrans_flg_count", "my_install_seq"),
    *("i_set_flg", "to_retransmit", "queued", "last_token_seq", "last_retrans", "window"),
)
"""Dossier 2.3, by the names of a snapshot."""


def test_every_variable_of_the_paper_can_be_shown(bench: Bench) -> None:
    shown = bench[2].snapshot()
    assert set(VARIABLES) <= set(shown)
    assert (shown["proc_set"], shown["consensus"]) == ((1, 2, 3), (2,))
    bench.receive(2, bench.join(3, (1, 2, 3), ring_seq=8, rotation_count=0), src=3)
    assert bench[2].snapshot()["consensus"] == (2, 3)
