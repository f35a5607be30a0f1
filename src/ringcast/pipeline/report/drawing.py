"""How pictures look, whatever they show: text as text, and colours that a page may change."""

from __future__ import annotations

import io
from typing import Any

INK, FAINT, GRID, CARD = "#1f2933", "#9aa5b1", "#e4e7eb", "#fffffe"
"""Text and lines, axes, lines behind the data, and the ground they stand on."""

COLOURS = (
    "#2a9d8f", "#e9a03b", "#5b7db1", "#d1654f", "#8a6fb0", "#6a994e", "#c06c96", "#4aa3c7",
)  # fmt: skip
"""Of lines and areas; they can be told apart on light and on dark ground."""

OF_THE_PAGE = {INK: "currentColor", GRID: f"var(--line, {GRID})", CARD: f"var(--card, {CARD})"}
"""Colours that are dark on a light page and light on a dark one, so the page has to say."""


def figure(width_in: float, height_in: float) -> tuple[Any, Any]:
    """An empty picture and its axes, drawn without a screen."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "ringcast",
            "font.family": "sans-serif",
            "font.size": 9,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": FAINT,
            "xtick.color": INK,
            "ytick.color": INK,
        }
    )
    drawn = Figure(figsize=(width_in, height_in), layout="constrained")
    axes = drawn.subplots()
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return drawn, axes


def svg(drawn: Any) -> str:
    """The picture as an element of a page."""
    stream = io.StringIO()
    drawn.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
    text = stream.getvalue()
    for colour, instead in OF_THE_PAGE.items():
        text = text.replace(colour, instead)
    return text[text.index("<svg") :]
