"""When a cycle is committed, and in which order."""

from __future__ import annotations

import pytest
from cb import Group, Timer, said, tokens

from ringcast.core.ids import Level
from ringcast.protocols.counter.config import Config, Counting, CycleOrder
from ringcast.protocols.counter.entries import (
    complete,
    expected,
    offered,
    rank,
    recounted,
    uncount,
)
from ringcast.protocols.counter.messages import Entry, PassingList, Seat


def test_cb_16_destinations_in_the_list_that_count_the_cycle_must_hold_an_entry() -> None:
    """A14: not the sender, and nobody who came later."""
    seats = (Seat(1, 0, 0), Seat(2, 0, 0), Seat(3, 5, 0))
    list_ = PassingList(1, 0, seats)
    entry = Entry(1, 4, 1, (1, 1), (), (2,), 1)
    assert expected(entry, list_) == {2}
    assert complete(entry, list_, Counting.SET) and complete(entry, list_, Counting.COUNTER)
    later = Entry(1, 5, 1, (1, 1), (), (2,), 1)
    assert expected(later, list_) == {2, 3}
    assert not complete(later, list_, Counting.SET)


def test_cb_17_a_cycle_is_offered_when_all_had_the_chance_to_list_it() -> None:
    """A5, CB-T4: a token that says nothing of a cycle may be too early."""
    group = Group()
    assert not offered(3, group.token(1, 2, 4, 10))
    assert not offered(3, group.token(2, 3, 4, 11))
    assert offered(3, group.token(3, 1, 4, 12))
    assert offered(3, group.token(1, 2, 5, 13))


def test_cb_17_nothing_is_committed_while_the_start_node_alone_has_been_silent() -> None:
    """CB-T4: b1 is missing at 3, and node 1 has nothing to list."""
    group = Group().up()
    group.submit(2, b"b1")
    group.broadcasts = [(to, frame) for to, frame in group.broadcasts if to != 3]
    group.pass_on(2)
    assert [group[node].committed for node in group.ids] == [-1, -1, -1]
    group.pass_on(4)
    assert [group.told(node) for node in group.ids] == [[b"b1"]] * 3


def test_cb_18_a_member_that_missed_tokens_commits_several_cycles_on_one() -> None:
    """A6, CB-T9."""
    group = Group().up()
    group[3].P = 4
    group.receive(3, group.token(1, 2, 5, 13), 1)
    assert group[3].committed == 3
    group.receive(3, group.token(2, 3, 4, 11), 2)
    assert group[3].committed == 3


def test_cb_19_a_message_that_was_never_listed_is_not_delivered() -> None:
    """A7, A11: what is here, or was in a token of a branch that died, is not part of a cycle."""
    group = Group().up()
    group.receive(2, group.msg(3, 0, 9, b"unlisted"), 3)
    group.submit(1, b"a")
    group.pass_on(9)
    assert group.told(2) == [b"a"]


@pytest.mark.parametrize(
    ("order", "wanted"),
    [("fixed", [b"a", b"b", b"c"]), ("rotating", [b"c", b"a", b"b"])],
)
def test_cb_20_and_cb_21_the_order_within_a_cycle(order: str, wanted: list[bytes]) -> None:
    """CB-T3: by the list, or beginning at another sender in each cycle."""
    group = Group(order=CycleOrder(order), first_sender=2).up()
    group[1].P = 0
    for node, body in ((3, b"c"), (1, b"a"), (2, b"b")):
        group.submit(node, body)
    group[1].P = 1
    group.pass_on(9)
    assert group.told(2) == group.told(3) == wanted


def test_cb_21_the_rank_is_that_in_the_list_of_the_cycle() -> None:
    """A20."""
    old = PassingList(1, 0, tuple(Seat(node, 0, 0) for node in (1, 2, 3)))
    new = PassingList(2, 5, tuple(Seat(node, 0, 0) for node in (2, 3)))
    config = Config(order=CycleOrder.ROTATING, members=(1, 2, 3))
    assert [rank(3, cycle, (old, new), config) for cycle in (3, 4, 5, 6)] == [2, 1, 0, 1]


def test_figure_2() -> None:
    """CB-T1, CB-T2: the states of the paper's example, release by release (CB-23)."""
    group = Group(packing=False).up()
    for node in group.ids:
        group[node].P = 0
    group.submit(1, b"a1", b"a2", b"a3")
    group.submit(2, b"b1", b"b2", b"b3")
    group.submit(3, b"c1", b"c2")
    group[1].P = 1
    group.submit(1, b"a4", b"a5")
    seen = []
    for _ in range(6):
        effects = group.pass_on()
        (token,) = tokens(effects)
        seen.append([(e.sender, e.cycle, e.ids, len(e.acks)) for e in token.S])
        seen[-1].append(said(effects))  # type: ignore[arg-type]
    assert seen == [
        [(1, 0, (1, 3), 0), []],
        [(1, 0, (1, 3), 1), (2, 0, (1, 3), 0), []],
        [(1, 0, (1, 3), 2), (2, 0, (1, 3), 1), (3, 0, (1, 2), 0), []],
        [(2, 0, (1, 3), 2), (3, 0, (1, 2), 1), (1, 1, (4, 5), 0), []],
        [
            (3, 0, (1, 2), 2),
            (1, 1, (4, 5), 1),
            [b"a1", b"a2", b"a3", b"b1", b"b2", b"b3", b"c1", b"c2"],
        ],
        [(1, 1, (4, 5), 2), [b"a4", b"a5"]],
    ]


def test_cb_35_ids_of_those_that_are_gone_do_not_count() -> None:
    """A13, CB-T22: two of the new list's two, by number, and one of them is missing."""
    entry = Entry(1, 0, 1, (1, 2), (), (3, 4), 2)
    list_ = PassingList(2, 3, tuple(Seat(node, 0, 0) for node in (1, 2, 3)))
    assert complete(entry, list_, Counting.COUNTER)  # as the source has it, and wrong
    after = recounted(entry, list_)
    assert after.acks == (3,) and after.counter == 0
    assert not complete(after, list_, Counting.SET)
    assert not complete(after, list_, Counting.COUNTER)


def test_cb_33_a_leaver_takes_back_its_count() -> None:
    """A13, CB-T21."""
    entry = Entry(1, 0, 1, (1, 1), (), (2,), 1)
    assert uncount(entry, 2, Counting.SET).acks == ()
    assert uncount(entry, 2, Counting.COUNTER).counter == 0


def test_alone_a_message_is_committed_at_once() -> None:
    """CB-T16: at the release of the rotation after its cycle (CB-17)."""
    group = Group(1, token_us=0, idle_us=1_000).up()
    assert said(group.submit(1, b"a")) == [b"a"]


def test_two_members() -> None:
    """CB-T17: a message of each, committed on the first one's second release (CB-17)."""
    group = Group(2).up()
    group[1].P = 0
    group.submit(1, b"a")
    group.submit(2, b"b")
    group[1].P = 1
    group.pass_on(2)
    assert group.told(1) == []
    assert said(group.fire(group.owner(), Timer.OWNER)) == [b"a", b"b"]


def test_cb_43_others_neither_ask_nor_count_and_a_sender_may_be_none_of_them() -> None:
    """CB-T29."""
    group = Group(4).up()
    entry = Entry(1, 0, 1, (1, 1), (2, 3), (), 0)
    effects = group.receive(4, group.token(1, 2, 1, 1, entry), 1)
    assert not effects or not group[4].holding.want
    list_ = group.list()
    assert expected(entry, list_) == {2, 3}


def test_cb_43_overlapping_destinations() -> None:
    """CB-T29: a1 is for 2 and 3, b1 for 3 and 4, and 4 lacks b1. 2 does not wait for it; 3 delivers
    both together, once 4 has it; 1 and 2 do not deliver what is for others."""
    group = Group(4).up()
    group.cut = {(2, 4)}
    for node, to, body in ((1, (2, 3), b"a1"), (2, (3, 4), b"b1")):
        group[node].sending.queue.put((body,), (Level.AGREED, to))
    group.pass_on(12)
    assert group.told(2) == [b"a1"]
    assert group.told(3) == [] and group[4].holding.want
    group.cut.clear()
    group.now_us += 1_000_000
    group.fire(4, Timer.REQUEST)
    group.pass_on(8)
    assert group.told(3) == [b"a1", b"b1"]
    assert group.told(4) == [b"b1"]
    assert group.told(1) == [] and group.told(2) == [b"a1"]


def test_cb_44_entries_for_others_do_not_hold_up_a_commit() -> None:
    """CB-T29: 2 delivers what is for it, though what is for 3 and 4 is not complete."""
    group = Group(4).up()
    mine = Entry(1, 0, 1, (1, 1), (2, 3), (3,), 0)
    theirs = Entry(3, 0, 1, (1, 1), (1, 4), (), 0)
    group.receive(2, group.msg(1, 0, 1, b"a", to=(2, 3)), 1)
    group.receive(2, group.token(1, 2, 1, 1, mine, theirs), 1)
    group.fire(2, Timer.OWNER)
    done = Entry(1, 0, 1, (1, 1), (2, 3), (2, 3), 0)
    assert said(group.receive(2, group.token(4, 1, 1, 4, done, theirs), 4)) == [b"a"]
