"""A report of one trace: a page that needs nothing else, and the numbers it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import msgspec

from ringcast.checks import PROPERTIES, Verdict, Violation
from ringcast.core.ids import Level, ViewId
from ringcast.pipeline.report import joined_parts, pictures
from ringcast.pipeline.report.page import badge, document, section, table
from ringcast.pipeline.report.report_data import ReportData, ReportMark, ViewStay

CAPTIONS = {
    "timeline": (
        "Who was with whom",
        "A lane per member. The bar is the configuration it is in, with its members; bars of one "
        "colour are one configuration, a thin edge is the transitional one between two, and a gap "
        "means that the process was not running. The area above is what it delivers.",
    ),
    "throughput": (
        "Throughput",
        "Messages handed to the application, per member and second. Members of one configuration "
        "deliver the same messages, so their lines lie on each other.",
    ),
    "latency": (
        "Latency",
        "From submission until the sender itself delivers. An agreed message waits for its place "
        "in the order, a safe one also until every member is known to hold it.",
    ),
}


LASTING_US = 200_000
OVER_TIME = (
    "Those that a member was in for a fifth of a second, and what they consisted of. Whoever is in "
    "several parts, such as a gateway between rings, stands between them."
)


class TraceFigures(msgspec.Struct, frozen=True):
    """What a trace comes to."""

    seconds: float
    members: int
    messages: int
    megabytes: float
    deliveries: int
    deliveries_per_s: float
    configurations: int
    latency_ms: dict[str, dict[str, float]]
    """By level: p50, p99."""


def numbers(story: ReportData) -> TraceFigures:
    """The figures of a story."""
    return TraceFigures(
        seconds=round(story.seconds, 3),
        members=len(story.nodes),
        messages=story.messages,
        megabytes=round(story.bytes / 1e6, 3),
        deliveries=story.deliveries,
        deliveries_per_s=round(story.deliveries / story.seconds, 1) if story.seconds else 0.0,
        configurations=story.views,
        latency_ms={
            level.name.lower(): {
                "p50": round(found.quantile(0.5) / 1000, 2),
                "p99": round(found.quantile(0.99) / 1000, 2),
            }
            for level in Level
            if (found := story.latency[level]).count
        },
    )


def fine(verdicts: Mapping[str, Verdict], violations: Sequence[Violation]) -> bool:
    """Whether every property was found to hold."""
    return bool(verdicts) and not violations and set(verdicts.values()) == {Verdict.VALID}


def page(
    title: str,
    subtitle: str,
    story: ReportData,
    verdicts: Mapping[str, Verdict],
    violations: Sequence[Violation],
) -> str:
    """The whole report as one HTML document."""
    good = fine(verdicts, violations)
    valid = sum(verdict is Verdict.VALID for verdict in verdicts.values())
    parts = [_tiles(numbers(story))]
    for name, draw in pictures.PICTURES.items():
        if story.deliveries:
            heading, caption = CAPTIONS[name]
            parts.append(section(heading, caption, draw(story)))
    if story.marks:
        parts.insert(2, section("What was done to them", "", _marks(story.marks)))
    if any(stay.parts for stay in story.stays):
        parts.insert(3, section("Configurations over time", OVER_TIME, _over_time(story.stays)))
    parts.append(section("What was checked", "", _checked(verdicts)))
    if violations:
        found = "".join(
            f"<p><b class=invalid>{escape(v.property)}</b> {escape(v.explanation)}</p>"
            for v in violations
        )
        parts.insert(0, section("What was violated", "", found))
    told = f"{valid} of {len(verdicts)} properties hold" + ("" if good else ": look below")
    return document(title, subtitle, [badge(told, "good" if good else "bad"), *parts])


def plain_ms(ms: float) -> str:
    """Three figures, and never an exponent."""
    return f"{ms:.3g} ms" if ms < 100 else f"{ms:,.0f} ms"


def _tiles(found: TraceFigures) -> str:
    tiles = [
        (f"{found.members}", "members"),
        (f"{found.seconds:.1f} s", "recorded"),
        (f"{found.messages:,}", f"messages, {found.megabytes:,.1f} MB"),
        (f"{found.deliveries:,}", f"deliveries, {found.deliveries_per_s:,.0f} a second"),
        (f"{found.configurations:,}", "configurations installed"),
    ]
    tiles += [
        (plain_ms(times["p50"]), f"{name}: half within; 99 % within {plain_ms(times['p99'])}")
        for name, times in found.latency_ms.items()
    ]
    cells = "".join(f"<div class=tile><b>{b}</b><span>{text}</span></div>" for b, text in tiles)
    return f'<section><div class="tiles">{cells}</div></section>'


def _marks(marks: Sequence[ReportMark]) -> str:
    head = ("", "at", "what", "new configurations within", "longest silence of a member not hit")
    rows = (
        (
            str(number),
            f"{mark.t_us / 1e6:.2f} s",
            escape(mark.text),
            settled(mark),
            f"{mark.silence_us / 1000:.0f} ms",
        )
        for number, mark in enumerate(marks, 1)
    )
    return table(head, rows, numbers=(0, 1, 3, 4))


def _over_time(stays: Sequence[ViewStay]) -> str:
    """A row for each configuration that a member was in for a while, with its parts."""
    by_view: dict[ViewId, list[ViewStay]] = {}
    for stay in sorted(stays, key=lambda stay: (stay.from_us, stay.node)):
        by_view.setdefault(stay.view, []).append(stay)
    rows = (
        (
            f"{first.from_us / 1e6:.2f} s",
            f"{max(stay.to_us for stay in some) / 1e6:.2f} s",
            " ".join(str(node) for node in sorted({stay.node for stay in some})),
            joined_parts.picture(first.parts) or "<br>".join(map(escape, first.parts.split("; "))),
        )
        for some in by_view.values()
        if max(stay.to_us - stay.from_us for stay in some) >= LASTING_US
        and (first := some[0]).parts
    )
    return table(("from", "to", "seen by", "consists of"), rows, numbers=(0, 1))


def settled(mark: ReportMark) -> str:
    """How long until the configurations that came of it were installed."""
    return "none" if mark.settled_us is None else f"{mark.settled_us / 1000:.0f} ms"


def _checked(verdicts: Mapping[str, Verdict]) -> str:
    rows = "".join(
        f"<div><span class={verdict}>{verdict}</span> <b>{escape(tag)}</b> "
        f"{escape(PROPERTIES[tag].title)}</div>"
        for tag, verdict in verdicts.items()
    )
    return f'<div class="cols">{rows}</div>'
