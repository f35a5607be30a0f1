"""A picture of a configuration that consists of parts, such as rings that gateways join."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from math import cos, pi, sin

Point = tuple[float, float]

RADIUS = 26
"""Of the circle of one part."""

MOST = 16
"""Parts that a picture has room for."""


def read(text: str) -> dict[str, tuple[str, ...]]:
    """The parts of a configuration, as its note tells them: ``name: 1 2; other name: 2 3``."""
    found = (part.partition(": ") for part in text.split("; ") if part)
    return {name: tuple(members.split()) for name, _, members in found}


def picture(text: str) -> str:
    """A circle for each part with the members that are there alone, a square for each member of
    several, and lines to its parts, as an element of a page; empty if nothing joins anything."""
    parts = read(text)
    of: dict[str, list[str]] = {}
    for name, members in parts.items():
        for member in members:
            of.setdefault(member, []).append(name)
    between = {member: tuple(names) for member, names in of.items() if len(names) > 1}
    if not between or len(parts) > MOST:
        return ""
    centres, size = placed(list(parts), set(between.values()))
    lines, shapes = [], []
    for name, (x, y) in centres.items():
        alone = " ".join(member for member in parts[name] if member not in between)
        shapes.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{RADIUS}" {OUTLINE}/>')
        shapes.append(words(x, y + 4, alone))
        shapes.append(words(x, y + RADIUS + 12, name))
    seats: dict[tuple[str, ...], list[str]] = {}
    for member, names in between.items():
        seats.setdefault(names, []).append(member)
    for names, beside in seats.items():
        for at, member in enumerate(beside):
            x, y = seat([centres[name] for name in names], at - (len(beside) - 1) / 2)
            for name in names:
                to = centres[name]
                lines.append(
                    f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{to[0]:.0f}" y2="{to[1]:.0f}" '
                    f'stroke="currentColor" stroke-opacity="0.5"/>'
                )
            shapes.append(
                f'<rect x="{x - 11:.0f}" y="{y - 9:.0f}" width="22" height="18" {OUTLINE}/>'
            )
            shapes.append(words(x, y + 4, member))
    drawn = "".join((*lines, *shapes))
    named = f'role="img" aria-label="{escape(text)}"'
    # The page makes pictures as wide as it is; this one stands in a cell of a table.
    style = f'style="width:{size[0]:.0f}px" viewBox="0 0 {size[0]:.0f} {size[1]:.0f}"'
    return f"<svg {style} {named}>{drawn}</svg>"


OUTLINE = 'fill="var(--card, #fffffe)" stroke="currentColor"'


def words(x: float, y: float, text: str) -> str:
    """Text in the middle of a place."""
    style = 'font-size="10" text-anchor="middle" fill="currentColor"'
    return f'<text x="{x:.0f}" y="{y:.0f}" {style}>{escape(text)}</text>'


def placed(names: list[str], joined: set[tuple[str, ...]]) -> tuple[dict[str, Point], Point]:
    """The centres of the parts, and the size of it all: in a row if members join neighbours alone,
    else in a round."""
    count = len(names)
    if joined <= set(pairwise(names)):
        width = 2 * RADIUS + 110 * (count - 1) + 40
        row = {name: (RADIUS + 20 + 110.0 * at, RADIUS + 16.0) for at, name in enumerate(names)}
        return row, (width, 2 * RADIUS + 40)
    round_ = max(80.0, count * 100 / (2 * pi))
    middle = round_ + RADIUS + 20
    turns = {name: 2 * pi * at / count - pi / 2 for at, name in enumerate(names)}
    found = {
        name: (middle + round_ * cos(turn), middle + round_ * sin(turn))
        for name, turn in turns.items()
    }
    return found, (2 * middle, 2 * middle + 10)


def seat(ends: list[Point], aside: float) -> Point:
    """Between its parts, and beside others that join the same ones."""
    x, y = sum(end[0] for end in ends) / len(ends), sum(end[1] for end in ends) / len(ends)
    (x0, y0), (x1, y1) = ends[0], ends[-1]
    far = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1.0)
    return x - (y1 - y0) / far * 24 * aside, y + (x1 - x0) / far * 24 * aside
