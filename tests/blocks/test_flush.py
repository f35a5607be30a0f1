"""The flush (total G-8, FL-1 to FL-5): a view ends with the same contents for its survivors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from wire import Wire, drops, words

from ringcast.blocks.channel import Arrived, Packet
from ringcast.blocks.detector import Settings as Beats
from ringcast.blocks.flush import (
    Block,
    Cut,
    Flush,
    Flushed,
    Holding,
    Phase,
    Report,
    Supply,
    cut_of,
    orders_of,
)
from ringcast.blocks.view_change import Settings, Timer
from ringcast.blocks.view_messages import Leave
from ringcast.core.env import Env
from ringcast.core.ids import ViewId

SETTINGS = Settings(
    detector=Beats(beat_us=10_000, suspect_us=30_000, suspect_max_us=30_000),
    change_us=60_000,
    announce_us=50_000,
    merge_us=1_000,
    away_us=1_000,
    away_max_us=100_000,
)


class Item(msgspec.Struct, frozen=True, array_like=True, tag=1):
    number: int


def ranges(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def holding(numbers: Iterable[int], stable: int = 0, first: int = 1) -> Holding:
    """What a member with these numbers reports."""
    has = set(numbers)
    got = first - 1
    while got + 1 in has:
        got += 1
    return Holding(first, got, ranges(n for n in has if n > got), stable)


class Group(Wire):
    """Flushes whose owners hold numbers, supply them when told to, and never block for long."""

    def __init__(self, n: int) -> None:
        super().__init__(n, lambda node: Flush(node, SETTINGS))
        self.held: dict[int, set[int]] = {node: set() for node in self.ids}
        self.stable_at = dict.fromkeys(self.ids, 0)
        self.cuts: dict[int, Cut] = {}
        self.ends: dict[int, list[tuple[tuple[int, ...], int]]] = {node: [] for node in self.ids}
        self.supplying = True
        self.answer = self.as_owner

    def as_owner(self, node: int, env: Env, word: Any) -> None:
        part = self.parts[node]
        match word:
            case Block():
                self.cuts.pop(node, None)
                part.call(env, part.machine.report, holding(self.held[node], self.stable_at[node]))
            case Supply(cut):
                self.cuts[node] = cut
                for order in cut.orders if self.supplying else ():
                    for number in range(order.low, order.high + 1):
                        part.call(env, part.machine.post, order.to, Item(number))
                self.check(node, env)
            case Arrived(payload=Item(number)):
                self.held[node].add(number)
                self.check(node, env)
            case Flushed():
                self.ends[node].append((word.together, word.cut.cut if word.cut else 0))
                self.held[node] = set()
                part.call(env, part.machine.settle)

    def check(self, node: int, env: Env) -> None:
        cut = self.cuts.get(node)
        if cut is not None and set(range(1, cut.cut + 1)) <= self.held[node]:
            self.parts[node].call(env, self.parts[node].machine.reached)

    def together(self) -> Group:
        self.start()
        self.pass_us(10_000)
        assert {self[node].membership.view.members for node in self.ids} == {self.ids}
        return self

    def propose(self, node: int) -> None:
        flush = self[node]
        self.call(node, lambda env: flush.group.call(env, flush.membership.propose))

    def hold(self, **numbers: Iterable[int]) -> None:
        for name, has in numbers.items():
            self.held[int(name[1:])] = set(has)


def test_fl_3_who_lacks_something_gets_it_and_all_end_with_the_same_number() -> None:
    group = Group(3).together()
    group.hold(p2=(1, 2, 3), p3=(1, 3, 4))
    group.crash(1)
    group.pass_us(100_000)
    assert group.ends[2][-1] == group.ends[3][-1] == ((2, 3), 4)


def test_fl_2_what_lies_beyond_a_hole_that_nobody_can_fill_is_lost() -> None:
    group = Group(3).together()
    group.hold(p1=(1, 2, 3, 4), p2=(1, 2, 4), p3=(1,))
    group.crash(1)
    group.pass_us(100_000)
    assert group.ends[2][-1] == group.ends[3][-1] == ((2, 3), 2)


def test_fl_1_nobody_who_goes_on_is_left_unasked() -> None:
    group = Group(3).together()
    before = [len(words(group.said[node], Block)) for node in group.ids]
    group.crash(3)
    group.pass_us(100_000)
    after = [len(words(group.said[node], Block)) for node in group.ids]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 0]


def test_g_8_the_view_waits_until_all_are_of_one_mind() -> None:
    group = Group(3).together()
    group.supplying = False
    group.hold(p1=(1, 2), p2=(1, 2), p3=(1,))
    group.propose(1)
    group.run()
    assert [group[node].phase for node in group.ids] == [Phase.FILLING] * 3
    assert [len(ends) for ends in group.ends.values()] == [2, 2, 2]
    group.call(1, group[1].post, 3, Item(2))
    group.run()
    assert [ends[-1] for ends in group.ends.values()] == [((1, 2, 3), 2)] * 3


def test_fl_3_there_is_one_cut_in_an_attempt() -> None:
    group = Group(3).together()
    group.supplying = False
    group.hold(p1=(1, 2), p2=(1, 2), p3=(1,))
    group.propose(1)
    group.run()
    first = group.cuts[2]
    group.call(1, group[1].post, 2, msgspec.structs.replace(first, cut=9))
    assert "a cut for another proposal, or a second one" in drops(group.step())
    assert group.cuts[2] == first


def test_fl_4_a_survivor_that_fails_meanwhile_is_left_out_of_the_next_attempt() -> None:
    group = Group(4).together()
    group.supplying = False
    group.hold(p2=(1, 2, 3), p3=(1, 2), p4=(1,))
    group.crash(1)
    group.pass_us(45_000)
    assert group[2].phase is Phase.FILLING
    group.crash(2)
    group.supplying = True
    group.pass_us(100_000)
    assert group.ends[3][-1] == group.ends[4][-1] == ((3, 4), 2)


def test_fl_5_what_an_earlier_attempt_found_out_does_not_count() -> None:
    group = Group(3).together()
    group.supplying = False
    group.hold(p1=(1, 2), p2=(1,), p3=(1,))
    group.propose(1)
    group.run()
    old = group.cuts[2]
    group.call(2, group[2].post, 1, Report(old.id, holding((1, 2, 3))))
    group.receive(1, 3, Leave(group[1].membership.view.id))
    assert drops(group.step()) == ["a report for another proposal"]
    group.crash(3)
    group.supplying = True
    group.pass_us(100_000)
    assert group.ends[1][-1] == group.ends[2][-1] == ((1, 2), 2)


def test_fl_2_a_report_of_one_that_is_not_asked_does_not_count() -> None:
    """A number may come twice when stable storage was lost, for other members."""
    group = Group(3)
    group.cut = {(3, 1), (3, 2), (1, 3), (2, 3)}
    group.start()
    group.pass_us(60_000)
    group.supplying = False
    group.hold(p1=(1, 2), p2=(1,))
    group.propose(1)
    group.cut.clear()
    proposed = group[1].membership.proposal.view
    assert proposed.members == (1, 2)
    group.frames.clear()
    group.call(3, group[3].post, 1, Report(proposed.id, holding((1, 2, 3))))
    assert drops(group.step()) == ["a report for another proposal"]


def test_tl_22_each_of_the_views_that_go_together_has_its_own_end() -> None:
    group = Group(4)
    sides = ((1, 2), (3, 4))
    group.cut = {
        (a, b) for a in group.ids for b in group.ids for side in sides if (a in side) != (b in side)
    }
    group.start()
    group.pass_us(60_000)
    group.hold(p1=(1, 2, 3), p2=(1,), p3=(1,), p4=(1, 2))
    group.cut = set()
    group.pass_us(100_000)
    assert group.ends[1][-1] == group.ends[2][-1] == ((1, 2), 3)
    assert group.ends[3][-1] == group.ends[4][-1] == ((3, 4), 2)


def test_a_cut_of_one_that_did_not_propose_is_dropped() -> None:
    group = Group(3).together()
    forged = Cut(ViewId(100, 1), 1, 5, 0, ())
    reason = "a cut for another proposal, or a second one"
    assert drops(group.receive(2, 3, Packet(90, 1, 1, forged))) == [reason]
    assert Timer.CHANGE not in group.timers[2]


# --- the calculation --------------------------------------------------------------------------

members = st.dictionaries(st.integers(1, 5), st.sets(st.integers(1, 12)), min_size=1, max_size=4)


def test_fl_2_with_no_first_number_known_there_is_nothing_to_end() -> None:
    group = {1: Holding(0, 0, ((5, 6),), 0), 2: Holding(0, 0, (), 0)}
    assert cut_of(group) == (0, 0, 0)
    assert orders_of(group, 0, 0) == {1: (), 2: ()}


def test_fl_2_one_who_does_not_know_the_first_number_lacks_all_from_there_on() -> None:
    group = {1: Holding(57, 58, (), 56), 2: Holding(0, 0, ((58, 58),), 0)}
    assert cut_of(group) == (57, 58, 56)
    ((order,),) = [found for found in orders_of(group, 57, 58).values() if found]
    assert (order.to, order.low, order.high) == (2, 57, 57)


@given(members)
def test_fl_2_the_cut_is_the_longest_beginning_that_somebody_holds(
    held: dict[int, set[int]],
) -> None:
    group = {node: holding(numbers) for node, numbers in held.items()}
    union = set().union(*held.values())
    expected = 0
    while expected + 1 in union:
        expected += 1
    assert cut_of(group) == (1, expected, 0)


@given(members)
def test_fl_3_orders_give_each_what_it_lacks_once_from_one_that_holds_it(
    held: dict[int, set[int]],
) -> None:
    group = {node: holding(numbers) for node, numbers in held.items()}
    first, cut, _ = cut_of(group)
    got: list[tuple[int, int]] = []
    for holder, orders in orders_of(group, first, cut).items():
        for order in orders:
            for number in range(order.low, order.high + 1):
                assert number in held[holder]
                got.append((order.to, number))
    lacking = [(n, k) for n, has in held.items() for k in range(1, cut + 1) if k not in has]
    assert sorted(got) == sorted(lacking)


def test_fl_3_a_holder_gets_no_more_orders_than_its_cut_can_tell() -> None:
    """Two members lack every other number: 8,192 pieces of two, where 4,096 fit."""
    whole, holes = set(range(1, 8193)), set(range(2, 8193, 2))
    group = {1: holding(whole), 2: holding(holes), 3: holding(holes)}
    orders = orders_of(group, 1, 8192)
    assert orders.keys() == {1, 2, 3} and not orders[2] and not orders[3]
    cut = Cut(ViewId(100, 1), 1, 8192, 0, orders[1])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(cut), type=Cut) == cut
    for member in (2, 3):
        sent = {k for o in orders[1] if o.to == member for k in range(o.low, o.high + 1)}
        assert sent | holes == whole


def test_fl_2_what_is_stable_is_held_by_all_even_if_nobody_keeps_it() -> None:
    group = {1: holding((), stable=7), 2: holding((), stable=4)}
    group = {node: msgspec.structs.replace(h, got=8) for node, h in group.items()}
    assert cut_of(group) == (1, 8, 7)
    assert orders_of(group, 1, 8) == {1: (), 2: ()}


def test_fl_4_only_who_has_not_reported_is_given_up() -> None:
    """Nobody can agree before the last report, so the others are not late."""
    group = Group(4).together()
    group.hold(p1=(1,), p2=(1, 2), p4=(1, 2))
    group.cut.add((3, 1))
    group.propose(1)
    group.pass_us(1_000)
    group.timers[1][Timer.CHANGE] = group.now_us
    group.fire(1, Timer.CHANGE)
    group.pass_us(10_000)
    assert group.ends[1][-1] == group.ends[2][-1] == ((1, 2, 4), 2)


def test_fl_4_a_report_starts_the_wait_anew() -> None:
    group = Group(3).together()
    group.cut.add((3, 1))
    group.propose(1)
    group.now_us += 5_000
    group.run()
    assert group.timers[1][Timer.CHANGE] == group.now_us + SETTINGS.change_us
