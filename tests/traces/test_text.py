"""The text language of traces."""

from __future__ import annotations

import pytest

from ringcast.core.ids import Level, ViewId
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Installed,
    Noted,
    Originated,
    Restarted,
    Submit,
)
from ringcast.traces.text import parse


def test_a_note_has_numbers_whose_names_are_for_readers() -> None:
    *_, note = parse("p1: some(7,b=1,c=-3)")
    assert note == Noted(1, 2, 2, "story", "some", data=(7, 1, -3))
    with pytest.raises(ValueError, match="'some\\(x\\)' is no word"):
        list(parse("p1: some(x)"))


def test_a_small_story() -> None:
    ring = ViewId(4, 1)
    assert list(parse("p1: reg(4,1){1} o1sx2 d1  # all of it\n\nend{1}")) == [
        Restarted(1, 1, 1, 1),
        Installed(1, 2, 2, ring, (1,), False, ring, 0, None, None),
        Submit(1, 3, 3, 1, 1, Level.SAFE, (8, 8), (1010001, 1010002)),
        Originated(1, 4, 4, ring, 1, Level.SAFE, 1, (1010001, 1010002), 1),
        Delivered(1, 5, 5, ring, ring, 1, 1, Level.SAFE, 1, (1010001, 1010002)),
        Ended(6, (1,)),
    ]


def test_a_formation() -> None:
    events = list(parse("ring(8,1){1,2}"))
    confs = [(e.node, str(e.view), e.members) for e in events if isinstance(e, Installed)]
    assert confs == [
        (1, "(4,1)", (1,)),
        (2, "(4,2)", (2,)),
        (1, "(6,1)", (1,)),
        (1, "(8,1)", (1, 2)),
        (2, "(6,2)", (2,)),
        (2, "(8,1)", (1, 2)),
    ]
    assert [e.node for e in events if isinstance(e, Noted) and e.what == "commit"] == [1, 2]


def test_a_restart_counts_messages_anew() -> None:
    events = list(parse("p1: reg(4,1){1} o1-3 down up! reg(8,1){1} o1"))
    assert [e.first for e in events if isinstance(e, Originated)] == [1, 2, 3, 1]
    assert [e for e in events if isinstance(e, Crashed)] != []
    last = [e for e in events if isinstance(e, Restarted)][-1]
    assert (last.incarnation, last.storage_kept) == (2, False)


def test_contents_are_those_of_the_number_unless_it_says_otherwise() -> None:
    events = list(parse("p1: reg(4,1){1} sub3 o1 o2x2=1 down up reg(8,1){1} o1"))
    (submitted, again) = [e.digests for e in events if isinstance(e, Submit)]
    first, second, third = [e.digests for e in events if isinstance(e, Originated)]
    assert len(set(submitted)) == 3
    assert (first, second) == (submitted[:1], submitted[:2])
    assert third == again
    assert third != first  # another incarnation, another message


def test_a_number_can_be_given_to_anothers_message() -> None:
    events = list(parse("ring(8,1){1,2}\np1: o1<2 d1"))
    (numbered,) = [e for e in events if isinstance(e, Originated)]
    (submitted,) = [e for e in events if isinstance(e, Submit)]
    (delivered,) = [e for e in events if isinstance(e, Delivered)]
    assert (numbered.node, numbered.owner, submitted.node, delivered.sender) == (1, 2, 2, 2)


def test_time_passes() -> None:
    first, second = parse("p1: +500 reg(4,1){1}")
    assert (first.t_us, second.t_us) == (1, 502)


@pytest.mark.parametrize(
    ("story", "message"),
    [
        ("p1: jump", "line 1: 'jump' is no word"),
        ("\nreg(4,1){1}", "line 2: .* does not begin with a processor"),
        ("p0: down", "does not begin with a processor"),
        ("p1: o1", "originates before it is in a ring"),
        ("p1: d1", "delivers before it is in a ring"),
        ("p1: reg(4,1){1} o1<2", "processor 2 has not been named"),
    ],
)
def test_nonsense_names_its_line(story: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(parse(story))
