"""Views that meet: who leads, and whom to keep away from (total TL-22)."""

from __future__ import annotations

from ringcast.blocks.merge_candidates import FRESH, MOST_HEARD, MergeCandidates, leads
from ringcast.blocks.view_messages import MAX_MEMBERS, RankedView
from ringcast.core.ids import ViewId


def view(*members: int, seq: int = 8) -> RankedView:
    return RankedView(ViewId(seq, members[0]), members, (1,) * len(members))


def fresh() -> MergeCandidates:
    return MergeCandidates(announce_us=100, away_us=50, away_max_us=400)


def test_the_larger_leads_and_of_equals_the_one_with_the_smaller_coordinator() -> None:
    views = [view(4, 5), view(3), view(2, 9, 8), view(1)]
    assert sorted(views, key=leads) == [view(2, 9, 8), view(4, 5), view(1), view(3)]


def test_who_leads_takes_all_it_heard_of() -> None:
    met = fresh()
    for other in (view(4), view(3), view(5, 6, seq=12)):
        met.hear(other, 0)
    assert met.candidates(view(1, 2), 10) == [view(5, 6, seq=12), view(3), view(4)]
    assert met.candidates(view(2), 10) == []  # (5,6) is larger


def test_what_was_not_heard_of_lately_is_left_alone() -> None:
    met = fresh()
    met.hear(view(4), 0)
    assert met.candidates(view(1), FRESH * 100) == [view(4)]
    assert met.candidates(view(1), FRESH * 100 + 1) == []


def test_views_that_share_members_with_mine_or_with_each_other_do_not_go_together() -> None:
    met = fresh()
    met.hear(view(3, 4), 0)
    met.hear(view(4), 0)
    met.hear(view(5, 1), 0)
    assert met.candidates(view(1, 2), 0) == [view(3, 4)]


def test_a_view_has_so_many_members_at_most() -> None:
    met = fresh()
    met.hear(view(*range(100, 199)), 0)
    met.hear(view(300), 0)
    mine = view(*range(1, MAX_MEMBERS))
    assert met.candidates(mine, 0) == [view(300)]


def test_a_leader_that_does_not_lead_is_not_waited_for() -> None:
    met = fresh()
    met.hear(view(9), 0)
    for at in range(FRESH):
        met.hear(view(1), at)
        assert met.candidates(view(2), at) == []
    met.hear(view(1), 10)
    assert met.candidates(view(2), 10) == [view(9)]
    assert met.away_us(view(1), 10) > 0


def test_another_view_of_the_same_leader_and_a_view_of_my_own_begin_the_count_anew() -> None:
    met = fresh()
    for at in range(FRESH):
        met.hear(view(1), at)
    met.hear(view(1, seq=12), 10)
    assert met.candidates(view(2), 10) == []
    for at in range(FRESH + 1):
        met.hear(view(1, seq=12), at)
    met.begin((2,))
    assert met.candidates(view(2), 10) == []


def test_the_lost_are_kept_away_longer_each_time() -> None:
    met = fresh()
    now_us = 0
    for interval_us in (50, 100, 200, 400, 400):
        met.keep_away(7, now_us)
        assert met.away_us(view(3, 7), now_us + interval_us - 1) > 0
        assert met.away_us(view(3, 7), now_us + interval_us) <= 0
        now_us += interval_us
    met.keep_away(7, now_us + 401)
    assert met.away_us(view(7), now_us + 401 + 51) <= 0


def test_the_lost_are_no_candidates() -> None:
    met = fresh()
    met.hear(view(3, 7), 0)
    met.keep_away(7, 0)
    assert met.candidates(view(1, 2), 10) == []
    assert met.wait_us(10) == 40
    met.hear(view(3, 7), 60)
    assert met.wait_us(60) == 0
    assert met.candidates(view(1, 2), 60) == [view(3, 7)]


def test_who_moved_is_forgotten_with_its_view() -> None:
    met = fresh()
    met.hear(view(3, 7), 0)
    met.forget(7)
    assert met.candidates(view(1, 2), 0) == []


def test_what_is_remembered_is_bounded() -> None:
    met = fresh()
    for node in range(2, MOST_HEARD + 50):
        met.hear(view(node), 0)
        met.keep_away(node, 0)
    assert len(met._heard) == len(met._away) == MOST_HEARD
