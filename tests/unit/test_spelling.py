"""Places as people read and write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.journal.format.layout import GAP_INDEX, LAST_INDEX, Place
from ringcast.journal.spelling import parse

NUMBERS = st.integers(0, 10**18 - 1)
INDICES = st.integers(GAP_INDEX, LAST_INDEX) | st.sampled_from([GAP_INDEX, LAST_INDEX])


@given(st.builds(Place, NUMBERS, NUMBERS, NUMBERS, INDICES))
def test_what_is_written_is_read(place: Place) -> None:
    assert parse(str(place)) == place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("(8,1):23.0", Place(8, 1, 23, 0)),
        ("8,1:23.7", Place(8, 1, 23, 7)),
        (" (8,1):23 ", Place(8, 1, 23, 0)),
        ("(4,1):0.end", Place(4, 1, 0, LAST_INDEX)),
        ("(4,1):0.2147483647", Place(4, 1, 0, LAST_INDEX)),
        ("(4,1):0.gap", Place(4, 1, 0, GAP_INDEX)),
        ("(4,1):0.2147483648", None),
        ("(4,1):0.-1", None),
        ("(4,1):0.last", None),
        ("(4,1)", None),
        (f"({10**18},1):0", None),
        ("earliest", None),
        ("", None),
    ],
)
def test_other_spellings(text: str, place: Place | None) -> None:
    assert parse(text) == place


def test_indices_that_no_message_has_are_words() -> None:
    assert str(Place(4, 1, 0, LAST_INDEX)) == "(4,1):0.end"
    assert str(Place(8, 1, 23, 0)) == "(8,1):23.0"
