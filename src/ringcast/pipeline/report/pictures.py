"""The pictures of a report, as SVG text to be put into a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ringcast.core.ids import Level, ViewId
from ringcast.pipeline.report.drawing import CARD, COLOURS, GRID, INK, figure, svg
from ringcast.pipeline.report.report_data import ReportData, ReportMark, ViewStay

WIDTH_IN = 11.0
LEVELS = {Level.AGREED: ("agreed", "#2a9d8f"), Level.SAFE: ("safe", "#d1654f")}
LABEL_SHARE = 0.045
"""A stay shorter than this share of the picture has no room for its members' names."""


def _marks(axes: Any, marks: Sequence[ReportMark], high: float) -> None:
    """Numbered lines where something was done to the group."""
    for number, mark in enumerate(marks, 1):
        at_s = mark.t_us / 1e6
        axes.axvline(at_s, color=INK, linewidth=0.7, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            str(number),
            (at_s, high),
            ha="center",
            va="bottom",
            fontsize=8,
            color=CARD,
            bbox={"boxstyle": "circle,pad=0.25", "color": INK},
            annotation_clip=False,
        )


def _colours(stays: Sequence[ViewStay]) -> dict[ViewId, str]:
    """One colour for each regular configuration of several members, in order of appearance."""
    shared = [s for s in stays if not s.transitional and len(s.members) > 1]
    views = dict.fromkeys(s.view for s in sorted(shared, key=lambda s: (s.from_us, s.node)))
    return {view: COLOURS[i % len(COLOURS)] for i, view in enumerate(views)}


def timeline(story: ReportData) -> str:
    """A lane per member: the configuration it is in, and above it what it delivers."""
    nodes = story.nodes
    drawn, axes = figure(WIDTH_IN, 1.2 + 0.85 * len(nodes))
    colours = _colours(story.stays)
    lane = {node: len(nodes) - 1 - i for i, node in enumerate(nodes)}
    wide_us = LABEL_SHARE * story.seconds * 1e6
    for stay in story.stays:
        low, from_s, long_s = lane[stay.node], stay.from_us / 1e6, (stay.to_us - stay.from_us) / 1e6
        if stay.transitional:
            axes.broken_barh([(from_s, long_s)], (low + 0.08, 0.24), color=INK, linewidth=0.6)
            continue
        colour = colours.get(stay.view, "#c9d1d9")
        axes.broken_barh([(from_s, long_s)], (low + 0.08, 0.24), color=colour, linewidth=0)
        if stay.to_us - stay.from_us > wide_us:
            names = " ".join(map(str, stay.members))
            middle = (from_s + long_s / 2, low + 0.19)
            axes.annotate(names, middle, ha="center", va="center", fontsize=8, color="white")
    _rates(axes, story, lane, colours)
    axes.set_yticks([lane[n] + 0.2 for n in nodes], [f"member {n}" for n in nodes])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(0, len(nodes))
    axes.set_xlim(0, story.seconds)
    axes.set_xlabel("seconds")
    _marks(axes, story.marks, len(nodes) + 0.02)
    return svg(drawn)


def _rates(axes: Any, story: ReportData, lane: dict[int, int], colours: dict[ViewId, str]) -> None:
    """Deliveries as a small area in each lane, in the colour of the configuration."""
    series = story.delivered
    rates = sorted(c / s.width_us for s in series.values() for c in s.counts if c)
    high = 1.5 * rates[int(0.9 * len(rates))] if rates else 1.0  # bursts may be cut off
    for stay in story.stays:
        counts = series.get(stay.node)
        if counts is None:
            continue
        width_us = counts.width_us
        bins = range(stay.from_us // width_us, min(stay.to_us // width_us + 1, len(counts.counts)))
        low = lane[stay.node] + 0.36
        axes.fill_between(
            [(at + 0.5) * width_us / 1e6 for at in bins],
            low,
            [low + 0.58 * min(1.0, counts.counts[at] / width_us / high) for at in bins],
            color=colours.get(stay.view, "#c9d1d9"),
            alpha=0.55,
            linewidth=0,
        )


def throughput(story: ReportData) -> str:
    """Messages delivered per second, a line per member."""
    drawn, axes = figure(WIDTH_IN, 3.0)
    high = 1.0
    for i, node in enumerate(story.nodes):
        series = story.delivered.get(node)
        if series is None:
            continue
        merge = max(1, 250_000 // series.width_us)
        width_s = merge * series.width_us / 1e6
        counts = series.counts
        rates = [sum(counts[at : at + merge]) / width_s for at in range(0, len(counts), merge)]
        times = [(at + 0.5) * width_s for at in range(len(rates))]
        axes.plot(times, rates, color=COLOURS[i % len(COLOURS)], linewidth=1.3, label=f"{node}")
        high = max(high, *rates)
    axes.set_ylim(0, high * 1.08)
    axes.set_xlim(0, story.seconds)
    axes.set_xlabel("seconds")
    axes.set_ylabel("messages delivered per second")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.legend(title="member", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    _marks(axes, story.marks, high * 1.09)
    return svg(drawn)


def latency(story: ReportData) -> str:
    """How long messages took, agreed beside safe."""
    drawn, axes = figure(WIDTH_IN, 3.0)
    for level, (name, colour) in LEVELS.items():
        found = story.latency[level]
        if not found.count:
            continue
        classes = list(found.edges())
        axes.bar(
            [low / 1000 for low, _, _ in classes],
            [100 * count / found.count for _, _, count in classes],
            width=[(high - low) / 1000 for low, high, _ in classes],
            align="edge",
            color=colour,
            alpha=0.6,
            linewidth=0,
            label=f"{name}: {found.count:,} messages",
        )
        half_ms = found.quantile(0.5) / 1000
        axes.axvline(half_ms, color=colour, linewidth=1.2)
        axes.annotate(
            f"half of the {name}\nwithin {half_ms:.1f} ms",
            (half_ms, 0.97 if level is Level.AGREED else 0.8),
            xycoords=("data", "axes fraction"),
            xytext=(-5 if level is Level.AGREED else 5, 0),
            textcoords="offset points",
            ha="right" if level is Level.AGREED else "left",
            va="top",
            fontsize=8,
            color=colour,
            bbox={"color": CARD, "alpha": 0.8, "pad": 1.5, "linewidth": 0},
        )
    axes.set_xscale("log")
    axes.set_xlim(left=0.1)  # a member that is alone needs next to no time
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("milliseconds from submission to delivery at the sender")
    axes.set_ylabel("% of messages")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.legend(frameon=False, loc="upper right")
    return svg(drawn)


PICTURES: dict[str, Callable[[ReportData], str]] = {
    "timeline": timeline,
    "throughput": throughput,
    "latency": latency,
}
