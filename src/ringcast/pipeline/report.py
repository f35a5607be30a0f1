"""A report of one trace: a page that needs nothing else, and the numbers it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from string import Template

import msgspec

from ringcast.checks import PROPERTIES, Verdict, Violation
from ringcast.core.ids import Level
from ringcast.pipeline import pictures
from ringcast.pipeline.story import Mark, Story

CAPTIONS = {
    "timeline": (
        "Who was with whom",
        "A lane per member. The bar is the configuration it is in, with its members; bars of one "
        "colour are one configuration, a dark edge is the transitional one between two, and a gap "
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

PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>$title</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; background: #f5f7fa; margin: 0; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 0 0 4px; }
p { margin: 0 0 10px; color: #52606d; max-width: 75ch; }
section { background: white; border-radius: 10px; padding: 18px 20px; margin-top: 18px;
  box-shadow: 0 1px 3px rgb(31 41 51 / 12%); overflow-x: auto; }
.badge { display: inline-block; border-radius: 999px; padding: 2px 14px; font-weight: 600;
  color: white; background: #2f855a; margin: 6px 0 0; } .badge.bad { background: #c53030; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(125px, 1fr)); gap: 14px; }
.tile b { display: block; font-size: 22px; } .tile span { color: #52606d; font-size: 13px; }
svg { width: 100%; height: auto; display: block; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: #52606d; font-weight: 600; }
th, td { padding: 4px 12px 4px 0; border-bottom: 1px solid #e4e7eb; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.valid { color: #2f855a; } .invalid { color: #c53030; font-weight: 700; }
.unknown { color: #b7791f; }
.cols { columns: 3 260px; } .cols div { break-inside: avoid; padding: 1px 0; font-size: 14px; }
</style></head><body><main>
<h1>$title</h1><p>$subtitle</p><span class="badge $mood">$result</span>
$body
</main></body></html>
""")


class Numbers(msgspec.Struct, frozen=True):
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


def numbers(story: Story) -> Numbers:
    """The figures of a story."""
    return Numbers(
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
    story: Story,
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
            parts.append(_section(heading, caption, draw(story)))
    if story.marks:
        parts.insert(2, _section("What was done to them", "", _marks(story.marks)))
    parts.append(_section("What was checked", "", _checked(verdicts)))
    if violations:
        found = "".join(
            f"<p><b class=invalid>{escape(v.property)}</b> {escape(v.explanation)}</p>"
            for v in violations
        )
        parts.insert(0, _section("What was violated", "", found))
    return PAGE.substitute(
        title=escape(title),
        subtitle=escape(subtitle),
        mood="" if good else "bad",
        result=f"{valid} of {len(verdicts)} properties hold" + ("" if good else ": look below"),
        body="\n".join(parts),
    )


def _section(heading: str, caption: str, content: str) -> str:
    text = f"<p>{escape(caption)}</p>" if caption else ""
    return f"<section><h2>{escape(heading)}</h2>{text}{content}</section>"


def _tiles(found: Numbers) -> str:
    tiles = [
        (f"{found.members}", "members"),
        (f"{found.seconds:.1f} s", "recorded"),
        (f"{found.messages:,}", f"messages, {found.megabytes:,.1f} MB"),
        (f"{found.deliveries:,}", f"deliveries, {found.deliveries_per_s:,.0f} a second"),
        (f"{found.configurations:,}", "configurations installed"),
    ]
    tiles += [
        (f"{times['p50']:.3g} ms", f"{name}: half within; 99 % within {times['p99']:.3g} ms")
        for name, times in found.latency_ms.items()
    ]
    cells = "".join(f"<div class=tile><b>{b}</b><span>{text}</span></div>" for b, text in tiles)
    return f'<section><div class="tiles">{cells}</div></section>'


def _marks(marks: Sequence[Mark]) -> str:
    rows = "".join(
        f"<tr><td class=n>{number}<td class=n>{mark.t_us / 1e6:.2f} s<td>{escape(mark.text)}"
        f"<td class=n>{settled(mark)}<td class=n>{mark.silence_us / 1000:.0f} ms</tr>"
        for number, mark in enumerate(marks, 1)
    )
    return (
        "<table><tr><th><th class=n>at<th>what<th class=n>new configurations within"
        f"<th class=n>longest silence of a member not hit</tr>{rows}</table>"
    )


def settled(mark: Mark) -> str:
    """How long until the configurations that came of it were installed."""
    return "none" if mark.settled_us is None else f"{mark.settled_us / 1000:.0f} ms"


def _checked(verdicts: Mapping[str, Verdict]) -> str:
    rows = "".join(
        f"<div><span class={verdict}>{verdict}</span> <b>{escape(tag)}</b> "
        f"{escape(PROPERTIES[tag].title)}</div>"
        for tag, verdict in verdicts.items()
    )
    return f'<div class="cols">{rows}</div>'
