"""Operational, membership events: dossier section 3.4, R28-R32."""

from __future__ import annotations

import pytest
from driver import Bench, Phase, Timer, drops, only_dropped, sent

from ringcast.blocks.packing import Contents
from ringcast.core.ids import Level, ViewId
from ringcast.protocols.totem_single.messages import Announce, Encapsulated, Join, Regular


@pytest.fixture
def bench() -> Bench:
    """B3: ring (8,1) of three, idle; frames are given by hand."""
    ring = Bench().to_ring()
    ring.lose()
    return ring


def foreign(ring: ViewId, sender: int) -> Regular:
    return Regular(sender, ring, 1, Level.AGREED, Contents(1, (b"x",)))


@pytest.mark.parametrize("frame", [foreign(ViewId(4, 9), 9), Announce(ViewId(4, 9), 9)])
def test_r28_a_stranger_becomes_a_candidate(bench: Bench, frame: Regular | Announce) -> None:
    """F4.4, G33: a message or an Announce of another ring shows that there is somebody to join."""
    (join,) = sent(bench.receive(2, frame, src=9), Join)
    assert bench[2].phase is Phase.GATHER
    assert join.proc_set == (1, 2, 3, 9)


def test_r28_the_transmitter_counts_not_the_originator(bench: Bench) -> None:
    """G19: a retransmitted message may name somebody long dead."""
    bench.receive(2, foreign(ViewId(4, 9), sender=7), src=9)
    assert bench[2].snapshot()["proc_set"] == (1, 2, 3, 9)


def test_r28_another_rings_recovery_is_not_foreign(bench: Bench) -> None:
    """§4.2: an Encapsulated frame belongs to a ring that is not installed yet."""
    frame = Encapsulated(ViewId(12, 9), 1, foreign(ViewId(4, 9), 9), 0)
    assert only_dropped(bench.receive(2, frame, src=9))
    assert bench[2].phase is Phase.OPERATIONAL


def test_r29_a_members_frame_of_an_older_ring_is_stale(bench: Bench) -> None:
    """G18: one delayed packet must not tear the ring down."""
    for frame in (foreign(ViewId(4, 3), 3), Announce(ViewId(4, 3), 3)):
        assert drops(bench.receive(2, frame, src=3)) == ["a member's frame of an older ring"]
    assert bench[2].phase is Phase.OPERATIONAL


def test_r29_a_members_frame_of_a_newer_ring_means_it_moved_on(bench: Bench) -> None:
    """G18: it has left this ring, so the ring is over."""
    bench.receive(2, foreign(ViewId(12, 3), 3), src=3)
    assert bench[2].phase is Phase.GATHER
    assert bench[2].snapshot()["proc_set"] == (1, 2, 3)


def test_r30_a_join_that_excludes_me_is_ignored(bench: Bench) -> None:
    """§4.2, G39: its sender has left my ring, so token loss will follow by itself."""
    join = bench.join(3, (1, 2, 3), fail=(2,))
    assert only_dropped(bench.receive(2, join, src=3))
    assert bench[2].phase is Phase.OPERATIONAL


def test_r30_a_late_join_of_the_round_that_formed_this_ring_is_ignored(bench: Bench) -> None:
    """§4.2, G10 (S23): it carries an older ring's number."""
    assert only_dropped(bench.receive(2, bench.join(3, (1, 2, 3), ring_seq=4), src=3))
    assert bench[2].phase is Phase.OPERATIONAL


def test_r30_a_restarted_members_join_is_not_late(bench: Bench) -> None:
    """G34 (S24): it carries its stored number + 4, which no present ring is above."""
    bench.start(3)
    (join,) = sent(bench.log[3][-20:], Join)[-1:]
    assert join.ring_seq == 12
    bench.receive(2, join, src=3)
    assert bench[2].phase is Phase.GATHER


def test_r31_any_other_join_leads_to_gather_even_if_nothing_changed(bench: Bench) -> None:
    """F4.4: a member that gave this ring up ends it."""
    (join,) = sent(bench.receive(2, bench.join(3, (1, 2, 3)), src=3), Join)
    assert bench[2].phase is Phase.GATHER
    assert (join.proc_set, join.fail_set) == ((1, 2, 3), ())


def test_r31_the_sets_are_merged_first(bench: Bench) -> None:
    """F4.4, R40: the fail_set of a member is adopted, and a stranger's as far as it is its own."""
    bench.receive(2, bench.join(3, (1, 2, 3, 4), fail=(1,)), src=3)
    assert bench[2].snapshot()["proc_set"] == (1, 2, 3, 4)
    assert bench[2].snapshot()["fail_set"] == (1,)
    bench.receive(1, bench.join(9, (8, 9), fail=(8,)), src=9)
    assert bench[1].snapshot()["fail_set"] == (8,)


def test_r30_ext_a_stranger_that_gave_up_a_member_of_mine_is_ignored(bench: Bench) -> None:
    """R30 ext: it cannot agree with us now; its Join would end the ring for nothing."""
    assert only_dropped(bench.receive(1, bench.join(9, (3, 8, 9), fail=(3, 8)), src=9))
    assert bench[1].phase is Phase.OPERATIONAL


def test_r32_every_wellformed_join_raises_the_largest_known_number(bench: Bench) -> None:
    """§4.2, G9: even one that is otherwise ignored; the next ring's number is above it."""
    ignored = bench.join(9, (2, 9), fail=(2,), ring_seq=100)
    assert only_dropped(bench.receive(2, ignored, src=9))
    assert bench[2].gather.max_ring_seq == 100
    bench.receive(2, Join(9, 200, (9,), (9,), 0), src=9)  # malformed
    assert bench[2].gather.max_ring_seq == 100


def test_r32_in_commit_and_recover_too() -> None:
    """§4.2: in every state."""
    for phase, number in ((Phase.COMMIT, 100), (Phase.RECOVER, 200)):
        bench = Bench().to_ring().to_gather().to_phase(2, phase)
        assert only_dropped(bench.receive(2, bench.join(9, (9,), ring_seq=number), src=9))
        assert bench[2].gather.max_ring_seq == number
        assert bench[2].phase is phase
    assert Timer.JOIN not in bench.timers[2]
