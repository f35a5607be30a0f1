"""A stretch leaves the checks as the events it stands for would have."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.checks import Share, Stretch, Suite, suite
from ringcast.checks.suite import COMMON
from ringcast.core.ids import ViewId
from ringcast.core.seqset import SeqSet
from ringcast.core.trace import Delivered, Originated, Submit, TraceEvent
from ringcast.traces.text import parse

RING = ViewId(8, 1)
ALL = (1, 2, 3)


def stretch_of(events: list[TraceEvent], spare: bool = False) -> tuple[list[Submit], Stretch]:
    """What is shown of these frames: submissions of heads, and the stretch."""
    origin = {e.seq: e for e in events if isinstance(e, Originated)}
    heads = {} if spare else {e.node: e for e in reversed(origin.values())}
    places = {e.seq for e in heads.values()}
    shares = []
    for sender in heads:
        rest = [e for e in origin.values() if e.node == sender and e.seq not in places]
        if rest:
            last = rest[-1].first + len(rest[-1].digests) - 1
            shares.append(Share(sender, len(rest), rest[0].first, last, rest[-1].seq))
    shown = tuple(e for e in events if isinstance(e, Originated | Delivered) and e.seq in places)
    needed = {(e.node, e.first) for e in heads.values()}
    submits = [e for e in events if isinstance(e, Submit) and (e.node, e.first) in needed]
    frames = len(origin) - len(places)
    return submits, Stretch(RING, frames, max(origin), shown, tuple(shares))


def answer(checks: Suite) -> tuple[object, object]:
    """Verdicts and culprits. A cycle (D12-graph) is shorter without what is left out of it."""
    found = {
        (v.property, v.nodes, () if v.property == "D12-graph" else v.messages, v.t_us)
        for v in checks.violations
    }
    return checks.verdicts(), found


def both(
    before: str, alike: str, after: str, *claims: str, spare: bool = False
) -> tuple[Suite, Suite]:
    """The suite fed with everything, and the one fed with a stretch for ``alike``."""
    texts = (before, f"{before}\n{alike}", f"{before}\n{alike}\n{after}")
    start, middle, _ = cuts = [len(list(parse(text))) for text in texts]
    events = list(parse(texts[-1]))
    assert cuts[-1] == len(events)
    exact, condensed = suite(claims or COMMON), suite(claims or COMMON)
    for event in events:
        exact.feed(event)
    submits, stretch = stretch_of(events[start:middle], spare)
    for event in (*events[:start], *submits):
        condensed.feed(event)
    condensed.feed_stretch(stretch)
    for event in events[middle:]:
        condensed.feed(event)
    return exact, condensed


def alike(first: int, last: int, rng: Random) -> str:
    """Frames that all deliver, numbers passed over now and then."""
    lines = []
    for seq in range(first, last + 1):
        if rng.random() < 0.9:
            words = f"o{seq}{rng.choice(('', 's'))}x{rng.randint(1, 3)}"
            lines.append(f"p{rng.choice(ALL)}: {words}")
            lines += [f"p{p}: d{seq}" for p in ALL]
    return "\n".join(lines)


BEFORE = "ring(8,1){1,2,3}\np1: o1 d1\np2: o2s d1 d2\np1: d2\np3: d1 d2"
AFTER = [
    "p2: o50 d50",
    "p1: d50",
    "p3: d50",
    "p2: o51s d51",
    "p3: d51~",
    "p1: d51/(4,1)",
    "p3: o52#5",
    "p3: d52",
    "p2: sub2",
    "p1: tr(10,1){1,2} d50",
    "p2: tr(10,1){1,2}",
    "p1: reg(12,1){1,2}",
    "p2: reg(12,1){1,2} o1 d1",
    "p3: down up reg(16,3){3} o1 d1",
    "p3: d2@(8,1)",
    "end{1,2,3}",
    "end",
]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 99), st.booleans(), st.lists(st.sampled_from(AFTER), max_size=8))
def test_whatever_follows_is_judged_alike(seed: int, hole: bool, after: list[str]) -> None:
    before = BEFORE + ("\np1: o3 d3\np2: d3" if hole else "")  # 3 never delivers it
    exact, condensed = both(before, alike(4, 25, Random(seed)), "\n".join(after))
    assert answer(condensed) == answer(exact)


@pytest.mark.parametrize("hole", [False, True])
@pytest.mark.parametrize("after", AFTER)
def test_what_follows_directly(after: str, hole: bool) -> None:
    before = BEFORE + ("\np1: o3 d3\np2: d3" if hole else "")
    text = alike(4, 40, Random(1))
    exact, condensed = both(before, text, f"{after}\nend{{1,2,3}}" if "end" not in after else after)
    assert answer(condensed) == answer(exact)
    assert len(condensed.history.rings.get(RING, condensed.history.ring).frames) < 12


def test_a_place_that_a_stretch_passed_over_is_no_repetition() -> None:
    """By all but the graph. Whoever makes stretches leaves out a frame that occurs elsewhere, so a
    place that is not known is new (``condense.stitch``)."""
    claims = [tag for tag in COMMON if tag != "D12-graph"]
    text = alike(3, 40, Random(1))
    place = next(seq for seq in range(3, 41) if f"o{seq}" not in text)
    after = f"p1: o{place} d{place}\nend{{1,2,3}}"
    exact, condensed = both(BEFORE, text, after, *claims)
    assert answer(condensed) == answer(exact)
    assert exact.violations and "D2" not in {v.property for v in exact.violations}


def test_without_senders_the_order_is_still_judged() -> None:
    after = "p1: o50 o51 d50 d51\np2: d51 d50\nend"
    exact, condensed = both(BEFORE, alike(3, 40, Random(1)), after, "total-order", spare=True)
    assert answer(condensed) == answer(exact)
    assert [v.property for v in condensed.violations] == ["total-order"]


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_first_difference(one: set[int], other: set[int]) -> None:
    sets = []
    for numbers in (one, other):
        sets.append(SeqSet())
        for number in numbers:
            sets[-1].add(number)
    assert sets[0].first_difference(sets[1]) == min(one ^ other, default=None)
