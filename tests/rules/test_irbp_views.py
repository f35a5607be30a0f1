"""iRBP: what a change proposes, who watches whom, and settings that contradict each other."""

from __future__ import annotations

from random import Random

import pytest
from driver import drops, sent, stops
from irbp import Sites
from msgspec.structs import replace

from ringcast.blocks import detector
from ringcast.blocks.packing import Contents
from ringcast.checks.suite import Suite
from ringcast.core.env import Env
from ringcast.core.ids import Level, ViewId
from ringcast.core.inputs import Received, Started
from ringcast.core.trace import Installed, Noted, Restarted
from ringcast.protocols.irbp import Config, Irbp
from ringcast.protocols.irbp.membership import HIGHEST
from ringcast.protocols.irbp.messages import (
    Catch,
    Contribution,
    Join,
    Kind,
    Stranger,
    Successor,
    ViewTimer,
    bad_successor,
)
from ringcast.protocols.irbp.one_ring import OneRing
from ringcast.protocols.irbp.proposals import best, next_iview, next_view
from ringcast.protocols.rbp.epochs import NEVER, Data, Entry, Epoch, EpochConfig, Extent, Ids, Seat
from ringcast.protocols.rbp.messages import Fetch, News, Past
from ringcast.protocols.rbp.reach import LAST_STEP, LAST_VIEW, REACH
from ringcast.protocols.rbp.state import Phase

VIEW = ViewId(3, 1)
IDS = (1, 2, 3, 4, 5)
NOW = EpochConfig(Epoch(VIEW, 1), tuple(Seat(n, 0) for n in IDS), IDS, 0, NEVER, 0, None)
SETTINGS = Config(members=IDS)


def given(**tails: tuple[int, int]) -> dict[int, Contribution]:
    """Contributions by node, each with the step of its last entry and the number of that."""
    found = {}
    for name, (step, number) in tails.items():
        extent = Extent(Epoch(VIEW, step), number, 0, 0)
        found[int(name[1:])] = Contribution(0, NOW.epoch, Kind.REGULAR, extent, (), ())
    return found


def test_i8_the_best_log_has_the_latest_tag_and_then_the_highest_number() -> None:
    """G36: a longer log with an older tag may be void."""
    assert best(NOW, given(p1=(0, 90), p2=(1, 40), p3=(1, 41))) == 3
    assert best(NOW, given(p3=(1, 40), p2=(1, 40))) == 2, "of equal ones the first in M"


def test_i8_an_iview_keeps_the_members_and_begins_with_the_best_log() -> None:
    value = next_iview(NOW, given(p1=(1, 40), p3=(1, 41), p5=(1, 39)), SETTINGS)
    config = value.config
    assert config.epoch == Epoch(VIEW, 2) and config.seats == NOW.seats
    assert (config.core, config.external) == ((3, 5, 1), (2, 4))
    assert (config.start, config.base, config.decided) == (41, Epoch(VIEW, 1), 0)


def test_i8_whoever_is_far_behind_is_left_out_unless_a_majority_needs_it() -> None:
    """G40: W_catch is twice the number of members."""
    far = given(p1=(1, 100), p2=(1, 100), p3=(1, 95), p4=(1, 50), p5=(1, 40))
    assert next_iview(NOW, far, SETTINGS).config.core == (1, 2, 3)
    few = given(p1=(1, 100), p4=(1, 50), p5=(1, 40))
    assert next_iview(NOW, few, SETTINGS).config.core == (1, 4, 5)


def test_i3_a_member_where_the_ring_stood_still_twice_is_left_out() -> None:
    all_ = given(**{f"p{n}": (1, 10) for n in IDS})
    assert next_iview(NOW, all_, SETTINGS, avoid=2).config.core == (1, 3, 4, 5)
    few = given(p1=(1, 10), p2=(1, 10), p3=(1, 10))
    assert set(next_iview(NOW, few, SETTINGS, avoid=2).config.core) == {1, 2, 3}, "I9: a majority"


def test_i8_i14_a_view_has_contributors_without_leavers_and_joiners_last() -> None:
    entries = (Entry(11, Epoch(VIEW, 1), ()),)
    some = given(p1=(1, 10), p2=(1, 11), p3=(1, 10))
    some[2] = replace(some[2], entries=entries)
    value = next_view(NOW, some, frozenset({3}), {4: 77})
    assert value is not None
    config = value.config
    assert config.epoch == Epoch(ViewId(4, 1))
    assert config.seats == (Seat(1, 0), Seat(2, 0), Seat(4, 77)), "4 is back as somebody new"
    assert (config.core[0], config.start, config.decided, config.parent) == (1, 11, 11, VIEW)
    assert value.entries == entries, "G33: what the best log has, with bodies"
    assert next_view(NOW, given(p1=(1, 10)), frozenset({1}), {}) is None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"suspect_us": 50_000}, "three times beat_us"),
        ({"exclude_us": 900_000}, "ten times suspect_us"),
        ({"suspect_max_us": 20_000_000}, "within suspect_us and exclude_max_us"),
    ],
)
def test_d6_limits_that_contradict_each_other_are_refused(
    settings: dict[str, int], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        Config(**settings)  # type: ignore[arg-type]


def member(me: int = 2, **stable: int) -> tuple[Irbp, Env]:
    machine, env = Irbp(me, SETTINGS), Env(me, Random(0))
    machine.handle(env, Started(7, stable))
    return machine, env


def test_i1_the_ring_neighbours_are_watched_by_the_aggressive_limit() -> None:
    machine, _ = member(1)
    assert machine.chooser.neighbours == {5, 2}


def test_i5_a_change_freezes_for_good_and_i6_tells_how_far_the_log_reaches() -> None:
    machine, env = member(1)
    machine.chooser.start_change(env, Kind.IVIEW, "a test")
    assert machine.phase is Phase.FROZEN
    assert machine.chooser.given[1].extent == machine.extent()
    machine.chooser.detector.machine.suspected.clear()
    machine.chooser.suspicions(env)
    assert machine.phase is Phase.FROZEN, "a revoked suspicion cancels nothing"


def test_i17_one_that_took_part_before_asks_to_be_a_member() -> None:
    """A3: as somebody new; it is in no view until it is taken in."""
    first, _ = member()
    assert first.phase is Phase.MEMBER and first.life == 0
    again, env = member(**{HIGHEST: 4})
    assert again.phase is Phase.OUT and again.life > 0
    env.take()
    again.chooser.membership.on_join_timer(env, None)  # type: ignore[arg-type]
    assert Join(again.group, again.life, 4) in [getattr(e, "message", None) for e in env.take()]


def test_i17_a_joiner_begins_where_its_view_began_and_not_with_a_later_ring() -> None:
    """What was ordered in the view before that ring is for the joiner, too."""
    joiner, env = member(**{HIGHEST: 4})
    seats = tuple(Seat(n, joiner.life if n == 2 else 0) for n in IDS)
    view = ViewId(5, 1)
    opening = EpochConfig(Epoch(view), seats, IDS, 34, Epoch(VIEW), 34, VIEW)
    ring = replace(opening, epoch=Epoch(view, 1), core=(1, 3, 4), start=36, decided=0)
    joiner.handle(env, Received(1, 7, News(joiner.group, ring)))
    assert joiner.current is None
    joiner.handle(env, Received(1, 7, News(joiner.group, opening)))
    assert joiner.current == opening and joiner.delivered == 34


def test_i17_a_member_that_does_not_know_it_yet_is_told_of_the_beginning_of_its_view() -> None:
    group = Sites()
    group.change(1, Kind.IVIEW)
    group.settle()
    current = group[1].current
    assert current is not None and current.epoch.step == 1
    (news,) = sent(group.receive(1, Join(group[1].group, 0, 1), 2), News)
    assert news.config.epoch == Epoch(current.epoch.view)


def test_v1_one_frame_does_not_use_the_numbers_up() -> None:
    """V1: a joiner that says to know of a view far ahead is not heard."""
    machine, env = member(1)
    for highest, heard in ((REACH + 2, False), (2**63 - 1, False), (REACH + 1, True)):
        env.take()
        machine.handle(env, Received(2, 7, Join(machine.group, 7, highest)))
        assert ("a view far ahead" not in drops(env.take())) is heard


@pytest.mark.parametrize(
    ("epoch", "why"),
    [
        (Epoch(ViewId(LAST_VIEW, 1)), None),
        (Epoch(ViewId(LAST_VIEW + 1, 1)), "a view far ahead"),
        (Epoch(VIEW, LAST_STEP + 1), "a view far ahead"),
    ],
)
def test_i9_no_decision_is_beyond_the_last_number(epoch: Epoch, why: str | None) -> None:
    """I9, V1: the number after it could not be sent."""
    assert bad_successor(Successor(replace(NOW, epoch=epoch), (), ()), IDS) == why


# --- one-ring -----------------------------------------------------------------------------------


def told(*notes: tuple[int, int, tuple[int, ...], int]) -> str:
    """The verdict on members that begin epochs of one view: node, step, ring and start."""
    suite = Suite((OneRing,))
    count = dict.fromkeys(IDS, 2)
    for node in IDS:
        suite.feed(Restarted(node, 1, 0, 1))
        suite.feed(Installed(node, 2, 0, VIEW, IDS, False, VIEW, 0, None, None))
    for node, step, ring, start in notes:
        count[node] += 1
        note = Noted(node, count[node], 9, "rbp F11", "epoch", "", VIEW, ring, (step, start, 0))
        suite.feed(note)
    found = [v.explanation for v in suite.violations if v.property == "one-ring"]
    return found[0] if found else ""


def test_v1_one_ring_for_all_and_v8_rising_and_v10_of_the_views_members() -> None:
    assert not told((1, 0, IDS, 0), (2, 0, IDS, 0), (1, 1, (2, 3, 4), 7), (2, 1, (2, 3, 4), 7))
    assert "that of 1" in told((1, 1, (1, 2, 3), 7), (2, 1, (1, 2, 4), 7))
    assert "that of 1" in told((1, 1, (1, 2, 3), 7), (2, 1, (1, 2, 3), 8))
    assert "before" in told((1, 2, (1, 2, 3), 7), (1, 1, (1, 2, 3), 7))
    assert "not members" in told((1, 1, (1, 2, 9), 7))


def test_i17_whoever_is_left_of_a_view_that_the_others_forgot_stops() -> None:
    """Of five, three came back as somebody new: no change can ever be agreed on. If all others are
    in no view, the two that are left stop, so that all can begin anew."""
    group = Sites(5)
    site, settings = group[4], group.config

    def ask(*nodes: int) -> list[str]:
        return [
            reason
            for node in nodes
            for reason in stops(group.receive(4, Join(site.group, 9 + node, 1), node))
        ]

    group.now_us += settings.join_us
    assert not ask(1, 2), "three of five remember"
    assert site.chooser.membership.stranded_us is None
    group.now_us += settings.join_us
    assert not ask(3, 1, 2)
    began_us = group.now_us
    assert site.chooser.membership.stranded_us == began_us
    while group.now_us < began_us + settings.exclude_us - settings.join_us:
        group.now_us += settings.join_us
        assert not ask(1, 2, 3), "one that knows of a later view has the time to say so"
    group.now_us += 2 * settings.join_us
    assert ask(1)[0].startswith("gap: too few")


def test_i17_nobody_stops_while_a_site_may_be_in_a_later_view() -> None:
    group = Sites(5)
    site, settings = group[4], group.config
    assert site.chooser.decided is not None
    site.chooser.decided = replace(site.chooser.decided, seats=tuple(Seat(n, 0) for n in (1, 2, 4)))
    for _ in range(3 * settings.exclude_us // settings.join_us):
        group.now_us += settings.join_us
        for node in (1, 2, 3):
            assert not stops(group.receive(4, Join(site.group, 9 + node, 1), node))
    assert site.chooser.membership.stranded_us is None, "5 is silent"


def test_a3_a_life_that_is_over_is_not_taken_in() -> None:
    """Its Join may come late: whoever believed it would exclude the life that is a member now."""
    group = Sites()
    site, settings = group[1], group.config
    join = Join(site.group, 69, 1)
    assert drops(group.receive(1, join, 2)) == ["a member that lives asks, in a life that is over"]
    assert not site.chooser.membership.reborn
    group.now_us += 2 * settings.beat_us
    group.receive(1, join, 2)
    assert site.chooser.membership.reborn == {2}, "the one that was a member is silent"


def test_a3_a_member_whose_storage_is_lost_is_told_to_start_again() -> None:
    """And none that has delivered anything, whatever somebody says."""
    group = Sites()
    site = group[2]
    word = Stranger(site.group, site.boot)
    site.delivered = 1
    assert not stops(group.receive(2, word, 1))
    site.delivered = 0
    assert not stops(group.receive(2, replace(word, boot=site.boot + 1), 1))
    assert stops(group.receive(2, word, 1))[0].startswith("gap: this member took part before")


def without_the_third(heard: bool) -> Sites:
    """Two of three, in the second view; the third is gone, and its storage is lost."""
    group = Sites()
    if heard:
        group.fire(3, detector.Timer.BEAT)
        group.settle()
    group.crash(3)
    group.stable[3].clear()
    group.blame(3, 1, 2, for_long=True)
    group.settle()
    assert group[1].current is not None and group[1].current.epoch.view.seq == 2
    return group


def test_a3_a_founder_that_forgot_is_told_though_it_is_a_member_no_longer() -> None:
    """It would deliver the first view once more."""
    group = without_the_third(heard=True)
    group.start(3)
    site = group[3]
    assert site.current is not None
    epoch = site.current.epoch
    for message in (Catch(site.group, epoch, 0), Fetch(site.group, epoch.view, 0)):
        assert sent(group.receive(1, message, 3), Stranger) == [Stranger(site.group, site.boot)]
    group.fire(3, detector.Timer.BEAT)
    group.settle()
    assert stops(group.log[3])[0].startswith("gap: this member took part before")
    group.crash(3)
    group.start(3)
    assert group[3].life and group[3].current is None, "another one, which asks to be a member"


def test_a3_one_that_delivered_what_it_numbered_itself_believes_all_of_the_later_ring() -> None:
    """It is refused for ever otherwise; and no one word stops it."""
    group = without_the_third(heard=True)
    group.start(3)
    site = group[3]
    site.delivered = 1
    group.fire(3, detector.Timer.BEAT)
    group.settle()
    word = Stranger(site.group, site.boot)
    assert site.chooser.following.newest is not None
    assert not stops(group.log[3] + group.receive(3, word, 1))
    assert not stops(group.fire(3, ViewTimer.CATCH)), "2 has said nothing"
    group.settle()
    assert stops(group.fire(3, ViewTimer.CATCH))[0].startswith("gap: what this member missed")


def test_a3_a_founder_that_starts_late_delivers_the_first_view() -> None:
    """Nobody has heard another incarnation of it."""
    group = without_the_third(heard=False)
    group.start(3)
    site = group[3]
    group.fire(3, detector.Timer.BEAT)
    group.run(lambda: site.current is None)
    assert not stops(group.log[3]) and site.life
    assert site.phase is Phase.OUT


def test_a3_a_founder_that_is_told_of_its_own_bodies_has_lost_its_storage() -> None:
    """Even if whoever tells it has never heard it."""
    group = without_the_third(heard=False)
    group.start(3)
    site = group[3]
    assert site.current is not None and group[1].current is not None
    view, later = site.current.epoch.view, group[1].current
    group.receive(3, News(site.group, later), 1)
    others = Past(site.group, view, 0, (Entry(1, Epoch(view), (Ids(2, 1, 1),)),), None)
    assert not stops(group.receive(3, others, 1))
    own = Past(site.group, view, 1, (Entry(2, Epoch(view), (Ids(3, 1, 1),)),), None)
    assert stops(group.receive(3, own, 1))[0].startswith("gap: this member took part before")


def test_a3_a_founder_that_delivered_more_than_the_others_ever_will_has_lost_its_storage() -> None:
    """It took answers to its first life for its own; the next ring of the view begins before."""
    group = Sites()
    site = group[3]
    assert site.current is not None
    site.delivered = 1
    ring = replace(site.current, epoch=Epoch(site.current.epoch.view, 1))
    effects = group.receive(3, News(site.group, ring), 1)
    assert stops(effects)[0].startswith("gap: this member took part before")


def test_i10_an_i_view_that_was_not_begun_is_jumped_over() -> None:
    """The decision of the next view tells what it ordered, which nobody else here holds: to begin
    it first would void that."""
    group = Sites()
    site = group[3]
    now = site.current
    assert now is not None
    view, env = now.epoch.view, group.envs[3]
    ring = Epoch(view, 1)
    iview = replace(now, epoch=ring, start=2, base=now.epoch, decided=0)
    seats = tuple(seat for seat in now.seats if seat.node != 2)
    following = EpochConfig(Epoch(ViewId(view.seq + 1, 1)), seats, (1, 3), 3, ring, 3, view)
    tags = (now.epoch, now.epoch, ring)
    entries = tuple(Entry(n, tag, (Ids(2, n, n),)) for n, tag in enumerate(tags, start=1))
    bodies = tuple(
        Data(site.group, view, 2, n, Level.AGREED, Contents(n, (b"x",))) for n in (1, 2, 3)
    )
    site.chooser.following.adopt(env, iview)
    assert site.current == now, "its log does not reach so far"
    site.chooser.following.decided(env, Successor(following, entries, bodies))
    assert site.current == following and site.delivered == 3


def test_i24_whoever_knows_what_followed_its_view_goes_there_first() -> None:
    """Each i-view of the later view made it begin again, so it never had all it asked for."""
    group = without_the_third(heard=False)
    group.start(3)
    site = group[3]
    following = site.chooser.following
    assert site.current is not None and group[1].current is not None
    view, later = site.current.epoch.view, group[1].current
    later = replace(later, start=2, base=Epoch(view), decided=2)
    group.receive(3, News(site.group, later), 1)
    entries = tuple(Entry(number, Epoch(view), (Ids(2, number, number),)) for number in (1, 2))
    group.receive(3, Past(site.group, view, 0, entries, later), 1)
    assert following.pending == [later] and following.newest is None
    group.receive(3, News(site.group, replace(later, epoch=Epoch(later.epoch.view, 1))), 2)
    assert following.pending == [later] and following.newest is None
    assert site.log.entry(2) is not None, "what it filed stays, and its body may come"


def test_i17_a_site_that_is_in_no_view_says_for_whom_it_waits() -> None:
    sites = Sites(3)
    assert sites[1].blocked == ""
    alone = Irbp(2, sites.config)
    assert alone.blocked == (
        "in no view: it begins when a view takes us in, or all of 1, 2, 3 are here"
    )


def test_i7_a_member_that_cannot_go_on_names_who_is_missing() -> None:
    """G46: two of three are silent."""
    sites = Sites(3)
    for node in (2, 3):
        sites[1].chooser.detector.machine.suspected.add(node)
    assert sites[1].blocked == "", "the ring moves still"
    sites[1].phase = Phase.FROZEN
    assert sites[1].blocked == "too few members are here to go on without 2, 3 (irbp I7)"
