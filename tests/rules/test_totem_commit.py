"""Forming a ring, Commit: dossier section 3.6, R47-R55."""

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
)

from ringcast.core.effects import Note, Persist, Send
from ringcast.core.ids import ViewId
from ringcast.core.inputs import TimerFired
from ringcast.protocols.totem_single.messages import (
    Announce,
    CommitToken,
    Encapsulated,
    Entry,
    Join,
)

OLD, NEW = ViewId(8, 1), ViewId(12, 1)


@pytest.fixture
def bench() -> Bench:
    """B3 re-forming as (12,1): processor 2 has signed, the Commit token is lost on its way."""
    ring = Bench().to_ring().to_gather().to_phase(2, Phase.COMMIT)
    ring.lose()
    return ring


def test_r47_the_representative_names_the_ring() -> None:
    """F4.8, §4.2, G9: the largest number in any Join, plus 4; its own entry is the first."""
    bench = Bench().to_ring()
    bench.lose()
    bench.receive(1, bench.message(1), src=3)
    bench.to_gather(1)
    bench.receive(1, bench.join(2, (1, 2, 3), ring_seq=20), src=2)
    effects = bench.receive(1, bench.join(3, (1, 2, 3), ring_seq=16), src=3)
    mine = entry(1, 1)
    assert only(effects, Send) == [Send(2, CommitToken(ViewId(24, 1), 0, (1, 2, 3), (mine,)))]
    assert bench[1].token.my_token_seq == 0


def test_r49_signing_the_commit_token() -> None:
    """F4.9, G7, G14: my entry, one hop more, and the number is stored *before* it is sent on."""
    bench = Bench().to_ring().to_gather(2)
    bench.lose()
    bench.receive(2, bench.message(1), src=3)
    first = entry()
    effects = bench.receive(2, CommitToken(NEW, 0, (1, 2, 3), (first,)), src=1)
    mine = entry(1, 1)
    send = Send(3, CommitToken(NEW, 1, (1, 2, 3), (first, mine)))
    assert only(effects, Send) == [send]
    assert effects.index(Persist("ring_seq", 12)) < effects.index(send)
    assert {"join", "consensus"} <= cancelled(effects)
    config = bench.config
    assert set_timers(effects) == {
        "token_loss": config.token_loss_us,
        "token_retransmit": config.token_retransmit_us,
    }
    machine = bench[2]
    assert (machine.token.my_token_seq, machine.token.my_rotation_count) == (1, 1)
    assert machine.my_new_memb == (1, 2, 3)
    assert machine.gather.my_last == {}
    assert machine.snapshot()["ring_id"] == "(12,1)"
    assert machine.snapshot()["old_ring_id"] == "(8,1)"


def test_r49_the_sets_signed_for_count_as_tried(bench: Bench) -> None:
    """F4.9: if this ring fails, the same membership is a repeated one (R46)."""
    assert bench[2].gather.sets in bench[2].gather.tried


def test_r49_the_trace_shows_who_forwarded_the_commit_token(bench: Bench) -> None:
    """M8: each member says to which membership it agreed."""
    (note,) = [n for n in only(bench.log[2], Note) if n.what == "commit" and n.view == NEW]
    assert note.members == (1, 2, 3)


def test_r49_a_crash_after_signing_does_not_give_the_number_back(bench: Bench) -> None:
    """G7 (S25): the restarted processor takes a number above the ring it signed."""
    bench.crash(2)
    bench.start(2)
    assert bench[2].snapshot()["ring_id"] == "(16,2)"


def test_r50_tokens_foreign_messages_and_announces_are_dropped(bench: Bench) -> None:
    """F4.10: this ring is being formed first."""
    for frame in (
        bench.token(2, ring_id=OLD, token_seq=10**6),
        bench.token(2, ring_id=NEW, token_seq=10**6),
        bench.message(1, ring=ViewId(4, 9)),
        bench.message(1, ring=NEW),
        Announce(ViewId(4, 9), 9),
        Encapsulated(NEW, 1, bench.message(1, ring=OLD), 2),
    ):
        assert only_dropped(bench.receive(2, frame, src=9)), frame
    assert bench[2].snapshot()["proc_set"] == (1, 2, 3)


def test_r51_old_ring_messages_are_kept_but_not_delivered(bench: Bench) -> None:
    """F4.10, G16: what my entry says was delivered must stay true until the ring is decided."""
    effects = bench.receive(2, bench.message(1, ring=OLD), src=3)
    assert not deliveries(effects) and not drops(effects)
    assert bench[2].snapshot()["my_aru"] == 1
    assert deliveries(bench.fire(2, Timer.TOKEN_LOSS)) == [(OLD, 1)]  # back in Gather


def test_r51_not_even_kept_once_the_exchange_is_complete() -> None:
    """G16: my_received_flg stays true over a failed pass, and with it the set."""
    bench = Bench().to_ring().to_gather()
    bench.run(until=lambda: all(bench[n].recovery.my_received_flg for n in bench.ids))
    bench.crash(3)
    bench.reform(1, 2).to_phase(2, Phase.COMMIT)
    assert bench[2].recovery.my_received_flg
    late = bench.receive(2, bench.message(1, ring=OLD), src=3)
    assert drops(late) == ["the exchanged set is fixed"]


def test_r52_a_join_with_this_rings_number_ends_the_attempt(bench: Bench) -> None:
    """F4.10, G1: a member that abandoned ring 12 sends 12, not more."""
    (join,) = sent(bench.receive(2, bench.join(3, (1, 2, 3, 9), ring_seq=12), src=3), Join)
    assert bench[2].phase is Phase.GATHER
    assert join.proc_set == (1, 2, 3, 9)


@pytest.mark.parametrize(("sender", "ring_seq"), [(3, 8), (3, 11), (9, 12), (9, 100)])
def test_r52_other_joins_are_ignored(bench: Bench, sender: int, ring_seq: int) -> None:
    """F4.10: late ones of the round that led here, and outsiders."""
    join = bench.join(sender, tuple(sorted({1, 2, 3, sender})), ring_seq=ring_seq)
    assert only_dropped(bench.receive(2, join, src=sender))
    assert bench[2].phase is Phase.COMMIT


def test_r53_no_join_is_sent_while_forming(bench: Bench) -> None:
    """G1: a Join sent here would carry this ring's number and end it everywhere."""
    for phase in (Phase.COMMIT, Phase.RECOVER):
        forming = Bench().to_ring().to_gather().to_phase(2, phase)
        assert not forming.timers[2].keys() & {Timer.JOIN, Timer.CONSENSUS}
        for timer in (Timer.JOIN, Timer.CONSENSUS):
            assert stops(forming.handle(2, TimerFired(timer)))[0].startswith("impossible input")


def test_r54_token_loss_in_commit_leads_back_to_gather(bench: Bench) -> None:
    """F4.10: with the same sets, and the number of the ring that failed."""
    (join,) = sent(bench.fire(2, Timer.TOKEN_LOSS), Join)
    assert (join.proc_set, join.fail_set, join.ring_seq) == ((1, 2, 3), (), 12)
    assert bench[2].phase is Phase.GATHER


def entries(count: int) -> tuple[Entry, ...]:
    return (entry(),) * count


def test_r55_the_second_rotation_leads_to_recover(bench: Bench) -> None:
    """F4.10, §4.2: my ring, not older than what I sent, and every member has signed."""
    bench.receive(2, CommitToken(NEW, 3, (1, 2, 3), entries(3)), src=1)
    assert bench[2].phase is Phase.RECOVER


@pytest.mark.parametrize(
    "token",
    [
        CommitToken(NEW, 0, (1, 2, 3), entries(1)),  # the first-rotation token again
        CommitToken(NEW, 3, (1, 2, 3), entries(2)),
        CommitToken(NEW, 0, (1, 2, 3), entries(3)),
        CommitToken(ViewId(16, 1), 3, (1, 2, 3), entries(3)),
        CommitToken(ViewId(8, 1), 3, (1, 2, 3), entries(3)),
    ],
    ids=["copy", "unsigned", "older", "newer ring", "older ring"],
)
def test_r55_any_other_commit_token_is_dropped(bench: Bench, token: CommitToken) -> None:
    """G2 (S22): F4.10 tests only the ring; a copy of the first rotation lacks entries."""
    assert only_dropped(bench.receive(2, token, src=1))
    assert bench[2].phase is Phase.COMMIT
