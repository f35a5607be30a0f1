"""Ratios that were promised, what was measured, and the tables that show both."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from record import spread, table

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


class Row(msgspec.Struct, frozen=True):
    """A ratio that was promised. The names are those of what was measured."""

    title: str
    over: str
    under: str
    """Empty: the value itself is judged."""
    must: float | None = None
    aim: float | None = None
    """Neither: nothing was promised."""
    less: bool = False
    """Whether lower is better."""
    group: str = ""
    """What the rows that belong together have in common."""

    def met(self, value: float) -> str:
        """The better of the two bounds that a ratio is as good as."""
        sign = -1 if self.less else 1
        for name, bound in (("aim", self.aim), ("must", self.must)):
            if bound is not None and sign * value >= sign * bound:
                return name
        return "" if self.must is None else "no"


class Book:
    """Everything measured, by name; values of one round have the same place in their lists."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}
        self.began_s = time.monotonic()

    def note(self, name: str, value: float) -> None:
        """One value, said at once."""
        self.values.setdefault(name, []).append(value)
        print(f"{time.monotonic() - self.began_s:6.0f} s  {name:<32} {value:,.2f}", flush=True)

    def spreads(self) -> dict[str, dict[str, float]]:
        """Median and extremes of everything."""
        return {name: spread(each) for name, each in self.values.items()}

    def judged(self, rows: Iterable[Row]) -> list[dict[str, Any]]:
        """Each promise with the median of its ratios, one a round, and their spread."""
        found = []
        for row in rows:
            over = self.values.get(row.over)
            under = self.values.get(row.under) if row.under else [1.0] * len(over or ())
            if not over or not under:
                continue
            ratios = [a / b for a, b in zip(over, under, strict=True)]
            found.append(
                {
                    "group": row.group,
                    "what": row.title,
                    "ours": spread(over),
                    "other": spread(under) if row.under else None,
                    "ratio": spread(ratios),
                    "must": row.must,
                    "aim": row.aim,
                    "met": row.met(median(ratios)),
                }
            )
        return found


def figure(value: float) -> str:
    """A value for people: three digits that matter."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratio_table(found: list[dict[str, Any]], group: str) -> str:
    """The promises and what came of them; ``group`` heads the column of what rows share."""
    lines = []
    for each in found:
        ratio = each["ratio"]
        other = each["other"]
        lines.append(
            (
                each["group"],
                each["what"],
                figure(each["ours"]["median"]),
                figure(other["median"]) if other else "",
                f"{figure(ratio['median'])} ({figure(ratio['least'])} to {figure(ratio['most'])})",
                *("" if each[key] is None else f"{each[key]:g}" for key in ("must", "aim")),
                each["met"],
            )
        )
    head = (group, "same run, ratio", "ours", "other", "ratio (extremes)", "must", "aim", "met")
    return table(head, lines)


def write_page(name: str, script: str, block: str) -> None:
    """Replace the block of that name, written by that script, in the page about performance."""
    start, end = f"<!-- {name}: written by {script} -->", f"<!-- end of {name} -->"
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{start}\n{block}\n{end}{after}", "utf-8")
