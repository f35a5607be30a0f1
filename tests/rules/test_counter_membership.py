"""Joining and leaving by the token's owner."""

from __future__ import annotations

from cb import Group, Timer, msgs, said, settle, tokens
from driver import only, sent, stops

from ringcast.core.effects import InstallView, Stop
from ringcast.core.inputs import Leaving
from ringcast.protocols.counter.commit import part_ways
from ringcast.protocols.counter.messages import Join, Leave, PassingList, Prep, Seat
from ringcast.protocols.counter.state import LIVES, Phase


def test_cb_31_a_newcomer_is_appended_and_counts_from_the_next_cycle_on() -> None:
    """A14, CB-T20: it owns the token in the same rotation, and the view comes after its cycle."""
    group = Group(4)
    for node in (1, 2, 3):
        group.start(node)
    old = group.list(1, 2, 3)
    for node in (1, 2, 3):
        group[node].list = old
        group[node].newest = None
    group[1].held = group.token(3, 1, 0, 0, lists=(old,))
    group.stable[4]["counter_epoch"] = 1
    group.start(4)
    (join,) = sent(group.fire(4, Timer.JOIN), Join)
    group.quiet()
    (token,) = tokens(group.fire(1, Timer.OWNER))
    assert token.list.members == (1, 2, 3, 4)
    assert token.list.seats[3].since == token.list.first == 2
    assert token.list.seats[3].life == join.life
    group.submit(2, b"before")
    group.quiet()
    group.pass_on(2)
    assert group[4].phase is Phase.MEMBER
    group.pass_on(10)
    views = [e.members for e in only(group.log[4], InstallView) if not e.transitional]
    assert views == [(1, 2, 3, 4)]
    assert group.told(1) == [b"before"] and group.told(4) == []
    group.submit(4, b"after")
    group.pass_on(12)
    assert group.told(1) == [b"before", b"after"] and group.told(4) == [b"after"]


def test_cb_31_nobody_sends_into_a_view_before_it_is_in_it() -> None:
    """It may crash before: then a member that came back would seem to have sent it."""
    group = Group().up()
    now = group.list()
    new = PassingList(2, 2, (*now.seats[:2], Seat(3, 2, LIVES + 1)))
    group.receive(2, group.token(1, 2, 1, 1, lists=(now, new)), 1)
    group.fire(2, Timer.OWNER)
    assert msgs(group.submit(2, b"in cycle 1"))
    group.receive(2, group.token(1, 2, 2, 4, lists=(now, new)), 1)
    assert group[2].P == 2 and group[2].committed == 0
    assert not msgs(group.submit(2, b"in cycle 2"))
    entry = group.entry(2, 1, (1, 1), 1)
    effects = group.fire(2, Timer.OWNER)
    effects = group.receive(2, group.token(3, 1, 2, 6, entry, lists=(now, new)), 3)
    assert [view.members for view in only(effects, InstallView)][-1] == (1, 2, 3)
    assert [msg.p for msg in msgs(effects)] == [2]


def test_cb_31_a_late_join_of_an_earlier_life_does_nothing() -> None:
    """It was excluded by mistake, and is back: nobody calls for another list, nor waits for the
    earlier life, which would keep the token from resting for good (A24)."""
    group = Group().up()
    now = group.list(1, 2)
    seats = (*now.seats, Seat(3, 2, LIVES + 2))
    group.receive(1, group.token(2, 3, 1, 2, lists=(now, PassingList(2, 2, seats))), 2)
    late = Join(group.config.group, LIVES + 1, 0, 1)
    assert not sent(group.receive(1, late, 3), Prep)
    assert not group[1].joiners
    later = Join(group.config.group, 2 * LIVES + 1, 0, 1)  # it was started again
    assert sent(group.receive(1, later, 3), Prep)


def test_cb_38_whoever_is_in_a_new_list_is_not_to_be_taken_in() -> None:
    """It promised in the life it is in; a Join of another one was late."""
    group = Group().up()
    group.pass_on()
    group.boots[3] = 7
    assert sent(group.receive(1, Join(group.config.group, 7 * LIVES + 1, 0, 1), 3), Prep)
    assert group[1].joiners
    group.boots[3] = 1
    settle(group)
    assert (group[1].epoch, group[1].list.members) == (1, (1, 2, 3))
    assert not group[1].joiners


def test_cb_32_a_changed_list_is_taken_over() -> None:
    group = Group().up()
    lists = (group.list(), group.list(1, 3, no=2, first=2))
    group.receive(3, group.token(2, 3, 1, 2, lists=lists), 2)
    assert group[3].list.members == (1, 3)


def test_cb_33_a_leaver_drains_takes_back_its_counts_and_goes() -> None:
    """A13, CB-T21: it stops when somebody has its token."""
    group = Group(leave_us=1_000_000).up()
    group.submit(2, b"mine")
    group.handle(2, Leaving())
    assert not group[2].ready
    group.pass_on(4)
    assert group[2].list.members == (1, 2, 3)
    entry = group.entry(1, 3, (1, 1), 2)
    group[2].holding.counted.add(entry.key)
    for _ in range(6):
        owner = group.owner()
        if owner == 2 and group[2].held is not None and not group[2].held.S:
            group[2].held = group.token(1, 2, group[2].P, group[2].held.hop, entry)
            break
        group.pass_on()
    (token,) = tokens(group.fire(2, Timer.OWNER))
    assert token.list.members == (1, 3)
    assert token.S[0].acks == ()
    assert not only(group.log[2], Stop)
    after = group.token(3, 1, token.t, token.hop + 1, lists=token.lists)
    assert [stop.reason for stop in only(group.receive(2, after, 3), Stop)] == ["left"]
    assert said(group.log[3]) == [b"mine"]


def test_cb_33_ext_one_that_cannot_wait_says_so_and_the_next_calls_for_a_list() -> None:
    group = Group().up()
    effects = group.handle(2, Leaving())
    assert only(effects, Stop)
    (leave,) = sent(effects, Leave)
    assert not sent(group.receive(1, leave, 2), Prep)
    assert sent(group.receive(3, leave, 2), Prep)


def test_cb_33_without_one_there_is_no_majority_so_it_just_goes() -> None:
    group = Group(2, leave_us=1_000_000).up()
    assert only(group.handle(2, Leaving()), Stop)


def test_cb_42_a_decision_with_another_seat_of_ours_ends_the_process() -> None:
    """It seats our life, but from another cycle on than our view does: that was never decided. We
    do not go into a transitional view without ourselves."""
    group = Group(3).up()
    group.pass_on(3)
    machine, env = group[3], group.envs[3]
    assert machine.view is not None and machine.view == machine.ring
    forged = tuple(
        Seat(seat.node, seat.since + 2 * (seat.node == 3), seat.life) for seat in machine.list.seats
    )
    machine.parting.append((machine.committed, PassingList(9, machine.committed + 1, forged)))
    part_ways(machine, env)
    effects = env.take()
    assert stops(effects) == [
        "broken invariant: our seat is not the one in our view (counter CB-42)"
    ]
    assert not only(effects, InstallView) and 3 in machine.in_view
