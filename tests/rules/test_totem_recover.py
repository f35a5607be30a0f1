"""Forming a ring, Recover: dossier section 3.7, R56-R70."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from driver import (
    Bench,
    Phase,
    Timer,
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

from ringcast.core.effects import Effect, InstallView, Persist, Send
from ringcast.core.ids import ViewId
from ringcast.protocols.totem_single.messages import (
    Announce,
    CommitToken,
    Encapsulated,
    Entry,
    Join,
    Regular,
    Token,
)

OLD, NEW = ViewId(8, 1), ViewId(12, 1)


def recovering(
    held: Iterable[int] = (),
    entries: tuple[Entry, ...] = (entry(), entry(), entry()),
    me: int = 2,
    **settings: object,
) -> tuple[Bench, list[Effect]]:
    """B3 re-forming as (12,1): ``me`` holds these old messages and has just entered Recover."""
    bench = Bench(**settings).to_ring()  # type: ignore[arg-type]
    bench.lose()
    for seq in held:
        bench.receive(me, bench.message(seq, sender=3), src=3)
    bench.to_gather().to_phase(me, Phase.COMMIT)
    bench.lose()
    before = me - 1 or 3
    signed = bench[me].recovery.my_signature
    assert signed is not None
    entries = (*entries[: me - 1], signed, *entries[me:])
    return bench, bench.receive(me, CommitToken(NEW, 3, (1, 2, 3), entries), src=before)


def visit(bench: Bench, me: int = 2, **changes: object) -> tuple[Token, list[Effect]]:
    """One visit of the forming ring's token; what was passed on, and the effects."""
    arrives = bench[me].token.my_token_seq + 2
    token = Token(NEW, arrives, 0, 0, None, (), 0, False)
    effects = bench.receive(me, replace(token, **changes), src=1)
    (out,) = sent(effects, Token)
    return out, effects


def test_r56_entering_recover_passes_the_commit_token_on() -> None:
    """F4.11: one hop more, one forward more; storage was written in the first rotation."""
    bench, effects = recovering()
    (send,) = only(effects, Send)
    assert (send.to, send.message) == (3, CommitToken(NEW, 4, (1, 2, 3), (entry(),) * 3))
    assert not only(effects, Persist)
    machine = bench[2]
    assert (machine.token.my_token_seq, machine.token.my_rotation_count) == (4, 2)
    assert set_timers(effects).keys() == {"token_loss", "token_retransmit"}
    assert machine.new.my_aru == machine.token.last_aru_seen == machine.token.my_aru_count == 0
    assert (
        machine.flow.last_token_seq
        == machine.flow.last_retrans
        == machine.recovery.my_retrans_flg_count
        == 0
    )
    assert not machine.new.store and not machine.recovery.i_set_flg


def test_r56_the_transitional_members_come_from_the_same_old_ring() -> None:
    """F4.11, G23: not the intersection; a restarted member has its own singleton behind it."""
    bench, _ = recovering(entries=(entry(), entry(), entry(ring=ViewId(4, 3))))
    assert bench[2].recovery.my_trans_memb == (1, 2)


def test_r56_a_ring_with_other_members_is_another_ring() -> None:
    """G38 ext: a processor without its storage may use a number again; its members tell."""
    bench, _ = recovering(entries=(entry(memb=(1, 2)), entry(), entry()))
    assert bench[2].recovery.my_trans_memb == (2, 3)


def test_r57_an_incomplete_exchange_starts_over() -> None:
    """F4.11: least aru and greatest delivered of my old ring's members; the rest is queued."""
    entries = (entry(2, 1), entry(4, 4), entry(9, 9, ring=ViewId(8, 9)))
    bench, _ = recovering(held=(1, 2, 3, 4, 6), entries=entries)
    machine = bench[2]
    assert not machine.recovery.my_received_flg
    assert machine.recovery.my_deliver_memb == machine.recovery.my_trans_memb == (1, 2)
    assert machine.recovery.low_ring_aru == 2
    assert machine.recovery.high_ring_delivered == 4
    assert list(machine.recovery.retrans_message_queue) == [3, 4, 6]


def received_then_lost() -> Bench:
    """B3: recovery as (12,1) completed the exchange everywhere, then 3 crashed."""
    bench = Bench().to_ring()
    bench.lose()
    bench.receive(3, bench.message(1, sender=3), src=1)
    bench.to_gather()
    bench.run(until=lambda: all(bench[n].recovery.my_received_flg for n in bench.ids))
    assert {bench[n].phase for n in bench.ids} == {Phase.RECOVER}
    bench.crash(3)
    return bench.reform(1, 2)


def test_r58_a_complete_exchange_is_not_repeated() -> None:
    """§4.2, §4.3, G17 (S27): what was obtained and from whom it counts stay as they were."""
    bench = received_then_lost().to_phase(2, Phase.RECOVER)
    machine = bench[2]
    assert machine.recovery.my_received_flg
    assert machine.recovery.my_deliver_memb == (1, 2, 3)
    assert machine.recovery.my_trans_memb == (1, 2)
    assert not machine.recovery.retrans_message_queue
    bench.until_operational()
    assert not [e for n in (1, 2) for e in sent(bench.log[n], Encapsulated) if e.ring_id.seq == 16]
    assert upcalls(bench.log[1])[-3:] == upcalls(bench.log[2])[-3:]


def test_r58_flags_of_different_recoveries_are_a_broken_invariant() -> None:
    """G17: equal flags mean equal sets only if they were set in the same recovery."""
    bench = received_then_lost().to_phase(2, Phase.COMMIT)
    bench.lose()
    mine = bench[2].recovery.my_signature
    assert mine is not None
    token = CommitToken(ViewId(16, 1), 2, (1, 2), (entry(1, 1, done=ViewId(8, 2)), mine))
    (reason,) = stops(bench.receive(2, token, src=1))
    assert reason.startswith("broken invariant")


def test_r55_ext_a_commit_token_of_an_earlier_life_is_refused() -> None:
    """G38 ext: after losing its storage a processor may meet what it signed before."""
    bench = received_then_lost().to_phase(2, Phase.COMMIT)
    bench.lose()
    token = CommitToken(ViewId(16, 1), 2, (1, 2), (entry(1, 1), entry(0, 0)))
    assert only_dropped(bench.receive(2, token, src=1))
    assert bench[2].phase is Phase.COMMIT


def representative(held: Iterable[int] = ()) -> tuple[Bench, list[Effect]]:
    """The Commit token comes back to representative 1 for the second time."""
    bench, _ = recovering(held=held, me=1)
    return bench, bench.receive(1, CommitToken(NEW, 6, (1, 2, 3), (entry(),) * 3), src=3)


def test_r59_the_commit_token_becomes_the_regular_token() -> None:
    """F4.13, G2: token_seq goes on, everything else starts at nothing; one forward, no visit."""
    bench, effects = representative()
    assert only(effects, Send) == [Send(2, Token(NEW, 7, 0, 0, None, (), 0, False))]
    assert bench[1].token.my_rotation_count == 3
    assert bench[1].recovery.my_retrans_flg_count == 0


def test_r59_the_flag_says_that_the_representative_has_to_send() -> None:
    """F4.13: retrans_flg is set from the start if its queue is not empty."""
    bench, effects = representative(held=(1,))
    assert sent(effects, Token)[0].retrans_flg
    assert bench[1].recovery.i_set_flg


def test_r59_others_and_copies_drop_commit_tokens() -> None:
    """F4.13: a copy of the second rotation must not make a second token."""
    bench, _ = recovering()
    assert only_dropped(bench.receive(2, CommitToken(NEW, 9, (1, 2, 3), (entry(),) * 3), src=1))
    bench, _ = recovering(me=1)
    copy = CommitToken(NEW, 2, (1, 2, 3), (entry(),) * 3)
    assert only_dropped(bench.receive(1, copy, src=3))


def test_r60_old_messages_travel_encapsulated() -> None:
    """F4.12, §4.3: in the place of new ones, under numbers of the new ring; by the second on it."""
    bench, _ = recovering(held=(1, 2))
    bench.submit(2, b"mine")
    out, effects = visit(bench, seq=5, retrans_flg=True)
    assert sent(effects, Encapsulated) == [
        Encapsulated(NEW, 6, bench.message(1, ring=OLD), 1),
        Encapsulated(NEW, 7, bench.message(2, ring=OLD), 1),
    ]
    assert not sent(effects, Regular)  # no application message, R78
    assert out.seq == 7 and bench[2].snapshot()["queued"] == 1
    assert out.rtr == (1, 2, 3, 4, 5)


def test_r60_stale_tokens_are_dropped_here_too() -> None:
    """F4.12, R10."""
    bench, _ = recovering()
    token = Token(NEW, bench[2].token.my_token_seq - 1, 0, 0, None, (), 0, False)
    assert only_dropped(bench.receive(2, token, src=1))


def test_r61_the_flag_is_set_by_whoever_has_to_send() -> None:
    """F4.12: and cleared by the same processor once its queue is empty."""
    bench, _ = recovering(held=(1, 2), each_time=1)
    out, _ = visit(bench)
    assert out.retrans_flg and bench[2].recovery.i_set_flg  # one of two is left
    out, _ = visit(bench, retrans_flg=True, seq=1)
    assert not out.retrans_flg and not bench[2].recovery.i_set_flg


def test_r61_somebody_elses_flag_is_left_alone() -> None:
    """F4.12: only who set it may clear it."""
    bench, _ = recovering()
    out, _ = visit(bench, retrans_flg=True)
    assert out.retrans_flg


def test_r62_visits_without_the_flag_are_counted() -> None:
    """F4.12: any visit with the flag starts over; at two, the last number is what to wait for."""
    bench, _ = recovering()
    machine = bench[2]
    visit(bench)
    assert machine.recovery.my_retrans_flg_count == 1
    visit(bench, retrans_flg=True)
    assert machine.recovery.my_retrans_flg_count == 0
    visit(bench, seq=5)
    assert (machine.recovery.my_retrans_flg_count, machine.recovery.my_install_seq) == (1, 0)
    visit(bench, seq=7)
    assert (machine.recovery.my_retrans_flg_count, machine.recovery.my_install_seq) == (2, 7)


def test_r63_received_once_my_own_aru_reaches_the_last_number() -> None:
    """F4.12, G20: my own aru, so that the flag is set no later than anybody installs."""
    bench, _ = recovering()
    machine = bench[2]
    visit(bench, seq=1)
    visit(bench, seq=1)
    assert not machine.recovery.my_received_flg  # number 1 is missing
    bench.receive(2, Encapsulated(NEW, 1, bench.message(1, ring=OLD), 2), src=3)
    visit(bench, seq=1, aru=0, aru_id=3)
    assert machine.recovery.my_received_flg
    assert machine.recovery.my_deliver_memb == machine.recovery.my_trans_memb == (1, 2, 3)
    assert machine.recovery.received_in == NEW
    assert machine.phase is Phase.RECOVER  # the ring's aru lags still


def test_r64_installed_at_the_third_visit_with_a_full_aru_twice() -> None:
    """F4.12, §4.3, G22: before the token leaves; own messages wait one visit more."""
    bench, _ = recovering()
    bench.submit(2, b"mine")
    for _ in range(2):
        visit(bench)
        assert bench[2].phase is Phase.RECOVER
    _, effects = visit(bench)
    assert bench[2].phase is Phase.OPERATIONAL
    (send,) = only(effects, Send)
    assert effects.index(only(effects, InstallView)[-1]) < effects.index(send)
    assert not sent(effects, Regular)
    assert sent(bench.receive(2, bench.token(2), src=1), Regular)


def test_r64_a_lagging_aru_puts_the_install_off() -> None:
    """F4.12, G22: forwarded full at this visit *and* the one before."""
    bench, _ = recovering()
    bench.receive(2, Encapsulated(NEW, 1, bench.message(1, ring=OLD), 2), src=3)
    visit(bench, seq=1, aru=1)
    visit(bench, seq=1, aru=0, aru_id=3)
    visit(bench, seq=1, aru=0, aru_id=3)
    assert bench[2].recovery.my_retrans_flg_count == 3 and bench[2].phase is Phase.RECOVER
    visit(bench, seq=1, aru=1, aru_id=None)
    assert bench[2].phase is Phase.RECOVER
    visit(bench, seq=1, aru=1, aru_id=None)
    assert bench.phase(2) is Phase.OPERATIONAL


def test_r65_frames_of_the_forming_ring_are_kept_undelivered() -> None:
    """F4.12 (S37): an early installer may send already; its message waits for my install."""
    bench, _ = recovering()
    effects = bench.receive(2, bench.message(1, ring=NEW), src=3)
    assert set_timers(effects) == {"token_loss": bench.config.token_loss_us}
    assert not deliveries(effects)
    assert bench[2].new.my_aru == 1


def test_r66_the_inner_message_enters_the_old_ring() -> None:
    """F4.12, §4.3: and need not be sent by me any more."""
    bench, _ = recovering(held=(1, 3))
    assert list(bench[2].recovery.retrans_message_queue) == [1, 3]
    for new_seq, old_seq in ((1, 2), (2, 3)):
        inner = bench.message(old_seq, ring=OLD)
        effects = bench.receive(2, Encapsulated(NEW, new_seq, inner, 0), src=1)
        assert set_timers(effects) == {"token_loss": bench.config.token_loss_us}
    assert bench[2].snapshot()["my_aru"] == 3
    assert list(bench[2].recovery.retrans_message_queue) == [1]


def test_r66_inner_messages_of_other_rings_are_only_kept_for_requests() -> None:
    """§4.3: somebody else's old ring is not mine."""
    bench, _ = recovering()
    bench.receive(2, Encapsulated(NEW, 1, bench.message(1, ring=ViewId(8, 9)), 2), src=3)
    assert bench[2].snapshot()["my_aru"] == 0
    _, effects = visit(bench, seq=1, aru=0, aru_id=3, rtr=(1,))
    assert [m.seq for m in sent(effects, Encapsulated)] == [1]


@pytest.mark.parametrize("rank", [2, 9])
def test_g38_ext_inner_messages_of_another_ring_of_that_name_are_not_mine(
    rank: int,
) -> None:
    """One that lost its storage gave a ring the name of an earlier one, in which 3 was: what 3
    holds of that was never in the ring that 2 remembers. It is kept for requests; nor is there
    a member of rank 9."""
    bench, _ = recovering(entries=(entry(), entry(), entry(memb=(1, 3))))
    assert bench[2].recovery.my_trans_memb == (1, 2)
    bench.receive(2, Encapsulated(NEW, 1, bench.message(1, ring=OLD), rank), src=3)
    assert bench[2].old.my_aru == 0 and bench[2].new.my_aru == 1
    bench.receive(2, Encapsulated(NEW, 2, bench.message(1, ring=OLD), 0), src=3)
    assert bench[2].old.my_aru == 1, "1 put it there, and 3 sent it again"


def test_r67_direct_old_messages_and_foreign_ones_are_dropped() -> None:
    """G16 (S26): the exchanged set was fixed when the queue was built."""
    bench, _ = recovering()
    for frame in (
        bench.message(1, ring=OLD),
        bench.message(1, ring=ViewId(4, 9)),
        Encapsulated(ViewId(16, 9), 1, bench.message(1, ring=OLD), 2),
        Announce(ViewId(4, 9), 9),
    ):
        assert only_dropped(bench.receive(2, frame, src=9))
    assert bench[2].snapshot()["my_aru"] == 0


def test_r68_a_join_with_this_rings_number_ends_the_recovery() -> None:
    """F4.12, G1: as in Commit; others are ignored."""
    bench, _ = recovering()
    assert only_dropped(bench.receive(2, bench.join(3, (1, 2, 3), ring_seq=8), src=3))
    assert bench[2].phase is Phase.RECOVER
    assert sent(bench.receive(2, bench.join(3, (1, 2, 3), ring_seq=12), src=3), Join)
    assert bench.phase(2) is Phase.GATHER


def failing(bench: Bench, fail_set: tuple[int, ...], join_fails: tuple[int, ...]) -> None:
    """2 is in Recover with this fail_set; then comes a Join of 1, on the ring being formed."""
    mine = bench[2].gather
    mine.my_fail_set = frozenset(fail_set)
    mine.my_proc_set |= mine.my_fail_set
    mine.tried.add(mine.sets)
    proc_set = tuple(sorted({1, 2, 9, *fail_set}))
    bench.receive(2, bench.join(1, proc_set, join_fails, ring_seq=12), src=1)
    assert bench.phase(2) is Phase.GATHER


def test_r68_ext_a_join_of_one_that_has_installed_the_ring_ends_the_attempt() -> None:
    """Whoever had failed is taken back by 1, so 1 has installed the ring; were 8 excluded by 2
    still, 8 would exclude 2 in return, and the two parts never merge."""
    bench, _ = recovering()
    failing(bench, (8,), ())
    gather = bench[2].gather
    assert gather.my_fail_set == frozenset() and 8 in gather.my_proc_set
    assert not gather.tried


def test_r68_ext_but_failed_members_of_the_old_ring_stay_failed() -> None:
    """G17: what 2 completed with the others of its old ring must not be completed with 3 again."""
    bench, _ = recovering()
    failing(bench, (3, 8), ())
    assert bench[2].snapshot()["fail_set"] == (3,)


def test_r68_ext_one_that_gave_the_ring_up_fails_whom_it_failed() -> None:
    """Its sets have only grown: then mine stay, too."""
    bench, _ = recovering()
    failing(bench, (8,), (8, 9))
    assert bench[2].snapshot()["fail_set"] == (8, 9)
    assert bench[2].gather.tried


def test_r69_an_abandoned_ring_leaves_only_the_old_messages() -> None:
    """F4.13: the new record and the queue go, what was learnt of the old ring stays."""
    bench, _ = recovering(held=(2,))
    bench.receive(2, Encapsulated(NEW, 1, bench.message(1, ring=OLD), 2), src=3)
    bench.receive(2, bench.message(2, ring=NEW), src=3)
    (join,) = sent(bench.fire(2, Timer.TOKEN_LOSS), Join)
    machine = bench[2]
    assert join.ring_seq == 12 and machine.snapshot()["ring_id"] == "(12,1)"
    assert machine.snapshot()["old_ring_id"] == "(8,1)"
    assert machine.snapshot()["my_aru"] == 2
    assert not machine.recovery.retrans_message_queue
    assert sorted(machine.old.store) == [1, 2] and machine.new is machine.old


def test_r69_the_received_flag_survives() -> None:
    """F4.13 (S37): it is what lets the next pass go without an exchange."""
    bench, _ = recovering()
    for _ in range(2):
        visit(bench)
    bench.fire(2, Timer.TOKEN_LOSS)
    assert bench[2].phase is Phase.GATHER and bench[2].recovery.my_received_flg
    assert bench[2].recovery.my_deliver_memb == (1, 2, 3)


def test_r70_failure_to_receive_in_recover() -> None:
    """§4.2: as R17; the laggard is blamed and the recovery abandoned."""
    bench, _ = recovering(fail_rcv_const=2)
    bench.receive(2, Encapsulated(NEW, 1, bench.message(1, ring=ViewId(8, 9)), 2), src=3)
    lag = {"seq": 1, "aru": 0, "aru_id": 3, "retrans_flg": True}
    visit(bench, seq=1, aru=1, retrans_flg=True)
    for _ in range(3):
        visit(bench, **lag)
    token = Token(NEW, bench[2].token.my_token_seq + 2, 1, 0, 3, (), 0, True)
    effects = bench.receive(2, token, src=1)
    assert not sent(effects, Token)
    assert bench[2].phase is Phase.GATHER and bench[2].snapshot()["fail_set"] == (3,)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_r62_to_r64_all_install_at_the_same_number(n: int) -> None:
    """Dossier 3.8, counting check: when one installs, all have flag, count and number."""
    bench = Bench(n).to_ring()
    bench.lose()
    for node in bench.ids:
        for seq in range(1, 8):
            if seq % n != node - 1 or seq == node:
                bench.receive(node, bench.message(seq, sender=1 + seq % n), src=1 + node % n)
    bench.to_gather()
    bench.run(until=lambda: Phase.OPERATIONAL in bench.phases())
    forming = [node for node in bench.ids if bench[node].phase is Phase.RECOVER]
    assert all(bench[node].recovery.my_received_flg for node in forming)
    assert all(bench[node].recovery.my_retrans_flg_count >= 2 for node in bench.ids)
    bench.until_operational()
    assert len({bench[node].recovery.my_install_seq for node in bench.ids}) == 1
    assert not drops(e for node in bench.ids for e in bench.log[node][-50:])
