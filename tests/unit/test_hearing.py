"""Who hears whom: groups that all hear each other, bars for bad links, and their mending."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.core.ids import NodeId, ViewId
from ringcast.protocols.totem_single.hearing import Ears, Pair, broken, groups
from ringcast.protocols.totem_single.messages import Announce, Hearing, Join

nodes = st.integers(1, 8).map(lambda n: tuple(range(1, n + 1)))


@st.composite
def networks(draw: st.DrawFn) -> tuple[tuple[NodeId, ...], dict[NodeId, frozenset[NodeId]]]:
    """Processors, and whom each hears."""
    ids = draw(nodes)
    pairs = [(a, b) for a in ids for b in ids if a != b]
    cut = draw(st.sets(st.sampled_from(pairs), max_size=12)) if pairs else set()
    return ids, rows_without(ids, cut)


def rows_without(ids: Iterable[NodeId], cut: Iterable[Pair]) -> dict[NodeId, frozenset[NodeId]]:
    ids, cut = tuple(ids), set(cut)
    return {a: frozenset(b for b in ids if b != a and (a, b) not in cut) for a in ids}


@given(networks())
def test_groups_part_the_processors_into_mutual_hearers(
    network: tuple[tuple[NodeId, ...], dict[NodeId, frozenset[NodeId]]],
) -> None:
    ids, rows = network
    parts = groups(ids, rows)
    assert sorted(node for part in parts for node in part) == list(ids)
    for part in parts:
        assert not any(broken(a, b, rows) for a, b in combinations(part, 2))


@given(networks())
def test_no_group_can_be_enlarged_by_those_left(
    network: tuple[tuple[NodeId, ...], dict[NodeId, frozenset[NodeId]]],
) -> None:
    ids, rows = network
    left = set(ids)
    for part in groups(ids, rows):
        left -= set(part)
        for other in left:
            assert any(broken(other, member, rows) for member in part)


@given(networks(), st.randoms(use_true_random=False))
def test_groups_do_not_depend_on_the_order_of_anything(
    network: tuple[tuple[NodeId, ...], dict[NodeId, frozenset[NodeId]]], rng: Random
) -> None:
    ids, rows = network
    shuffled, keys = list(ids), list(rows)
    rng.shuffle(shuffled)
    rng.shuffle(keys)
    assert groups(shuffled, {key: rows[key] for key in keys}) == groups(ids, rows)


@pytest.mark.parametrize("n", range(3, 11))
def test_one_bad_link_costs_one_member(n: int) -> None:
    ids = tuple(range(1, n + 1))
    for cut in permutations(ids, 2):
        parts = groups(ids, rows_without(ids, [cut]))
        assert sorted(map(len, parts)) == [1, n - 1]
        assert set(parts[-1]) <= set(cut)


def test_a_processor_without_a_row_hears_nobody() -> None:
    assert groups((1, 2, 3), {1: frozenset({2, 3}), 2: frozenset({1, 3})}) == [(1, 2), (3,)]


# --- ears -----------------------------------------------------------------------------------


def row(node: NodeId, hears: Iterable[NodeId], count: int = 1, ring_seq: int = 8) -> Hearing:
    return Hearing(node, ring_seq, count, tuple(sorted(hears)))


def join(
    sender: NodeId, proc: Iterable[NodeId], *rows: Hearing, fail: tuple[int, ...] = ()
) -> Join:
    return Join(sender, 8, tuple(sorted(proc)), fail, 0, 50, rows)


def barring() -> Ears:
    """Processor 1 of ring {1, 2}: 3 is kept out because 2 does not hear it."""
    ears = Ears(1)
    ears.hear(2)
    ears.hear(3)
    ears.learn(join(2, (1, 2, 3), row(2, (1,)), row(3, (1, 2))), (1, 2))
    ears.settle((1, 2), (3,))
    return ears


def test_newer_rows_replace_older_ones() -> None:
    ears = Ears(1)
    ears.learn(join(2, (1, 2, 3), row(3, (2,), count=2)), (1,))
    ears.learn(join(2, (1, 2, 3), row(3, (1, 2), count=1)), (1,))
    assert ears.rows()[3] == {2}
    ears.learn(join(2, (1, 2, 3), row(3, (1,), count=1, ring_seq=12)), (1,))
    assert ears.rows()[3] == {1}  # after a restart the ring number is larger


def test_my_own_row_is_mine_alone() -> None:
    ears = Ears(1)
    ears.learn(join(2, (1, 2), row(1, (9,), count=99)), (1,))
    assert ears.rows()[1] == frozenset()
    ears.hear(2)
    assert ears.report(8)[0] == row(1, (2,))
    assert ears.report(8)[0].count == 2


def test_what_was_not_heard_for_two_turns_is_not_heard() -> None:
    ears = Ears(1)
    ears.hear(2)
    ears.turn()
    assert [*ears.lately] == [2]
    ears.turn()
    assert ears.lately == ()


def test_leaving_a_ring_forgets_its_members_but_not_outsiders() -> None:
    ears = Ears(1)
    for node in (2, 3):
        ears.hear(node)
    ears.forget((1, 2))
    assert ears.lately == (3,)


def test_who_is_alive_behind_a_bad_link_is_barred_with_the_reason() -> None:
    ears = barring()
    assert ears.barred_ids() == (3,)
    assert ears.barred(3) == "2 does not hear 3"
    assert ears.apart == ((2, 3),)
    assert ears.barred(4) is None


def test_the_dead_are_not_barred() -> None:
    ears = Ears(1)
    ears.hear(2)
    ears.learn(join(2, (1, 2, 3), row(2, (1,))), (1, 2))
    ears.settle((1, 2), (3,))
    assert ears.barred_ids() == ()


def test_hearing_it_directly_mends_my_own_link() -> None:
    ears = Ears(1)
    ears.hear(2)
    ears.learn(join(2, (1, 2, 3), row(2, (1, 3)), row(3, (1, 2))), (1, 2))
    ears.settle((1, 2), (3,))
    assert ears.barred(3) == "1 does not hear 3"
    ears.hear(3)
    assert ears.barred(3) is None


def test_a_newer_row_mends_a_link_between_others() -> None:
    ears = barring()
    ears.learn(join(2, (1, 2), row(2, (1, 3), count=2)), (1, 2))
    assert ears.barred_ids() == ()


def test_an_announce_that_names_whom_it_heard_mends() -> None:
    ears = barring()
    ears.heed(Announce(ViewId(12, 1), 2, (1, 2), heard=(3,)), (1, 2))
    assert ears.barred_ids() == ()


def test_a_bad_link_of_mine_that_the_other_ring_knows_counts_here_too() -> None:
    ears = Ears(1)
    ears.hear(3)
    other = Announce(ViewId(12, 3), 3, (3, 4), apart=((4, 1),))
    ears.heed(other, (1, 2))
    assert ears.barred_ids() == (3, 4)
    mine = Announce(ViewId(12, 3), 3, (3, 4), apart=((1, 3),))
    fresh = Ears(1)
    fresh.hear(3)
    fresh.heed(mine, (1, 2))
    assert fresh.barred_ids() == ()  # I hear 3, whatever it believes


def test_a_member_that_comes_back_is_barred_no_longer() -> None:
    ears = barring()
    ears.settle((1, 2, 3), ())
    assert ears.barred_ids() == () and ears.apart == ()


def test_whoever_parts_from_the_bad_link_is_let_in() -> None:
    """3 and 4 were barred for a link of 4; 3 is now without 4."""
    ears = Ears(1)
    for node in (2, 3, 4):
        ears.hear(node)
    everybody = (1, 2, 3, 4)
    rows = (row(2, (1, 3)), row(3, (1, 2, 4)), row(4, (1, 2, 3)))
    ears.learn(join(2, everybody, *rows), (1, 2))
    ears.settle((1, 2), (3, 4))
    assert ears.barred_ids() == (3, 4)
    ears.heed(Announce(ViewId(16, 3), 3, (3,)), (1, 2))
    assert ears.barred_ids() == (4,)
