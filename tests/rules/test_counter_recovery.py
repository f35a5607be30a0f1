"""Coming back: without a memory, or after being excluded."""

from __future__ import annotations

import pytest
from cb import Group, Timer, msgs, settle, tokens
from driver import only, sent
from msgspec.structs import replace

from ringcast.core.effects import InstallView
from ringcast.protocols.counter.commit import STEP
from ringcast.protocols.counter.membership import LISTS
from ringcast.protocols.counter.messages import (
    LAST,
    Ballot,
    Fetch,
    Join,
    PassingList,
    Prep,
    Prom,
    Seat,
    Stranger,
    Told,
)
from ringcast.protocols.counter.state import LIVES, Phase


def test_cb_42_a_restarted_member_remembers_nothing_and_asks() -> None:
    group = Group(3).up()
    group.crash(3)
    effects = group.start(3)
    assert group[3].phase is Phase.OUT and not only(effects, InstallView)
    assert sent(group.fire(3, Timer.JOIN), Join)


def test_cb_42_one_that_came_back_says_what_it_waits_for() -> None:
    """Too few to begin anew, and no member is heard."""
    group = Group(5).up()
    for node in group.ids:
        group.crash(node)
    group.lose()
    group.up(4, 5)
    group.fire(5, Timer.JOIN)
    assert group[5].blocked == ("members here: 1, majority: 3; waiting for some of 1, 2, 3, 4")
    group.quiet()
    group.fire(4, Timer.JOIN)
    assert group[4].blocked == "members here: 2, majority: 3; waiting for some of 1, 2, 3"
    group.receive(4, group.token(2, 3, 1, 2), 2)
    assert not group[4].blocked


def test_cb_42_it_has_a_vote_and_is_taken_in_by_the_decision() -> None:
    """Two of two: one is killed and comes back (CB-38 ext)."""
    group = Group(2).up()
    group.submit(1, b"a")
    group.pass_on(4)
    group.crash(2)
    group.start(2)
    group.lose()
    group.fire(2, Timer.JOIN)
    settle(group)
    assert [group[node].phase for node in group.ids] == [Phase.MEMBER, Phase.MEMBER]
    assert group[1].epoch == group[2].epoch == 1
    group.submit(2, b"b")
    group.pass_on(12)
    assert group.told(1)[-1:] == group.told(2)[-1:] == [b"b"]


def test_cb_42_ext_a_majority_that_remembers_nothing_begins_anew() -> None:
    """All were killed at once."""
    group = Group(3).up()
    group.submit(1, b"a")
    group.pass_on(4)
    for node in group.ids:
        group.crash(node)
    group.lose()
    for node in group.ids:
        group.start(node)
    group.now_us += 10 * group.config.join_us
    for _ in range(3):
        for node in group.ids:
            if Timer.JOIN in group.timers[node]:
                group.fire(node, Timer.JOIN)
        settle(group)
    if Timer.REFORM in group.timers[1]:
        group.fire(1, Timer.REFORM)
        settle(group)
    assert [group[node].phase for node in group.ids] == [Phase.MEMBER] * 3
    group.submit(2, b"b")
    group.pass_on(9)
    assert all(group.told(node)[-1] == b"b" for node in group.ids)


def test_cb_42_one_that_remembers_more_than_the_group_comes_with_a_later_epoch() -> None:
    """All others lost their storage, and begin with numbers that it knows of its last view."""
    group = Group(3)
    group.stable[3] |= {"counter_epoch": 1, "counter_view": 5 * LISTS + 3}
    group.up()
    group.pass_on(2)
    (join,) = sent(group.fire(3, Timer.JOIN), Join)
    assert (join.epoch, join.no) == (5, 5 * LISTS + 3)
    settle(group)
    assert [group[node].epoch for node in group.ids] == [6, 6, 6]
    group.submit(3, b"c")
    group.pass_on(12)
    views = [e.view for e in only(group.log[3], InstallView)]
    assert [view.seq // STEP for view in views] == [6 * LISTS + 1]
    assert group.told(1) == group.told(3) == [b"c"]


def test_cb_42_one_join_calls_for_one_epoch() -> None:
    """By the number of its list, too; a number that no list can have is none of a member."""
    group = Group(3).up()
    group.pass_on(2)
    ahead = Join(group.config.group, LIVES + 1, 0, 5 * LISTS + 3)
    (prep,) = sent(group.receive(1, ahead, 3), Prep)
    assert prep.ballot.epoch == 6
    settle(group)
    assert group[1].epoch == 6
    assert not sent(group.receive(1, replace(ahead, no=LAST - 1), 3), Prep)


def test_cb_42_no_list_makes_a_member_that_is_not_above_its_last_view() -> None:
    """The same within one epoch, where only the numbers of the lists tell."""
    group = Group(3)
    group.stable[3] |= {"counter_epoch": 1, "counter_view": 4}
    group.up()
    low = PassingList(2, 2, (Seat(1, 0, 0), Seat(2, 0, 0), Seat(3, 2, group[3].life)))
    group.receive(3, group.token(2, 3, 1, 2, lists=(low,)), 2)
    assert group[3].phase is Phase.OUT
    group.fire(3, Timer.JOIN)
    settle(group)
    assert [group[node].epoch for node in group.ids] == [1, 1, 1]


@pytest.mark.parametrize("listed", ["sent", "counted"])
def test_cb_42_a_token_that_tells_of_forgotten_deeds_ends_a_membership(listed: str) -> None:
    """All lost their storage, and a token of before was still under way."""
    group = Group(3).up()
    entry = group.entry(2, 0, (1, 4)) if listed == "sent" else group.entry(1, 0, (1, 4), 2)
    group.receive(2, group.msg(1, 0, 1), 1)
    group.submit(2, b"b")  # has the number that the lost message had
    group.receive(2, group.token(1, 2, 1, 1, entry), 1)
    assert group[2].phase is Phase.OUT and group[2].held is None


def test_cb_42_an_excluded_member_is_told_what_was_delivered_in_its_view() -> None:
    """CB-T27: its deliveries are a prefix of the others', and its own are not sent twice."""
    group = Group(3).up()
    group.submit(3, b"c")
    group.submit(1, b"a")
    group.pass_on(3)
    group.cut = {(other, 3) for other in (1, 2)} | {(3, other) for other in (1, 2)}
    group.lose()
    for timer in (Timer.SILENCE, Timer.REFORM):
        if timer in group.timers[2]:
            group.fire(2, timer)
        settle(group)
    assert group[1].list.members == (1, 2)
    group.pass_on(10)
    assert group.told(1) == group.told(2)
    group.cut = set()
    token = group[1].newest
    assert token is not None
    group.receive(3, token, 1)
    assert str(group[3].phase) == Phase.OUT
    assert sent(group.fire(3, Timer.JOIN), Fetch)
    settle(group)
    assert group.told(3) == group.told(1)
    group.pass_on(14)
    assert group[3].phase is Phase.MEMBER
    views = [e.members for e in only(group.log[3], InstallView) if not e.transitional]
    assert views[-1] == (1, 2, 3)


def test_cb_41_ext_if_nobody_can_tell_what_may_have_been_delivered_is() -> None:
    group = Group(3).up()
    group.submit(3, b"c")
    group.pass_on(3)
    lists = (group.list(), group.list(1, 2, no=65537, first=9))
    group.receive(3, group.token(1, 2, 7, 30, epoch=1, lists=lists), 1)
    assert group[3].parted is not None
    for node in (1, 2):
        group.receive(3, Told(group.config.group, 1, 0, False, None, ()), node)
    assert group[3].parted is None
    assert group.told(3) == [b"c"]


def test_a_member_that_lost_its_storage_finds_out() -> None:
    """CB-42: it believed to be there for the first time."""
    group = Group(3).up()
    group.pass_on(6)
    group.crash(2)
    group.stable[2].clear()
    group.start(2)
    (token,) = tokens(group.pass_on())
    assert token.n == 2
    assert group[2].phase is Phase.OUT


def test_cb_42_others_tell_one_that_lost_its_storage_before_it_can_do_harm() -> None:
    """They know the incarnation that was a member, and it is not this one."""
    group = Group(3).up()
    group.pass_on(3)
    group.crash(3)
    group.stable[3].clear()
    group.start(3)
    (message,) = msgs(group.submit(3, b"c"))
    (stranger,) = sent(group.receive(1, message, 3), Stranger)
    group.receive(3, stranger, 1)
    assert group[3].phase is Phase.OUT and group[3].parted is None


def test_cb_42_one_that_lost_its_storage_and_calls_for_a_list_is_told() -> None:
    """It may be a newcomer, which calls by right; or it takes itself for a member, and then a list
    with it as one that remembers would never pass a token."""
    group = Group(3).up()
    group.pass_on(3)
    group.crash(3)
    group.stable[3].clear()
    group.start(3)
    effects = group.receive(1, Prep(group.config.group, Ballot(5, 3)), 3)
    assert sent(effects, Prom)
    (stranger,) = sent(effects, Stranger)
    group.receive(3, stranger, 1)
    assert group[3].phase is Phase.OUT


@pytest.mark.parametrize(
    ("heard", "life", "after", "known"),
    [
        (1, 0, 0, True),
        (1, 0, 9, True),
        (2, 0, 9, False),  # another incarnation took part
        (0, 0, 9, True),  # it has delivered something, so it was one of us
        (0, 0, 0, False),  # it may have, and forgotten it
        (0, LIVES + 3, 0, True),
        (0, 2 * LIVES + 3, 0, False),
        (1, 2 * LIVES + 3, 9, False),
    ],
)
def test_cb_42_one_that_may_have_forgotten_is_told_nothing(
    heard: int, life: int, after: int, known: bool
) -> None:
    """p3 asks in its first incarnation: what others heard of it, and in which life they list it."""
    group = Group(3).up()
    if heard:
        group[1].boots[3] = heard
    group[1].list = PassingList(2, 0, (Seat(1, 0, 0), Seat(2, 0, 0), Seat(3, 0, life)))
    (told,) = sent(group.receive(1, Fetch(group.config.group, 1, after), 3), Told)
    assert told.known is known
