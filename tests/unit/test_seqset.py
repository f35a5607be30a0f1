"""SeqSet against a plain set."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.core.seqset import SeqSet

numbers = st.integers(0, 60)
operations = st.lists(
    st.one_of(numbers, st.tuples(numbers, numbers)), max_size=40
)  # a number to add, or a range


def both(steps: list[int | tuple[int, int]]) -> tuple[SeqSet, set[int]]:
    """The same steps carried out on the interval set and on a plain one."""
    ours, plain = SeqSet(), set[int]()
    for step in steps:
        if isinstance(step, int):
            assert ours.add(step) is (step not in plain)
            plain.add(step)
        else:
            ours.add_range(*step)
            plain.update(range(step[0], step[1] + 1))
    return ours, plain


@given(operations)
def test_contents_are_those_of_a_set(steps: list[int | tuple[int, int]]) -> None:
    ours, plain = both(steps)
    assert list(ours) == sorted(plain)
    assert len(ours) == len(plain)
    assert all((n in ours) is (n in plain) for n in range(64))


@given(operations)
def test_intervals_are_sorted_disjoint_and_not_adjacent(steps: list[int | tuple[int, int]]) -> None:
    ours, _ = both(steps)
    intervals = list(ours.intervals())
    assert all(low <= high for low, high in intervals)
    assert all(a[1] + 1 < b[0] for a, b in itertools.pairwise(intervals))


@given(operations, numbers)
def test_all_up_to_is_the_end_of_the_run(steps: list[int | tuple[int, int]], base: int) -> None:
    ours, plain = both(steps)
    expected = base
    while expected + 1 in plain:
        expected += 1
    assert ours.all_up_to(base) == expected


@given(operations, numbers, numbers, st.integers(0, 20))
def test_missing_lists_the_lowest_holes(
    steps: list[int | tuple[int, int]], low: int, high: int, limit: int
) -> None:
    ours, plain = both(steps)
    holes = [n for n in range(low, high + 1) if n not in plain]
    assert ours.missing(low, high, limit) == holes[:limit]


def test_holes_cost_intervals_not_numbers() -> None:
    ours = SeqSet()
    ours.add_range(1, 10**12)
    for n in range(1500):
        ours.add(10**12 + 2 + 2 * n)
    assert len(list(ours.intervals())) == 1501
    assert ours.missing(1, 10**13, 3) == [10**12 + 1, 10**12 + 3, 10**12 + 5]


@pytest.mark.parametrize("number", [0, 1, 2**62])
def test_a_number_is_added_once(number: int) -> None:
    ours = SeqSet()
    assert ours.add(number)
    assert not ours.add(number)
    assert list(ours) == [number]
