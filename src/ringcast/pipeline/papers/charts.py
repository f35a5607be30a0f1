"""Draws what a paper says and what we found on the same axes."""

from __future__ import annotations

from typing import Any

from ringcast.pipeline.papers.reproduce import Curve, Plot
from ringcast.pipeline.report.drawing import COLOURS, GRID, INK, figure, svg

WIDTH_IN, HEIGHT_IN = 5.4, 3.9
"""Small enough for the text to be read on a phone, where the whole picture is as wide as it."""

STYLES: dict[str, dict[str, Any]] = {
    "ours": {"linewidth": 1.6, "marker": "o", "markersize": 3.5},
    "model": {"linewidth": 1.3, "linestyle": (0, (5, 3))},
    "paper": {"linestyle": "none", "marker": "x", "markersize": 8, "markeredgewidth": 2},
}
LONG = 32
"""Labels of more letters than this do not fit beside each other."""

MANY = 30
"""A line of more points than this needs no mark for each."""


def drawn(plot: Plot) -> str:
    """A picture as an element of a page."""
    picture, axes = figure(WIDTH_IN, HEIGHT_IN)
    for curve in plot.curves:
        _draw(axes, curve)
    if plot.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    axes.grid(color=GRID, linewidth=0.8)
    long = any(len(curve.label) > LONG for curve in plot.curves)
    picture.legend(loc="outside lower center", ncols=1 if long else 2, frameon=False)
    return svg(picture)


def _draw(axes: Any, curve: Curve) -> None:
    colour = INK if curve.kind == "paper" else COLOURS[curve.colour % len(COLOURS)]
    style = STYLES[curve.kind]
    if len(curve.x) > MANY:
        style = style | {"marker": ""}
    axes.plot(curve.x, curve.y, color=colour, label=curve.label, **style)
    if curve.half:
        low = [y - half for y, half in zip(curve.y, curve.half, strict=True)]
        high = [y + half for y, half in zip(curve.y, curve.half, strict=True)]
        axes.fill_between(curve.x, low, high, color=colour, alpha=0.25, linewidth=0)
