"""Safe delivery by acknowledgements of the multiple-ring layer itself (dossier 4.7)."""

from __future__ import annotations

import pytest
from multi_driver import Core, chain, member, ring

from ringcast.core.ids import Level
from ringcast.protocols.totem_multi import receipts
from ringcast.protocols.totem_multi.messages import Bound, Change, Data, Forwarded, Key, Rank
from ringcast.protocols.totem_multi.receipts import Acknowledged, Survey
from ringcast.protocols.totem_multi.state import Streamed
from ringcast.protocols.totem_single.messages import RingId

SAFE = Level.SAFE
ALL = {"A": (2, 101), "B": (3, 201, 102), "C": (4, 202)}


def waiting(core: Core | None = None) -> Core:
    """A safe A18 is lowest everywhere, and nobody has said anything of it."""
    core = core or chain()
    core.message("A18", level=SAFE)
    core.bound("B", 20)
    core.bound("C", 20)
    return core


def test_a1_what_is_stored_is_acknowledged_and_a_copy_is_not() -> None:
    core = waiting()
    core.message("A18", level=SAFE)
    assert core.acked == [Key(18, ring("A"))]


def test_a4_a_safe_message_waits_for_the_word_of_every_member() -> None:
    """S-4, S-26, MR-17, MR-23, A2, A3: of every ring of the topology, and of a gateway at one of
    its interfaces (A3 ext)."""
    core = waiting()
    for pid, name in ((2, "A"), (101, "A"), (102, "B"), (4, "C"), (3, "B")):
        assert core.delivered == []
        core.ack(pid, name, "A18")
    assert core.delivered == ["A18"]
    assert core.order.acknowledged.said((18, ring("A")), 2, (ring("A"),)) is None, "it is over"


def acknowledged_but(core: Core, *silent: int) -> None:
    for name, pids in ALL.items():
        for pid in pids:
            if pid not in silent:
                core.ack(pid, name, "A18")


def test_a3_a_word_in_a_stream_that_does_not_follow_the_ring_is_ignored() -> None:
    """Scenario (5) of 4.7, G-30: pid 4 left C; what it says elsewhere is not said by a member."""
    core = waiting()
    acknowledged_but(core, 4)
    core.ack(4, "A", "A18")
    assert core.delivered == []


def test_a3_ext_what_a_gateway_has_it_has_at_all_its_interfaces() -> None:
    """102 says so on B; 202 on C is the same processor, and its ring may go on to one of which
    nobody here has heard: then its word there is put aside (seed 3001058)."""
    core = waiting()
    acknowledged_but(core, 102, 202)
    assert core.delivered == []
    core.ack(202, "C2", "A18")
    assert core.delivered == [], "nobody knows that C went on to C2"
    core.ack(102, "B", "A18")
    assert core.delivered == ["A18"]


def test_a3_ext_a_word_that_comes_after_the_delivery_is_not_kept() -> None:
    core = waiting()
    acknowledged_but(core, 202)
    assert core.delivered == ["A18"]
    core.ack(202, "C", "A18")
    assert not core.order.acknowledged._said


def put_aside(said: Streamed) -> Core:
    """Nobody of C has spoken of A18. Gateway 101 has C since 25, which is ahead of us."""
    core = waiting()
    acknowledged_but(core, 4, 102, 202)
    core.change("Bt", "B", 20, 3, 201, 102)
    core.change("B2", "Bt", 25, 3, 201, 102)
    core.accept(said)
    assert core.order.unplaced == [(1, said)] and ("forward", said) in core.said
    assert core.order.entries[ring("C")].last.timestamp == 20, "its place waits"
    return core


SINCE = (25, ring("B2"))
ON_C = tuple((pid, ((18, ring("A")),), ()) for pid in (4, 202))


@pytest.mark.parametrize(
    "said",
    [
        Forwarded(34, ring("C"), None, Bound(ring("C"), ON_C), SINCE),
        Change(34, ring("Ct"), ring("C"), (member(4),), True, ON_C, SINCE),
    ],
)
def test_a3_ext_words_count_though_what_tells_them_is_put_aside(said: Streamed) -> None:
    """A7, G-14: what it waits for lies behind the message, which waits for the words."""
    core = put_aside(said)
    assert core.delivered[0] == "A18"
    assert not core.order.acknowledged._aside, "it is over"


def test_a3_ext_what_is_put_aside_and_waits_itself_is_not_acknowledged() -> None:
    """Its place may never come: A1 is for what is stored."""
    core = put_aside(Forwarded(34, ring("C"), None, Data(4, SAFE, 1, (b"",)), SINCE))
    assert core.delivered == [] and core.acked == [Key(18, ring("A"))]


def test_a3_ext_words_of_a_bound_that_is_put_aside_are_still_news() -> None:
    """It may be a copy to those beyond, to whom it was passed on. One that comes late tells them
    (MR-12 ext)."""
    words = ((4, (), ((18, ring("A")),)),)
    core = put_aside(Forwarded(34, ring("C"), None, Bound(ring("C"), words), SINCE))
    late = Forwarded(19, ring("C"), None, Bound(ring("C"), words), late=True)
    for _ in range(2):
        core.accept(late)
        assert core.said.count(("forward", late)) == 1


def test_a3_ext_of_a_bound_for_another_ring_nothing_counts_when_it_is_put_aside() -> None:
    """MR-15: nor would it later."""
    core = put_aside(Forwarded(34, ring("C"), None, Bound(ring("A3"), ON_C), SINCE))
    assert core.delivered == [] and not core.order.acknowledged._aside


def test_a3_ext_what_was_said_at_both_places_counts_once() -> None:
    """Having it outweighs a refusal, also if that is put aside or what tells it is."""
    key, c = (18, ring("A")), (ring("C"),)
    for first in (True, False):
        words = Acknowledged()
        words.heard(4, ring("C"), (key,) * first, (key,) * (not first))
        words.hear_aside(ring("C"), ((4, (key,) * (not first), (key,) * first),))
        assert words.said(key, 4, c)
        words.forget(Key(18, ring("A")), ())
        assert words.said(key, 4, c) is None


def test_a3_ext_a_refusal_at_one_interface_is_none_at_another() -> None:
    """What did not come on one ring may have come on another one."""
    core = waiting()
    acknowledged_but(core, 102, 202)
    core.ack(102, "B", "A18", refused=True)
    assert core.delivered == [], "202 has not spoken"
    core.ack(202, "C", "A18")
    assert core.delivered == ["{A B C}", "A18"]


def test_a3_ext_a_word_on_a_ring_that_is_not_in_the_topology_does_not_count() -> None:
    core = waiting()
    acknowledged_but(core, 102, 202)
    core.ack(302, "D", "A18")
    assert core.delivered == []


def test_a3_members_that_stay_together_may_speak_on_the_ring_they_went_on_to() -> None:
    """S-27, G-29: a processor joins C; nobody is lost, so nothing shrinks."""
    core = waiting()
    acknowledged_but(core, 4)
    core.change("Ct", "C", 20, 4, 202)
    core.change("C2", "Ct", 25, 4, 5, 202)
    assert core.delivered == []
    core.ack(4, "C2", "A18")
    assert core.delivered[0] == "A18"


def test_a4_members_that_are_lost_shrink_the_topology_first() -> None:
    """S-28, MR-35, MR-36, A5, A6: 4 is lost from C; then the message is safe among the rest."""
    core = waiting()
    acknowledged_but(core, 4)
    core.change("Ct", "C", 20, 202)
    assert core.delivered == [], "scenario (7): its regular change is not known yet"
    core.change("C2", "Ct", 25, 202)
    assert core.delivered[:2] == ["{A B C}", "A18"]
    key = core.keys[0]
    assert key[:4] == (18, ring("A"), Rank.SHRINK, key.conf) and key < core.keys[1]
    assert core.order.shrunk == {ring("C"): frozenset((202,))}
    assert core.narrowed[0], "members only went"


def test_a5_a_ring_without_survivors_is_hidden_and_deleted_later() -> None:
    """S-29, MR-37: B changes without the gateway to C; C's members never said they had it."""
    core = waiting()
    acknowledged_but(core, 4, 202, 102)
    core.change("Bt", "B", 20, 3, 201)
    core.change("B2", "Bt", 25, 3, 201)
    assert core.delivered[:2] == ["{A B}", "A18"]
    assert core.topology != "A B2" and ring("C") not in core.order.live()[0]
    core.bound("A", 30)
    assert core.topology == "A B2"
    assert ring("C") not in core.order.shrunk, "A5: dropped with the ring"


def test_a4_a_refusal_is_a_word_too() -> None:
    """A4 ext: 4 has not joined the rings beyond; waiting for it would be for ever."""
    core = waiting()
    acknowledged_but(core, 4)
    core.ack(4, "C", "A18", refused=True)
    assert core.delivered == ["{A B C}", "A18"]
    assert core.order.shrunk == {ring("C"): frozenset((202,))}


def test_a4_a_live_ring_is_waited_for() -> None:
    core = waiting()
    acknowledged_but(core, 3)
    core.change("Ct", "C", 20, 4, 202)
    core.change("C2", "Ct", 25, 4, 202)
    assert core.delivered == []


def test_a4_one_waits_for_the_word_of_members_on_ones_own_ring() -> None:
    core = waiting()
    acknowledged_but(core, 2)
    core.change("At", "A", 18, 1, 2, 101, mine=True)
    core.change("A2", "At", 25, 1, 2, 101, mine=True)
    assert core.delivered == []
    core.ack(2, "A2", "A18")
    assert core.delivered[0] == "A18"


def test_a10_a_gateway_that_comes_back_another_way_is_not_live() -> None:
    """Its path of rings is another one than that of those who stayed."""
    core = Core(1, {1: "A"}, {"A": (1, 101), "B": (3, 201)})
    core.change("At", "A", 5, 1, mine=True)
    core.change("A2", "At", 9, 1, 101, mine=True)
    assert 101 not in core.order.live()[1]


def test_a5_a_shrinking_lasts_until_the_next_change() -> None:
    """A5 ext: whoever refused one message may have joined with that change."""
    core = waiting()
    acknowledged_but(core, 4)
    core.ack(4, "C", "A18", refused=True)
    assert core.order.shrunk
    core.change("Bt", "B", 20, 3, 201, 102)
    core.change("B2", "Bt", 25, 3, 201, 102)
    core.bound("A", 30)
    core.bound("C", 30)
    assert core.order.last.timestamp >= 20
    assert not core.order.shrunk
    assert core.order.reported[0] == (ring("A"), (1, 2, 101))
    assert core.narrowed[:2] == [True, False], "with Bt others are back"


def test_a11_what_a_gateway_tells_has_late_changes() -> None:
    core = waiting()
    core.order.late[ring("Ct"), ring("C")] = late = Change(
        20, ring("Ct"), ring("C"), (member(202),), True
    )
    assert core.order._graph().late == (late,)


def test_a12_a_change_that_comes_too_late_takes_its_gateways_along() -> None:
    core = chain()
    for name in "ABC":
        core.bound(name, 40)
    core.message("A41")
    core.bound("B", 50)
    core.bound("C", 50)
    assert core.delivered == ["A41"]
    core.change("C2", "C", 30, 4, 202)
    assert core.order.network.gateways[102] == {102: ring("B")}


def test_mr_16_what_a_stream_carried_is_told_once() -> None:
    """MR-11, MR-18, MR-19: a Bound has what was said since the last one, the change the rest."""
    words = Acknowledged()
    key, more = (5, ring("A")), (6, ring("A"))
    words.hear_own(3, ring("B"), (key,), ())
    words.hear_own(4, ring("B"), (), (more,))
    assert words.report(ring("B"), 1) == ((3, (key,), ()),)
    assert words.report(ring("B"), 9) == ((3, (key,), ()), (4, (), (more,)))
    words.hear_bound(ring("B"), ((3, (key,), ()),))
    assert words.close(ring("B")) == ((4, (), (more,)),)
    assert words.close(ring("B")) == ()


def test_receipts_are_forgotten_with_the_places_they_are_of() -> None:
    words = Acknowledged()
    for timestamp in range(10):
        words.heard(3, ring("B"), ((timestamp, ring("A")),), ())
    words.forget(Key(6, ring("B")), ())
    assert sorted(words._said) == [(7, ring("A")), (8, ring("A")), (9, ring("A"))]


@pytest.mark.parametrize("applied", [False, True])
def test_g_25_nobody_waits_for_one_that_never_came_to_tell_how_a_ring_went_on(
    applied: bool,
) -> None:
    """3 went on to a ring with gateway 201, and is lost; by its own word 201 went on alone."""
    others = Change(20, ring("Bt"), ring("B"), (member(3), member(201)), True)
    ended = Change(21, ring("B2"), ring("Bt"), (member(3), member(201)), False)
    mine = Change(20, RingId(ended.ring.seq + 2, 66), ring("B"), (member(201),), True)
    after = Change(22, RingId(ended.ring.seq + 4, 66), mine.ring, (member(201),), False)
    words, key, both = Acknowledged(), (18, ring("A")), frozenset({3, 201})
    words.heard(201, ring("B"), (key,), ())

    def survivors(at: RingId, *changes: Change) -> frozenset[int] | None:
        followed = frozenset(c.conf for c in changes if not c.transitional)
        nobody, live = frozenset[int](), frozenset({201})
        survey = Survey(key, words, nobody, changes, followed, live, {201: at}, {})
        return survey.survivors(ring("B"), others.ring if applied else ring("B"), both)

    where = others.ring if applied else ring("B")
    assert survivors(where, others, ended) is None, "201 may tell"
    if applied:
        assert survivors(mine.ring, ended, after) == frozenset()
    else:
        assert survivors(where, others, mine, ended, after) == frozenset({201})


def test_a3_words_that_somebody_makes_up_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those furthest ahead go, and true ones stay."""
    monkeypatch.setattr(receipts, "MOST_AWAITED", 8)
    words = Acknowledged()
    words.heard(3, ring("A"), ((18, ring("A")),), ())
    for far in range(1000, 1100):
        words.heard(2, ring("A"), ((far, ring("A")),), ())
    assert len(words._said) <= 8 and words.said((18, ring("A")), 3, (ring("A"),))
