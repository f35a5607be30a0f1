"""Operational, the token: dossier section 3.2, R10-R21."""

from __future__ import annotations

import pytest
from driver import Bench, Phase, deliveries, drops, only, only_dropped, sent, set_timers, upcalls
from msgspec.structs import replace

from ringcast.core.effects import Broadcast, Deliver, Originate, Send, SetTimer
from ringcast.core.ids import Level, ViewId
from ringcast.protocols.totem_single.messages import Regular, Token
from ringcast.protocols.totem_single.state import Timer


@pytest.fixture
def bench() -> Bench:
    """B3: ring (8,1) of three, idle; frames are given by hand."""
    ring = Bench().to_ring()
    ring.lose()
    return ring


def test_r10_token_accepted_only_if_not_older_than_the_one_i_sent(bench: Bench) -> None:
    """F4.1, G2: my_token_seq is the value I sent; a token as new as that is accepted."""
    mine = bench[2].token.my_token_seq
    assert drops(bench.receive(2, bench.token(2, token_seq=mine - 1), src=1)) == ["stale token"]
    assert sent(bench.receive(2, bench.token(2, token_seq=mine), src=1), Token)
    assert bench[2].token.my_token_seq == mine + 1


def test_r10_a_copy_of_an_accepted_token_is_stale(bench: Bench) -> None:
    """G2 (S9): the value sent is one above the value received, so no copy passes."""
    token = bench.token(2)
    assert sent(bench.receive(2, token, src=1), Token)
    assert only_dropped(bench.receive(2, token, src=1))


def test_r10_another_rings_token_is_discarded(bench: Bench) -> None:
    """F4.1: whatever its token_seq."""
    for ring in (ViewId(4, 1), ViewId(12, 1), ViewId(8, 2)):
        token = bench.token(2, ring_id=ring, token_seq=10**6)
        assert only_dropped(bench.receive(2, token, src=1))


def test_r11_acceptance_ends_the_token_retransmission_timeout(bench: Bench) -> None:
    """F4.1: the token is back, so the one sent before need not be sent again."""
    bench.submit(2, b"a")
    effects = bench.receive(2, bench.token(2), src=1)
    assert set_timers(effects)["token_retransmit"] == bench.config.token_retransmit_us
    assert bench[2].token.last_sent[1] in sent(effects, Token)


def test_r12_held_requests_are_rebroadcast_oldest_first(bench: Bench) -> None:
    """F4.1: what I hold is sent again and leaves the list; what I miss stays on it."""
    for seq in (1, 3, 5):
        bench.receive(2, bench.message(seq), src=3)
    token = bench.token(2, seq=5, aru=0, aru_id=3, rtr=(1, 2, 3, 5))
    effects = bench.receive(2, token, src=1)
    assert [m.seq for m in sent(effects, Regular)] == [1, 3, 5]
    assert sent(effects, Token)[0].rtr == (2, 4)


def test_r12_retransmissions_stay_within_the_allowance() -> None:
    """F4.1, R86: more requests than allowance wait for another visit or another holder."""
    bench = Bench(each_time=2).to_ring()
    bench.lose()
    for seq in (1, 2, 3, 4):
        bench.receive(2, bench.message(seq), src=3)
    bench.submit(2, b"mine")
    effects = bench.receive(2, bench.token(2, seq=4, aru_id=1, rtr=(1, 2, 3, 4)), src=1)
    assert [m.seq for m in sent(effects, Regular)] == [1, 2]
    (token,) = sent(effects, Token)
    assert (token.rtr, token.seq) == ((3, 4), 4)


def test_r12_a_request_answered_in_vain_is_left_to_another_holder(bench: Bench) -> None:
    """R12 ext (field bug 6): where my frames do not arrive, I must not take the request away."""
    bench.receive(2, bench.message(1), src=3)
    ask = {"seq": 1, "aru": 0, "aru_id": 3, "rtr": (1,)}
    first = bench.receive(2, bench.token(2, **ask), src=1)
    assert len(sent(first, Regular)) == 1 and sent(first, Token)[0].rtr == ()
    again = bench.receive(2, bench.token(2, **ask), src=1)
    assert not sent(again, Regular) and sent(again, Token)[0].rtr == (1,)
    third = bench.receive(2, bench.token(2, **ask), src=1)
    assert len(sent(third, Regular)) == 1


def test_r13_queued_messages_are_numbered_stored_and_broadcast(bench: Bench) -> None:
    """F4.1: each takes the next number of the token; `originate` is recorded before sending."""
    bench.submit(2, b"a", level=Level.AGREED)
    bench.submit(2, b"b", level=Level.SAFE)
    effects = bench.receive(2, bench.token(2, seq=7, aru=0, aru_id=3), src=1)
    acts = [e for e in effects if isinstance(e, Originate | Broadcast | Send)]
    assert [type(e).__name__ for e in acts] == [
        "Originate", "Broadcast", "Originate", "Broadcast", "Send",
    ]  # fmt: skip
    assert [(m.seq, m.sender_id, m.service) for m in sent(effects, Regular)] == [
        (8, 2, Level.AGREED),
        (9, 2, Level.SAFE),
    ]
    assert [o.batch.seq for o in only(effects, Originate)] == [8, 9]
    assert sent(effects, Token)[0].seq == 9
    assert {8, 9} <= bench[2].old.store.keys()


def test_r13_only_what_the_allowance_leaves() -> None:
    """F4.1, R84: each_time frames a visit."""
    bench = Bench(each_time=2, packing=False).to_ring()
    bench.submit(1, b"a", b"b", b"c")
    assert len(sent(bench.visit(1), Regular)) == 2
    assert len(sent(bench.visit(1), Regular)) == 1


def test_r14_my_aru_is_recomputed_with_own_messages(bench: Bench) -> None:
    """F4.1: the largest n with 1..n held, messages just numbered included."""
    bench.submit(2, b"a")
    bench.receive(2, bench.token(2), src=1)
    assert bench[2].snapshot()["my_aru"] == 1
    bench.receive(2, bench.message(3), src=3)
    assert bench[2].snapshot()["my_aru"] == 1
    bench.receive(2, bench.message(2), src=3)
    assert bench[2].snapshot()["my_aru"] == 3


@pytest.mark.parametrize(
    ("held", "aru", "aru_id", "expected"),
    [
        (3, 5, None, (3, 2)),  # I lag: lower it
        (3, 5, 1, (3, 2)),
        (4, 2, 2, (4, 2)),  # I lowered it: raise it to mine
        (5, 2, 2, (5, None)),  # and nobody lags once it reaches seq
        (5, 2, None, (5, None)),
        (5, 3, 1, (3, 1)),  # somebody else lags: leave it
    ],
)
def test_r15_aru_is_lowered_raised_or_left(
    bench: Bench, held: int, aru: int, aru_id: int | None, expected: tuple[int, int | None]
) -> None:
    """F4.1 (field bug 4): mine if I lag, if I lowered it, or if nobody did; else as it came."""
    for seq in range(1, held + 1):
        bench.receive(2, bench.message(seq), src=3)
    effects = bench.receive(2, bench.token(2, seq=5, aru=aru, aru_id=aru_id), src=1)
    (token,) = sent(effects, Token)
    assert (token.aru, token.aru_id) == expected


def test_r16_missing_numbers_are_requested_lowest_first(bench: Bench) -> None:
    """F4.1: everything in (my_aru, seq at receipt] not held and not listed yet."""
    for seq in (1, 4):
        bench.receive(2, bench.message(seq), src=3)
    bench.submit(2, b"own")
    effects = bench.receive(2, bench.token(2, seq=6, aru=0, aru_id=3, rtr=(3,)), src=1)
    (token,) = sent(effects, Token)
    assert token.rtr == (2, 3, 5, 6)
    assert token.seq == 7


def test_r16_requests_have_a_bound() -> None:
    """App. A: at most max_requests numbers travel in a token."""
    bench = Bench(max_requests=3).to_ring()
    bench.lose()
    effects = bench.receive(2, bench.token(2, seq=10, rtr=(9,)), src=1)
    assert sent(effects, Token)[0].rtr == (1, 2, 9)


def test_r16_miss_visits_delays_a_request() -> None:
    """R16 ext: where the network reorders, only numbers that existed that long ago are missed."""
    bench = Bench(miss_visits=1).to_ring()
    bench.rotate()
    bench.lose()
    first = bench.receive(2, bench.token(2, seq=2), src=1)
    assert sent(first, Token)[0].rtr == ()
    second = bench.receive(2, bench.token(2, seq=4), src=1)
    assert sent(second, Token)[0].rtr == (1, 2)


def test_r17_failure_to_receive_is_blamed_after_the_constant_is_exceeded() -> None:
    """F4.4, G4 (S12): exceeded, not reached; then the token is dropped and Gather entered."""
    bench = Bench(fail_rcv_const=3).to_ring()
    bench.lose()
    bench.receive(1, bench.message(1, sender=2), src=2)
    lag = {"seq": 1, "aru": 0, "aru_id": 3}
    bench.receive(1, bench.token(1, seq=1, aru=1), src=3)  # last_aru_seen is 1 now
    for _ in range(4):  # the first of these shows another aru, then three with the same
        assert sent(bench.receive(1, bench.token(1, **lag), src=3), Token)
    assert bench[1].token.my_aru_count == 3
    effects = bench.receive(1, bench.token(1, **lag), src=3)
    assert not only(effects, Send)
    assert bench[1].phase is Phase.GATHER
    assert bench[1].snapshot()["fail_set"] == (3,)


def test_r17_nobody_blames_itself() -> None:
    """F4.4, G4: the laggard goes on asking; the others decide."""
    bench = Bench(fail_rcv_const=1).to_ring()
    bench.lose()
    for _ in range(6):
        assert sent(bench.receive(1, bench.token(1, seq=1, aru=0, aru_id=1), src=3), Token)
    assert bench[1].phase is Phase.OPERATIONAL


def test_r17_the_count_starts_again_when_aru_moves(bench: Bench) -> None:
    """F4.4: only successive visits with the same lagging aru count."""
    for seq in (1, 2, 3):
        bench.receive(1, bench.message(seq, sender=2), src=2)
    for aru in (1, 1, 1, 2, 2):
        bench.receive(1, bench.token(1, seq=3, aru=aru, aru_id=3), src=3)
    assert bench[1].token.my_aru_count == 1
    bench.receive(1, bench.token(1, seq=3, aru=3, aru_id=None), src=3)
    assert bench[1].token.my_aru_count == 0


def test_r18_safe_is_the_lesser_of_the_last_two_forwarded_arus(bench: Bench) -> None:
    """§4.1, G3: the values forwarded, taken before the older one is overwritten."""
    bench.receive(2, bench.message(1, level=Level.SAFE), src=3)
    first = bench.receive(2, bench.token(2, seq=1, aru=1), src=1)
    assert not deliveries(first)
    second = bench.receive(2, bench.token(2, seq=1, aru=1), src=1)
    assert deliveries(second) == [(ViewId(8, 1), 1)]


def test_r18_an_aru_received_high_but_forwarded_low_does_not_count(bench: Bench) -> None:
    """G3: what I lowered myself is what I forwarded."""
    bench.receive(2, bench.message(1, level=Level.SAFE), src=3)
    bench.receive(2, bench.token(2, seq=2, aru=2), src=1)  # forwarded with aru 1: 2 is missing
    bench.receive(2, bench.message(2, level=Level.SAFE), src=3)
    effects = bench.receive(2, bench.token(2, seq=2, aru=2), src=1)
    assert deliveries(effects) == [(ViewId(8, 1), 1)]  # min(1, 2): not yet 2


def test_r19_the_forwarded_token_is_one_newer(bench: Bench) -> None:
    """F4.1, F4.4: token_seq and the rotation count go up by one a visit."""
    before = bench[2].token.my_rotation_count
    token = bench.token(2)
    (out,) = sent(bench.receive(2, token, src=1), Token)
    assert out.token_seq == token.token_seq + 1 == bench[2].token.my_token_seq
    assert bench[2].token.my_rotation_count == before + 1


def test_r19_retransmissions_of_the_round_are_counted(bench: Bench) -> None:
    """F4.1, R85: what I sent again now replaces what I sent again a rotation ago."""
    for seq in (1, 2):
        bench.receive(2, bench.message(seq), src=3)
    ask = bench.token(2, seq=2, aru_id=3, rtr=(1, 2), retrans_round=4)
    assert sent(bench.receive(2, ask, src=1), Token)[0].retrans_round == 6
    calm = bench.token(2, seq=2, aru_id=3, retrans_round=6)
    assert sent(bench.receive(2, calm, src=1), Token)[0].retrans_round == 4


@pytest.mark.parametrize(("node", "successor"), [(1, 2), (2, 3), (3, 1)])
def test_r20_token_goes_to_the_next_id_and_both_timers_are_set(node: int, successor: int) -> None:
    """F4.1, §4.2: ascending ids, wrapping; the figure forgets token_loss."""
    bench = Bench().to_ring()
    bench.lose()
    token = bench.token(node)
    config = bench.config
    assert bench.receive(node, token, src={1: 3, 2: 1, 3: 2}[node]) == [
        Send(successor, replace(token, token_seq=token.token_seq + 1)),
        SetTimer(Timer.TOKEN_RETRANSMIT, config.token_retransmit_us),
        SetTimer(Timer.TOKEN_LOSS, config.token_loss_us),
    ]


def test_r21_delivery_comes_after_the_token_is_sent(bench: Bench) -> None:
    """F4.1: the ring must not wait for the application."""
    bench.submit(2, b"a")
    effects = bench.receive(2, bench.token(2), src=1)
    kinds = [type(e) for e in effects]
    assert kinds.index(Send) < kinds.index(Deliver)
    assert upcalls(effects) == [1]


def test_r21_what_all_hold_is_released(bench: Bench) -> None:
    """§4.1: up to the safe bound nobody will ask again."""
    bench.receive(2, bench.message(1), src=3)
    bench.receive(2, bench.token(2, seq=1, aru=1), src=1)
    assert bench[2].snapshot()["stored"] == 1
    bench.receive(2, bench.token(2, seq=1, aru=1), src=1)
    assert bench[2].snapshot()["stored"] == 0
    assert bench[2].snapshot()["my_aru"] == 1
    assert not deliveries(bench.receive(2, bench.message(1), src=3))  # a late copy
