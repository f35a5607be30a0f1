"""Reformation by a majority."""

from __future__ import annotations

from typing import TypeVar

import pytest
from cb import Group, Timer, settle, tokens
from driver import drops, only, sent
from msgspec.structs import replace

from ringcast.core.effects import InstallView, Persist
from ringcast.core.ids import LIMIT
from ringcast.protocols.counter import commit, epoch, reformation
from ringcast.protocols.counter.config import Counting
from ringcast.protocols.counter.membership import LISTS
from ringcast.protocols.counter.messages import (
    LAST,
    Ackd,
    Acpt,
    Ask,
    Ballot,
    Entry,
    Held,
    Msg,
    Nack,
    Newl,
    PassingList,
    Prep,
    Prom,
    Req,
    Seat,
    Told,
)
from ringcast.protocols.counter.reach import LAST_EPOCH, REACH, REACH_HOPS
from ringcast.protocols.counter.state import LIVES, Phase

T = TypeVar("T")


def reform(group: Group, initiator: int, *gone: int) -> None:
    """``gone`` crash; the initiator notices, and a new list is decided."""
    for node in gone:
        group.crash(node)
    settle(group)
    group.fire(initiator, Timer.SILENCE)
    settle(group)
    if Timer.REFORM in group.timers[initiator]:
        group.fire(initiator, Timer.REFORM)
    settle(group)


def test_cb_37_silence_makes_a_member_ask_and_a_promise_freezes() -> None:
    """A19, CB-T28: on disk first; nothing more happens in the old epoch."""
    group = Group(5).up()
    (prep,) = sent(group.fire(3, Timer.SILENCE), Prep)
    assert (prep.ballot.epoch, prep.ballot.node) == (1, 3)
    effects = group.receive(4, prep, 3)
    kinds = [type(e).__name__ for e in effects]
    assert kinds.index("Persist") < kinds.index("Send")
    (prom,) = sent(effects, Prom)
    assert prom.token is not None and prom.committed == -1
    assert group[4].phase is Phase.FROZEN
    assert group[4].blocked == "members here: 2, majority: 3; waiting for some of 1, 2, 5"
    group.receive(4, group.token(3, 4, 1, 3), 3)
    assert group[4].held is None


def test_cb_37_the_farther_behind_the_owner_the_longer_the_patience() -> None:
    group = Group(4).up()
    group.receive(2, group.token(3, 4, 1, 3), 3)
    group.receive(3, group.token(3, 4, 1, 3), 1)
    assert group.timers[2][Timer.SILENCE] < group.timers[3][Timer.SILENCE]


@pytest.mark.parametrize(("first", "second"), [(2, 3), (3, 2)])
def test_cb_37_a_second_ballot_for_an_epoch_gets_no_promise(first: int, second: int) -> None:
    """Whoever initiated it: so an epoch has one value at most."""
    group = Group(5).up()
    preps = {node: sent(group.fire(node, Timer.SILENCE), Prep)[0] for node in (first, second)}
    assert sent(group.receive(4, preps[first], first), Prom)
    effects = group.receive(4, preps[second], second)
    assert not sent(effects, Prom)
    assert [nack.epoch for nack in sent(effects, Nack)] == [1]


@pytest.mark.parametrize("epoch", [LIMIT, LAST_EPOCH, REACH + 2])
def test_cb_37_no_frame_uses_up_the_epochs(epoch: int) -> None:
    """One Nack or Prep with the last number, and the member never again said a word that others
    take; with the very last it ended, for the number after it cannot be sent."""
    group = Group(5).up()
    for frame in (Nack(group.config.group, epoch), Prep(group.config.group, Ballot(epoch, 3))):
        assert not sent(group.receive(4, frame, 3), Prom)
    (prep,) = sent(group.fire(4, Timer.SILENCE), Prep)
    assert prep.ballot.epoch == 1
    assert sent(group.receive(2, prep, 4), Prom)


def test_cb_6_no_token_uses_up_hops_or_rotations() -> None:
    group = Group(5).up()
    group.receive(4, group.token(2, 3, 1, 2), 2)
    token = group.token(3, 4, 1, 3)
    for other in ({"hop": LAST - 1}, {"hop": 3 + REACH_HOPS}, {"t": 2**34 - 1}, {"t": 0}):
        group.receive(4, replace(token, **other), 3)
        assert group[4].held is None
    group.receive(4, token, 3)
    assert group[4].held is not None


def test_cb_38_a_majority_decides_and_a_minority_does_not() -> None:
    group = Group(5).up()
    reform(group, 2, 4, 5)
    assert [group[node].epoch for node in (1, 2, 3)] == [1, 1, 1]
    assert group[1].list.members == (1, 2, 3)
    group.crash(3)
    group.crash(2)
    settle(group)
    before = group[1].epoch
    for _ in range(4):
        for timer in (Timer.MONITOR, Timer.SILENCE, Timer.REFORM, Timer.OWNER):
            if timer in group.timers[1]:
                group.fire(1, timer)
    assert group[1].epoch == before and group[1].phase is Phase.FROZEN


def test_cb_38_a_value_that_got_a_vote_is_continued() -> None:
    """Whoever comes next builds on it, decided or not."""
    group = Group(3).up()
    (prep,) = sent(group.fire(2, Timer.SILENCE), Prep)
    (prom,) = sent(group.receive(3, prep, 2), Prom)
    group.receive(2, prom, 3)
    (acpt,) = sent(group.fire(2, Timer.REFORM), Acpt)
    assert acpt.value.first.list.members == (2, 3)
    effects = group.receive(3, acpt, 2)
    assert [e.key for e in only(effects, Persist)] == ["counter_voted"] and sent(effects, Ackd)
    group.crash(2)
    group.lose()
    (again,) = sent(group.fire(3, Timer.REFORM), Prep)
    (late,) = sent(group.receive(1, again, 3), Prom)
    group.receive(3, late, 1)
    effects = group.fire(3, Timer.REFORM)
    assert not sent(effects, Acpt), "of the list that got a vote only one is there"
    assert sent(effects, Newl), "so the other one is told that it is none of it"


@pytest.mark.parametrize(("told", "phase"), [("voted", Phase.MEMBER), ("promised", Phase.OUT)])
def test_cb_38_news_of_an_epoch_that_a_later_one_knew_as_a_proposal(
    told: str, phase: Phase
) -> None:
    """Epoch 1 is decided while epoch 2 is under way, which goes on from the same token: p3 hears of
    epoch 1 when it has voted for epoch 2, or before, when its promise has been used. It is neither
    stopped, nor taken for one that lost its storage."""
    group = Group(3).up()
    settle(group)

    def heard(node: int, frame: Prep | Prom | Acpt | Ackd | Newl, src: int, kind: type[T]) -> T:
        (answer,) = sent(group.receive(node, frame, src), kind)
        group.lose()
        return answer

    (prep,) = sent(group.fire(2, Timer.SILENCE), Prep)
    group.lose()
    proms = {node: heard(node, prep, 2, Prom) for node in (1, 3)}
    group.receive(2, proms[1], 1)
    vote = heard(3, heard(2, proms[3], 3, Acpt), 2, Ackd)
    (prep,) = sent(group.fire(1, Timer.REFORM), Prep)
    group.lose()
    prom = heard(3, prep, 1, Prom)
    news = heard(2, vote, 3, Newl)
    group.receive(1, prom, 3)
    (acpt,) = sent(group.fire(1, Timer.REFORM), Acpt)
    group.lose()
    assert (news.value.first.epoch, acpt.ballot.epoch) == (1, 2)
    if told == "promised":
        group.receive(3, news, 2)
    vote = heard(3, acpt, 1, Ackd)
    group.receive(1, news, 2)
    group.receive(3, news, 2)
    group.receive(3, heard(1, vote, 3, Newl), 1)
    assert (group[1].phase, group[3].phase) == (Phase.MEMBER, phase)
    assert group[3].life == (phase is Phase.OUT) * (LIVES + 1)
    assert (group[3].parted is not None) == (phase is Phase.OUT)
    settle(group)


def test_cb_39_what_nobody_holds_of_a_lost_sender_is_erased() -> None:
    """CB-T26: d1 is held, d2 is not."""
    group = Group(3).up()
    entry = group.entry(3, 0, (1, 2))
    token = group.token(3, 1, 1, 3, entry)
    group.receive(1, group.msg(3, 0, 1), 3)
    group[1].P = 0
    group[1].held = None
    group[1].unreleased = False
    group.receive(2, token, 3)
    group.lose()
    reform(group, 2, 3)
    (kept,) = group[2].newest.S if group[2].newest else ()
    assert kept.ids == (1, 1)
    assert sent(group.log[2], Req)


@pytest.mark.parametrize(("since", "kept"), [(0, (1, 2)), (6, (1, 1))])
@pytest.mark.parametrize(("committed", "acks"), [(4, ()), (3, (2,))])
def test_cb_39_one_that_was_taken_in_later_does_not_vouch_for_a_cycle(
    since: int, kept: tuple[int, ...], committed: int, acks: tuple[int, ...]
) -> None:
    """CB-31: that p2 begins after cycle 4, or held the entry in another life, saves nothing."""
    group = Group(3).up()
    list_ = PassingList(2, 0, (Seat(1, 0, 0), Seat(2, since, 1)))
    token = group.token(1, 2, 5, 9, lists=(list_,))
    entry = group.entry(3, 4, (1, 2), *acks)
    held = (Held(3, 4, (1, 1)),)
    ballot = Ballot(1, 1)
    proms = {
        1: Prom(group.config.group, ballot, 0, 0, token, 3, held, None),
        2: Prom(group.config.group, ballot, 1, 0, token, committed, (), None),
    }
    (left,) = reformation.struck((entry,), list_, proms)
    assert left.ids == kept


def test_cb_39_with_a_message_that_is_lost_all_that_follow_it_go() -> None:
    """P7: its sender may come back, and send it again: then it would come after them."""
    group = Group(3).up()
    list_ = group.list(1, 2)
    token = group.token(1, 2, 5, 9)
    entries = (
        group.entry(3, 3, (1, 2), 1, 2),
        group.entry(3, 4, (3, 5)),
        Entry(3, 4, 3, (6, 6), (1,), (1,), 0),
        group.entry(3, 5, (7, 8), 1, 2),
        group.entry(2, 5, (1, 9)),
    )
    held = (Held(3, 4, (3, 3, 5, 6)), Held(3, 5, (7, 8)))
    proms = {
        node: Prom(group.config.group, Ballot(1, 1), 0, 0, token, 2, held, None) for node in (1, 2)
    }
    left = [entry.ids for entry in reformation.struck(entries, list_, proms)]
    assert left == [(1, 2), (3, 3), (), (), (1, 9)]


def test_cb_39_what_follows_a_message_that_nobody_here_counts_stays() -> None:
    """p1 was taken in after cycle 4: the others may have delivered all of cycles 4 and 5."""
    group = Group(3).up()
    list_ = PassingList(2, 0, (Seat(1, 5, 0),))
    token = group.token(1, 2, 7, 9, lists=(PassingList(2, 0, (Seat(1, 5, 0), Seat(2, 0, 0))),))
    entries = (group.entry(3, 4, (1, 1), 2), group.entry(3, 5, (2, 2), 1))
    held = (Held(3, 5, (2, 2)),)
    proms = {1: Prom(group.config.group, Ballot(1, 1), 0, 0, token, 4, held, None)}
    left = [entry.ids for entry in reformation.struck(entries, list_, proms)]
    assert left == [(), (2, 2)]


def test_cb_37_a_promise_from_a_later_epoch_is_not_judged_by_an_old_list() -> None:
    """The others came back and began anew meanwhile: their promises tell us that we are out."""
    group = Group(3).up()
    group.pass_on(4)
    group.fire(1, Timer.SILENCE)
    group.lose()
    anew = PassingList(2 * LISTS + 1, 0, (Seat(2, 0, 2 * LIVES + 1), Seat(3, 0, 2 * LIVES + 1)))
    newer = group.token(2, 3, 4, 9, epoch=2, lists=(anew,))
    ballot = group[1].reform.ballot
    assert ballot is not None
    prom = Prom(group.config.group, ballot, 2 * LIVES + 1, 0, newer, 2, (), None)
    group.boots[2] = 2
    effects = group.receive(1, prom, 2)
    assert [ask.epoch for ask in sent(effects, Ask)] == [2]


def test_cb_39_one_that_is_left_out_does_not_vouch_for_what_it_holds() -> None:
    """It promised, but the newest list known is without it, and so is the next: it goes, and what
    it alone holds goes with it."""
    group = Group(3).up()
    old = group.token(1, 2, 5, 9)
    entry = group.entry(3, 4, (1, 2))
    held = (Held(3, 4, (1, 2)),)
    ballot = Ballot(2, 1)
    proms = {
        1: Prom(group.config.group, ballot, 0, 0, old, 3, (), None),
        3: Prom(group.config.group, ballot, 0, 0, old, 3, held, None),
    }
    (left,) = reformation.struck((entry,), group.list(1, 2), proms)
    assert not left.ids


def test_cb_39_what_was_erased_is_not_delivered_by_one_that_counted_it() -> None:
    group = Group(3).up()
    msg = group.msg(3, 0, 2)
    group[1].holding.data[msg.key] = msg
    group[1].holding.composition[0] = {(3, 2): 1}
    base = group.token(3, 1, 1, 3, group.entry(3, 0, (2, 2), 1))
    epoch.prune(group[1], base, group.token(3, 1, 1, 4, epoch=1, lists=(group.list(1, 2, no=9),)))
    assert not group[1].holding.composition[0] and not group[1].holding.data


def test_cb_40_the_token_goes_on_where_it_was_and_its_holder_owns_it_again() -> None:
    """CB-T23: in the same cycle; the rest is delivered once."""
    group = Group(3).up()
    group.submit(1, b"a")
    group.pass_on(3)
    assert group.owner() == 1
    cycle = group[1].P
    reform(group, 2, 3)
    assert group.owner() == 1 and cycle == group[1].P
    group.pass_on(8)
    assert group.told(1) == group.told(2) == [b"a"]
    views = [e.members for e in only(group.log[1], InstallView)]
    assert views[0] == (1, 2, 3) and views[-1] == (1, 2)


def test_cb_40_changes_without_a_rotation_between_them_leave_one_list() -> None:
    """Each added a list to the token, which holds 64: the next one could not be sent."""
    group = Group(3).up()
    group.pass_on(3)
    for _ in range(70):
        reform(group, 2)
    newest = group[2].newest
    assert newest is not None and newest.epoch >= 70 and len(newest.lists) == 2
    group.submit(1, b"a")
    group.pass_on(9)
    assert group.told(1) == group.told(2) == group.told(3) == [b"a"]


def test_cb_40_a_list_of_a_far_cycle_is_malformed() -> None:
    """Every later list would be in force as late, and no view would be installed till then."""
    group = Group(3).up()
    far = (group.list(), group.list(no=2, first=10**9))
    effects = group.receive(3, group.token(2, 3, 1, 2, lists=far), 2)
    assert drops(effects) and group[3].list.no == 1


def test_cb_36_with_bare_counters_all_count_anew() -> None:
    """A13: also what they have committed; CB-T22."""
    group = Group(4, counting=Counting.COUNTER).up()
    group.submit(1, b"a")
    group.pass_on(4)
    reform(group, 2, 4)
    assert all(entry.counter == 0 for entry in (group[2].newest.S if group[2].newest else ()))
    group.pass_on(9)
    assert group.told(1) == group.told(2) == group.told(3) == [b"a"]


def test_cb_42_one_that_never_came_to_its_seat_was_not_in_the_view() -> None:
    """An epoch seats p3, which never hears of it and promises once more as one that is no member:
    the next epoch takes it in anew, in the same life. What the others still deliver of the epoch
    before is not known to it, so they are in a transitional view without it."""
    group = Group(3).up()
    member, life = group[1], 2 * LIVES + 1
    seats = (Seat(1, 0, life), Seat(2, 0, life))
    member.life = member.view_life = life
    member.in_view = {seat.node: seat for seat in (*seats, Seat(3, 0, life))}
    member.committed = 4
    following = PassingList(2 * LISTS + 1, 9, (*seats, Seat(3, 9, life)))
    member.parting.append((4, following))
    env = group.envs[1]
    commit.part_ways(member, env)
    (view,) = only(env.take(), InstallView)
    assert (view.members, view.transitional) == ((1, 2), True)
    assert [each.member for each in view.departures] == [3]


def test_cb_41_a_member_that_hears_of_a_list_without_it_stops_at_once() -> None:
    """CB-T27: it does not commit, and asks for what was delivered in its view."""
    group = Group(3).up()
    lists = (group.list(), group.list(1, 2, no=65537, first=3))
    group.receive(3, group.token(1, 2, 2, 9, epoch=1, lists=lists), 1)
    assert group[3].phase is Phase.OUT
    assert group.told(3) == [] and group[3].committed == -1
    views = [(e.members, e.transitional) for e in only(group.log[3], InstallView)]
    assert views[-1] == ((3,), True)


def test_one_that_missed_the_news_asks_for_them() -> None:
    """CB-38: a token of a later epoch that lists us."""
    group = Group(3).up()
    effects = group.receive(3, group.token(1, 2, 1, 9, epoch=1), 1)
    assert [ask.epoch for ask in sent(effects, Ask)] == [1]
    assert not tokens(effects) and not only(effects, Persist)


def test_what_few_runs_meet_while_the_list_is_reformed() -> None:
    """CB-15: a holder still answers for a sender that is gone. CB-42, CB-41: news of the past is an
    answer to nothing, and a question for members is not for one that is none."""
    group = Group(4).up()
    group.receive(2, group.msg(4, 0, 1), 4)
    group.receive(2, Req(group.config.group, 4, (0, 1, 1)), 3)
    group.receive(2, Prep(group.config.group, Ballot(1, 3)), 3)
    assert group[2].phase is Phase.FROZEN
    group.now_us += 1_000_000
    (msg,) = sent(group.fire(2, Timer.ANSWER), Msg)
    assert msg.key == (4, 0, 1)
    group.receive(2, Told(group.config.group, 1, 0, True, None, ()), 3)
    assert group.envs[2].dropped == {"an answer to nothing": 1}
    group.stable[1] = {"counter_epoch": 1}
    group.start(1)
    assert group[1].phase is Phase.OUT
    group.receive(1, Ask(group.config.group, 1), 3)
    assert group.envs[1].dropped == {"a question for members": 1}
