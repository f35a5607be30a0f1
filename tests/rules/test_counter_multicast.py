"""The multicast extension: messages to some members only."""

from __future__ import annotations

from itertools import combinations

import pytest
from cb import Group, Timer, msgs, said
from driver import drops, only, sent

from ringcast.blocks.packing import Contents
from ringcast.core.effects import Deliver, InstallView, Originate, Uncertain
from ringcast.core.ids import Level
from ringcast.core.inputs import Submitted
from ringcast.protocols.counter import epoch, recovery, reformation, sending
from ringcast.protocols.counter.config import Counting
from ringcast.protocols.counter.entries import furthest, reached
from ringcast.protocols.counter.messages import (
    Ballot,
    Entry,
    Fetch,
    Held,
    Msg,
    PassingList,
    Prom,
    Seat,
    Told,
    Value,
    malformed,
)
from ringcast.protocols.counter.sending import MOST_SETS


def submit(group: Group, node: int, to: tuple[int, ...], *bodies: bytes) -> list[Msg]:
    """Send to some; the frames that leave."""
    return msgs(group.handle(node, Submitted(bodies, Level.AGREED, to)))


def test_cb_43_a_submission_names_its_destinations_and_so_does_the_delivery() -> None:
    """Messages to different members share no frame. Who is not named delivers nothing."""
    group = Group(3).up()
    frames = submit(group, 1, (1, 2), b"a", b"b") + submit(group, 1, (3,), b"c")
    assert [(frame.to, frame.contents.bodies) for frame in frames] == [
        ((1, 2), (b"a", b"b")),
        ((3,), (b"c",)),
    ]
    group.pass_on(12)
    assert [group.told(node) for node in group.ids] == [[b"a", b"b"], [b"a", b"b"], [b"c"]]
    assert {d.batch.to for d in only(group.log[2], Deliver)} == {(1, 2)}
    assert not only(group.log[1], Originate) and not group[1].sending.mine


def test_cb_43_a_token_has_room_for_so_many_sets_in_a_cycle() -> None:
    """The next one waits for the next cycle, and what is behind it with it."""
    group = Group(6).up()
    sets = list(combinations(group.ids, 3))
    assert len(sets) > MOST_SETS
    assert sum(len(submit(group, 2, to, b"x")) for to in sets) == MOST_SETS
    group.pass_on(40)
    assert not group[2].sending.mine and not group[2].sending.queue


@pytest.mark.parametrize("to", [(9,), (2, 1), (2, 2)])
def test_cb_43_strangers_are_refused(to: tuple[int, ...]) -> None:
    group = Group(3).up()
    effects = group.handle(1, Submitted((b"x",), Level.AGREED, to))
    assert drops(effects) == ["a submission to strangers"]
    assert malformed(group.msg(1, 0, 1, b"x", to), group.ids)
    assert malformed(group.token(1, 2, 1, 1, Entry(1, 0, 1, (1, 1), to, (), 0)), group.ids)


def test_cb_43_what_was_listed_for_some_is_not_sent_again_by_one_that_was_excluded() -> None:
    """It cannot know whether they delivered it. What it never listed nobody did; numbers stay."""
    group = Group(3).up()
    submit(group, 1, (2,), b"listed")
    group.submit(1, b"to all")
    group.pass_on(4)
    submit(group, 1, (2,), b"unlisted")
    p = group[1]
    effects = group.do(1, lambda env: recovery.excluded(p, env, owed=False))
    assert only(effects, Uncertain) == [Uncertain(1, 1)]
    assert len(p.sending.queue) == 2 and p.sending.queue.number == 2
    p.view_life = p.life
    again = msgs(group.do(1, lambda env: sending.send_new(p, env)))
    assert [frame.contents for frame in again] == [
        Contents(2, (b"to all",)),
        Contents(3, (b"unlisted",)),
    ]


def test_cb_43_what_was_not_told_of_a_view_is_not_delivered_in_the_next_one() -> None:
    """Swarm seed 3029450: 3 and 1 are to get it, and 2, who tells 3 of the view, is not. Others
    may have delivered it in that view, so 3 must not do it in another."""
    group = Group(3).up()
    submit(group, 3, (1, 3), b"some")
    group.pass_on(3)
    lists = (group.list(), group.list(1, 2, no=65537, first=9))
    group.receive(3, group.token(1, 2, 7, 30, epoch=1, lists=lists), 1)
    assert group[3].parted is not None
    following = group.list(1, 2, 3, no=65537, first=9)
    group.receive(3, Told(group.config.group, 1, 0, True, following, ()), 2)
    assert only(group.log[3], InstallView)[-2].members == (1, 2, 3)
    for node in (1, 2):
        group.receive(3, Told(group.config.group, 65537, 0, False, None, ()), node)
    assert group[3].parted is None and group.told(3) == []
    assert only(group.log[3], Uncertain) == [Uncertain(1, 1)]


def test_cb_43_a_later_message_may_have_been_delivered() -> None:
    """Swarm seed 1143: the number that is uncertain is not the last one."""
    group = Group(3).up()
    submit(group, 1, (2,), b"some")
    group.submit(1, b"all")
    group.submit(1, b"more")
    group.pass_on(4)
    p = group[1]
    del p.sending.mine[2]
    effects = group.do(1, lambda env: recovery.excluded(p, env, owed=False))
    assert only(effects, Uncertain) == [Uncertain(1, 1)]
    assert len(p.sending.queue) == 1 and p.sending.queue.number == 3


def test_cb_43_what_is_done_in_between_keeps_its_number_too() -> None:
    """Those that it was for hold the second one; the first and the third are sent again."""
    group = Group(3).up()
    group.submit(1, b"one")
    submit(group, 1, (2,), b"some")
    group.submit(1, b"three")
    p = group[1]
    del p.sending.mine[2]
    effects = group.do(1, lambda env: recovery.excluded(p, env, owed=False))
    assert not only(effects, Uncertain)
    p.view_life = p.life
    again = msgs(group.do(1, lambda env: sending.send_new(p, env)))
    assert [frame.contents for frame in again] == [Contents(1, (b"one",)), Contents(3, (b"three",))]


def test_cb_43_who_catches_up_is_told_only_what_is_for_it() -> None:
    group = Group(3).up()
    submit(group, 1, (1, 2), b"some")
    group.submit(1, b"all")
    group.pass_on(9)
    fetch = Fetch(group.config.group, 1, 0)
    for node, count in ((2, 2), (3, 1)):
        (told,) = sent(group.receive(1, fetch, node), Told)
        assert len(told.items) == count


@pytest.mark.parametrize(("to", "kept"), [((2, 3), (1, 2)), ((1, 4), (1, 1))])
def test_cb_39_who_commits_without_it_does_not_vouch_for_it(
    to: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    """CB-43: 2 has committed the cycle; that says something only if the entry is for it."""
    group = Group(4).up()
    list_ = PassingList(2, 0, tuple(Seat(node, 0, 0) for node in (1, 2, 4)))
    token = group.token(1, 2, 5, 9, lists=(list_,))
    entry = Entry(3, 4, 1, (1, 2), to, (), 0)
    name, ballot = group.config.group, Ballot(1, 1)
    proms = {
        1: Prom(name, ballot, 0, 0, token, 3, (Held(3, 4, (1, 1)),), None),
        2: Prom(name, ballot, 0, 0, token, 4, (), None),
    }
    (left,) = reformation.struck((entry,), list_, proms)
    assert left.ids == kept


def test_cb_44_members_part_behind_what_anybody_may_have_committed() -> None:
    """2 has committed cycle 0, since what 3 lacks is not for it. 4 is lost: 3 delivers that cycle
    in the view of all four, too, and then both are in the transitional one, at one place."""
    group = Group(4).up()
    all_ = Entry(1, 0, 1, (1, 1), (), (2, 3, 4), 0)
    some = Entry(1, 0, 1, (2, 2), (1, 3), (), 0)
    base = group.token(4, 1, 1, 4, all_, some)
    assert [reached(base, Counting.SET, node) for node in group.ids] == [-1, 0, -1, 0]
    assert reached(base, Counting.SET) == -1 and furthest(base, Counting.SET) == 0
    for node in (2, 3):
        group.receive(node, group.msg(1, 0, 1, b"all"), 1)
        group.receive(node, group.token(1, 2, 1, 1, group.entry(1, 0, (1, 1)), some), 1)
        group[node].holding.composition = {0: {(1, 1): 0}}
        group[node].newest, group[node].held, group[node].P = base, None, 1
    list_ = PassingList(1 << 16 | 1, 3, tuple(Seat(node, 0, 0) for node in (1, 2, 3)))
    first = group.token(4, 1, 1, 5, all_, some, epoch=1, lists=(*base.lists, list_))
    two = group.do(2, lambda env: epoch.install(group[2], env, Value(base, first)))
    three = group.do(3, lambda env: epoch.install(group[3], env, Value(base, first)))
    assert said(two) == [b"all"] and len(only(two, InstallView)) == 1
    assert said(three) == [] and not only(three, InstallView) and group[3].parting
    group.receive(3, group.msg(1, 0, 2, b"some", (1, 3)), 1)
    group[3].holding.composition[0][1, 2] = 1
    done = Entry(1, 0, 1, (2, 2), (1, 3), (3,), 0)
    lists = (*base.lists, list_)
    three = group.receive(3, group.token(1, 2, 2, 6, done, epoch=1, lists=lists), 1)
    assert said(three) == [b"all", b"some"]
    ends = [only(effects, InstallView)[0] for effects in (two, three)]
    assert ends[0].position == ends[1].position and ends[0].members == ends[1].members == (1, 2, 3)
    assert {d.view for d in only(three, Deliver)} == {ends[0].ring}
    assert Timer.SILENCE in group.timers[3]
