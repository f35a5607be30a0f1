"""Positions: one order, one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.core.effects import InstallView
from ringcast.core.ids import GAP_BRANCH, LAST_INDEX, LIMIT, START, Position, ViewId

NUMBERS = st.integers(0, LIMIT)
INDICES = st.integers(0, LAST_INDEX) | st.sampled_from([0, LAST_INDEX])
BRANCHES = st.integers(-2, 3) | NUMBERS
SEQS = st.just(-1) | NUMBERS
STAMPS = st.just(0) | NUMBERS
RING, A, B = ViewId(28, 2), ViewId(30, 1), ViewId(30, 2)


@given(st.builds(Position, STAMPS, NUMBERS, NUMBERS, SEQS, INDICES, BRANCHES))
def test_what_is_written_is_read(position: Position) -> None:
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("(8,1):23.0", Position.at(ViewId(8, 1), 23)),
        ("8,1:23.7", Position.at(ViewId(8, 1), 23, 7)),
        (" (8,1):23 ", Position.at(ViewId(8, 1), 23)),
        ("(4,1):0.end", Position.at(ViewId(4, 1), 0, LAST_INDEX)),
        ("(4,1):0.end.2", Position.at(ViewId(4, 1), 0).end(2)),
        ("(4,1):0.2147483647", Position.at(ViewId(4, 1), 0, LAST_INDEX)),
        ("(4,1):0.0.gap", Position.at(ViewId(4, 1), 0, 0, GAP_BRANCH)),
        ("(4,1):-1.0", Position.at(ViewId(4, 1), -1)),
        ("(4,1):0.0.-2", Position.at(ViewId(4, 1), 0, 0, GAP_BRANCH).before),
        ("77@(4,1):1.0", Position(77, 4, 1, 1, 0)),
    ],
)
def test_other_spellings(text: str, position: Position) -> None:
    assert Position.parse(text) == position


@pytest.mark.parametrize(
    "text",
    [
        "(4,1):0.2147483648",
        "(4,1):0.-1",
        "(4,1):-2.0",
        "(4,1):0.0.-3",
        "(4,1):0.0.-99",
        "(4,1):0.last",
        "(4,1)",
        f"({2**63},1):0",
        "latest",
        "",
    ],
)
def test_what_is_no_position_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no position: (write one such as|its numbers)"):
        Position.parse(text)


def test_the_order() -> None:
    """Rings first, then numbers, then indices; transitional views behind all messages of a number,
    those of members that parted there beside each other; a gap right before what follows it."""
    a, b = (InstallView(view, (view.rep,), True, RING, 2, view).position for view in (A, B))
    ascending = [
        START,
        Position.at(RING, -1),
        InstallView(RING, (1, 2), False, RING, 0, None).position,
        Position.at(RING, 1),
        Position.at(RING, 2, 0, GAP_BRANCH),
        Position.at(RING, 2),
        Position.at(RING, 2, 1),
        a.before,
        a,
        b,
        Position.at(RING, 3),
        Position.at(ViewId(32, 1), 0),
    ]
    assert ascending == sorted(ascending) and len(set(ascending)) == len(ascending)
    assert (str(a), str(b)) == ("(28,2):2.end.1", "(28,2):2.end.2")


def test_the_order_of_multiple_ring_fits() -> None:
    """(timestamp, ring, type, conf_id), the messages of one frame together (multiple-ring 1.3)."""
    regular = 1
    one = [Position(7, 8, 1, regular, index) for index in range(3)]
    other = [Position(7, 8, 2, regular, index) for index in range(3)]
    change = Position(7, 8, 2, 2, 0, branch=1)
    assert sorted([change, *other, *one]) == [*one, *other, change]
