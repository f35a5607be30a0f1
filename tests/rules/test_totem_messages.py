"""Operational, messages, delivery and timers: dossier section 3.3, R22-R27."""

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
    sent,
    set_timers,
    stops,
)
from msgspec.structs import replace

from ringcast.blocks.receive_window import MAX_BYTES
from ringcast.core.effects import Send, SetTimer
from ringcast.core.ids import Level, ViewId
from ringcast.core.inputs import TimerFired
from ringcast.protocols.totem_single.messages import CommitToken, Encapsulated, Token

RING = ViewId(8, 1)


@pytest.fixture
def bench() -> Bench:
    """B3: ring (8,1) of three, idle; frames are given by hand."""
    ring = Bench().to_ring()
    ring.lose()
    return ring


def test_r22_a_message_is_stored_once_and_delivered(bench: Bench) -> None:
    """F4.2: the first copy counts, whoever transmitted it."""
    assert deliveries(bench.receive(2, bench.message(1), src=3)) == [(RING, 1)]
    assert bench[2].snapshot()["my_aru"] == 1
    assert not deliveries(bench.receive(2, bench.message(1), src=1))


def test_r22_a_number_received_is_not_requested_any_more(bench: Bench) -> None:
    """F4.2: it leaves my pending requests; the next token carries none for it."""
    bench.receive(2, bench.token(2, seq=2), src=1)
    bench.receive(2, bench.message(2), src=3)
    (token,) = sent(bench.receive(2, bench.token(2, seq=2, aru=0, aru_id=2), src=1), Token)
    assert token.rtr == (1,)


def test_r22_what_a_ring_keeps_is_bounded_in_bytes(bench: Bench) -> None:
    """R22: a member that numbers messages without the token fills the window, and no more."""
    body = bytes(60_000)
    for seq in range(2, 3000):
        bench.receive(2, bench.message(seq, body=body), src=3)
    assert 2048 <= len(bench[2].old.store) <= MAX_BYTES // len(body)
    bench.receive(2, bench.message(1, body=body), src=3)
    assert bench[2].snapshot()["my_aru"] == 0  # the room is taken; it will be asked for


def test_r23_a_message_of_my_ring_resets_token_loss(bench: Bench) -> None:
    """§4.1: the ring lives."""
    effects = bench.receive(2, bench.message(1), src=3)
    assert set_timers(effects) == {"token_loss": bench.config.token_loss_us}


def test_r23_only_proof_that_the_token_moved_on_cancels_the_resend(bench: Bench) -> None:
    """§4.1, G6 (S10): a number above the token I sent, not any message that arrives late."""
    bench.receive(2, bench.token(2, seq=4), src=1)
    assert "token_retransmit" not in cancelled(bench.receive(2, bench.message(4), src=3))
    assert Timer.TOKEN_RETRANSMIT in bench.timers[2]
    assert "token_retransmit" in cancelled(bench.receive(2, bench.message(5), src=3))


def test_r24_delivery_is_ascending_and_without_gap(bench: Bench) -> None:
    """§4.1: a hole holds back what comes after it."""
    assert not deliveries(bench.receive(2, bench.message(2), src=3))
    assert not deliveries(bench.receive(2, bench.message(3), src=1))
    assert deliveries(bench.receive(2, bench.message(1), src=3)) == [
        (RING, 1),
        (RING, 2),
        (RING, 3),
    ]


def test_r24_an_undelivered_safe_message_blocks_what_follows(bench: Bench) -> None:
    """§4.1 (S6): agreed messages wait behind a safe one that is not known to be everywhere."""
    bench.receive(2, bench.message(1, level=Level.SAFE), src=3)
    assert not deliveries(bench.receive(2, bench.message(2), src=3))
    bench.receive(2, bench.token(2, seq=2, aru=2), src=1)
    effects = bench.receive(2, bench.token(2, seq=2, aru=2), src=1)
    assert deliveries(effects) == [(RING, 1), (RING, 2)]


def test_r24_numbers_of_encapsulated_messages_are_passed_over(bench: Bench) -> None:
    """§4.1: they belong to the recovery that formed the ring and are no message of it."""
    bench.lose()
    bench.to_gather()
    bench.receive(1, bench.message(1, sender=1, ring=RING), src=3)
    bench.run(until=lambda: bench.phases() == [Phase.OPERATIONAL] * 3)
    assert bench[2].snapshot()["my_high_delivered"] == 1  # the encapsulated one, silently
    bench.submit(1, b"a")
    bench.visit(1)
    bench.quiet()
    assert deliveries(bench.log[2])[-1] == (ViewId(12, 1), 2)


def test_r24_an_encapsulated_frame_in_operational_is_only_kept(bench: Bench) -> None:
    """R22, R24: a late recovery frame of my own ring goes nowhere near the application."""
    inner = bench.message(1, ring=ViewId(4, 3))
    effects = bench.receive(2, Encapsulated(RING, 1, inner, 2), src=3)
    assert not deliveries(effects) and not drops(effects)
    effects = bench.receive(2, bench.message(2), src=3)
    assert deliveries(effects) == [(RING, 2)]


def test_r25_the_identical_token_is_sent_again(bench: Bench) -> None:
    """§4.1, F4.9 (S8): same token_seq, so that a copy too many is recognised."""
    (token,) = sent(bench.receive(2, bench.token(2), src=1), Token)
    effects = bench.fire(2, Timer.TOKEN_RETRANSMIT)
    again = SetTimer(Timer.TOKEN_RETRANSMIT, bench.config.token_retransmit_us)
    assert effects == [Send(3, token), again]


def test_r25_commit_tokens_are_sent_again_too() -> None:
    """F4.9: the same timer, in Commit and in Recover."""
    bench = Bench().to_ring().to_gather()
    bench.to_phase(2, Phase.COMMIT)
    (first,) = [m for m in sent(bench.log[2], CommitToken) if m.ring_id.seq == 12]
    assert sent(bench.fire(2, Timer.TOKEN_RETRANSMIT), CommitToken) == [first]
    bench.to_phase(2, Phase.RECOVER)
    (second,) = sent(bench.fire(2, Timer.TOKEN_RETRANSMIT), CommitToken)
    assert second.token_seq > first.token_seq


def test_r26_token_loss_leads_to_gather(bench: Bench) -> None:
    """F4.4: crash, partition and loss of every copy look the same."""
    bench.fire(2, Timer.TOKEN_LOSS)
    assert bench[2].phase is Phase.GATHER
    assert bench[2].snapshot()["proc_set"] == (1, 2, 3)
    assert bench[2].snapshot()["fail_set"] == ()


@pytest.mark.parametrize("timer", [Timer.JOIN, Timer.CONSENSUS])
def test_r27_membership_timers_cannot_fire_in_operational(bench: Bench, timer: Timer) -> None:
    """§4.2, F4.4: neither is set; firing one would be a defect of ours, and says so."""
    assert timer not in bench.timers[2]
    (reason,) = stops(bench.handle(2, TimerFired(timer)))
    assert reason.startswith("impossible input")


def test_r27_a_commit_token_in_operational_is_discarded(bench: Bench) -> None:
    """§4.2: also a copy of the one that formed this very ring."""
    token = CommitToken(ViewId(12, 1), 0, (1, 2, 3), (entry(),))
    for stray in (token, replace(token, ring_id=RING, token_seq=10**6)):
        effects = bench.receive(2, stray, src=1)
        assert drops(effects) and not only(effects, Send)
    assert bench[2].phase is Phase.OPERATIONAL
