"""A report tells what the trace says: numbers, pictures, faults, verdicts."""

from __future__ import annotations

import re

import msgspec
import pytest

from ringcast.checks import Verdict, Violation, suite
from ringcast.core.ids import Level
from ringcast.core.trace import Faulted, Installed, Noted, TraceEvent
from ringcast.pipeline.report import joined_parts
from ringcast.pipeline.report import write as report
from ringcast.pipeline.report.report_data import (
    BIN_US,
    MOST_BINS,
    LatencyHistogram,
    ReportData,
    Series,
)
from ringcast.traces.text import parse

TRACE = """
ring(8,1){1,2,3}
p1: sub2 +2000 o1 o2 +1000 d1 d2
p2: d1 d2 sub1s o3s +5000 d3
p3: d1 d2
p1: d3
p3: down
ring(12,1){1,2}
p1: sub1 +3000 o1 d1
p2: d1
end{1,2}
"""


def told(events: list[TraceEvent]) -> tuple[ReportData, dict[str, Verdict], list[Violation]]:
    story, checks = ReportData(), suite(["M1", "D1", "D9"])
    for event in events:
        story.feed(event)
        checks.feed(event)
    return story, checks.verdicts(), checks.violations


def with_fault() -> list[TraceEvent]:
    events = list(parse(TRACE))
    at = next(i for i, event in enumerate(events) if type(event).__name__ == "Crashed")
    events.insert(at, Faulted(3, 1, events[at].t_us, "crash", "member 3 <is killed>"))
    return events


def test_the_numbers_are_those_of_the_trace() -> None:
    story, _, _ = told(with_fault())
    found = report.numbers(story)
    assert (found.members, found.messages, found.deliveries) == (3, 4, 10)
    assert found.configurations == 3 + 6 + 4
    assert story.latency[Level.SAFE].count == 1
    assert story.latency[Level.AGREED].count == 3
    assert found.latency_ms["safe"]["p50"] == pytest.approx(5, rel=0.13)
    assert found.latency_ms["agreed"]["p50"] == pytest.approx(3, rel=0.13)
    (mark,) = story.marks
    assert mark.settled_us is not None
    assert mark.silence_us > 3000
    stays = [stay for stay in story.stays if stay.node == 3]
    assert len(stays) == 3
    assert stays[-1].members == (1, 2, 3)


def test_a_silence_that_the_next_fault_ends_counts_for_the_one_that_began_it() -> None:
    events = list(parse(TRACE))
    last = max(i for i, event in enumerate(events) if type(event).__name__ == "Delivered")
    from_us = events[last - 1].t_us  # nobody delivers between these two
    marks = [Faulted(0, 1, from_us, "partition", "parted"), Faulted(0, 2, 0, "heal", "whole")]
    marks[1] = msgspec.structs.replace(marks[1], t_us=from_us + 2_000_000)
    late = [
        msgspec.structs.replace(event, t_us=event.t_us + 2_100_000)
        for event in events[last:]
        if hasattr(event, "node")
    ]
    story, _, _ = told([*events[:last], *marks, *late])
    parted, whole = story.marks
    assert parted.silence_us == 2_000_000 and whole.silence_us < 1_000_000


def test_the_page_needs_nothing_else_and_shows_everything() -> None:
    story, verdicts, violations = told(with_fault())
    page = report.page("A <title>", "about it", story, verdicts, violations)
    assert page.count("<svg") == 3
    assert "A &lt;title&gt;" in page
    assert "member 3 &lt;is killed&gt;" in page
    assert "3 of 3 properties hold" in page
    assert not re.search(r'(src|href)="(?!#)', page), "the page loads something"
    assert report.fine(verdicts, violations)


def test_a_violation_and_an_unknown_are_not_fine() -> None:
    story, verdicts, _ = told(with_fault())
    broken = Violation("D1", "it & that", (1,), (), 5)
    assert not report.fine(verdicts, [broken])
    assert not report.fine({**verdicts, "D2": Verdict.UNKNOWN}, [])
    assert not report.fine({}, [])
    page = report.page("t", "s", story, {**verdicts, "D1": Verdict.INVALID}, [broken])
    assert "it &amp; that" in page
    assert "2 of 3 properties hold: look below" in page


@pytest.mark.parametrize(("what", "shown"), [("topology", True), ("decide", False)])
def test_only_a_topology_says_what_a_view_consists_of(what: str, shown: bool) -> None:
    """A member of iRBP notes a decision before it installs some views: that is no topology."""
    events = list(parse(TRACE))
    at, view = next((i, e) for i, e in enumerate(events) if isinstance(e, Installed) and e.seq == 0)
    events.insert(at, Noted(view.node, view.n, view.t_us, "", what, "ring (8,1)", view.view))
    story, verdicts, _ = told(events)
    assert any(stay.parts for stay in story.stays) == shown
    assert ("Configurations over time" in report.page("t", "s", story, verdicts, [])) == shown


def test_rings_and_gateways_are_drawn() -> None:
    """Two gateways between neighbours of a row stand beside each other; a cycle is a round."""
    row = joined_parts.picture("ring (8,1): 1 6 7; ring (8,3): 3 6 7 8; ring (12,4): 4 5 8")
    assert row.count("<circle") == 3 and row.count("<rect") == 3 and row.count("<line") == 6
    assert ">4 5<" in row and ">ring (8,3)<" in row
    assert len(set(re.findall(r'<rect x="(\d+)"', row))) == 2
    assert len(set(re.findall(r'<circle cx="\d+" cy="(\d+)"', row))) == 1
    cycle = joined_parts.picture("a & b: 1 5 6; c: 2 6 7; d: 3 5 7")
    assert len(set(re.findall(r'<circle cx="\d+" cy="(\d+)"', cycle))) == 2
    assert ">a &amp; b<" in cycle


@pytest.mark.parametrize(
    "text", ["ring (8,1)", "a: 1 2; b: 3", "; ".join(f"{n}: 1" for n in "abcdefghijklmnopq")]
)
def test_what_is_not_joined_or_too_much_is_not_drawn(text: str) -> None:
    assert joined_parts.picture(text) == ""


def test_a_trace_without_anything_still_makes_a_page() -> None:
    story = ReportData()
    for event in parse("p1: +5\nend"):
        story.feed(event)
    page = report.page("t", "s", story, {}, [])
    assert "0 of 0" in page
    assert "<svg" not in page


def test_a_long_trace_is_counted_in_wider_bins() -> None:
    series = Series()
    for second in range(1000):
        series.add(second * 1_000_000, 2)
    assert len(series.counts) <= MOST_BINS
    assert series.width_us > BIN_US
    assert sum(series.counts) == 2000


def test_quantiles_are_right_to_a_class() -> None:
    latency = LatencyHistogram()
    for us in range(1, 10_001):
        latency.add(us, 1)
    assert latency.quantile(0.5) == pytest.approx(5000, rel=0.13)
    assert latency.quantile(0.99) == pytest.approx(9900, rel=0.13)


@pytest.mark.parametrize(
    ("ms", "told"), [(0.534, "0.534 ms"), (99.94, "99.9 ms"), (4221.7, "4,222 ms")]
)
def test_times_are_told_without_exponents(ms: float, told: str) -> None:
    assert report.plain_ms(ms) == told
