"""Tables of what was run in swarms, from the records in ``bench/results``."""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

from tags import ROOT

from ringcast.checks import PROPERTIES

RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "simulator.md"
PROTOCOLS = sorted(path.stem.removeprefix("swarm-") for path in RESULTS.glob("swarm-*.json"))

Modes = dict[str, dict[str, Any]]


def run_table(modes: Modes) -> str:
    """How much was run in each mode, and what came of it."""
    rows = [
        "| | groups | simulated s | frames | deliveries | configurations | faults | violations |",
        "| --- |" + " ---: |" * 7,
    ]
    for mode, each in modes.items():
        counts = [each["runs"], round(each["simulated_s"])]
        counts += [each[name] for name in ("frames", "deliveries", "views")]
        counts += [sum(each["faults"].values()), len(each["violations"])]
        rows.append(f"| {mode} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    return "\n".join(rows)


def judged_table(modes: Modes) -> str:
    """In how many runs each property that is claimed could be judged, and held."""
    rows = [
        "| property | | " + " | ".join(modes) + " |",
        "| --- | --- |" + " ---: |" * len(modes),
    ]
    for tag, kind in PROPERTIES.items():
        cells = [
            f"{each['judged'][tag][0]:,}" if tag in each["judged"] else ""
            for each in modes.values()
        ]
        if any(cells):
            rows.append(f"| {tag} | {kind.title} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def cell_table(modes: Modes) -> str:
    """How often each cell of the dispatch table was reached, in all modes together."""
    visits: Counter[tuple[str, str]] = Counter()
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for each in modes.values():
        for row in each["coverage"]:
            cells[row["input"], row["phase"]] = row
            visits[row["input"], row["phase"]] += row["visits"]
    phases = list(dict.fromkeys(phase for _, phase in cells))
    rows = ["| input | " + " | ".join(phases) + " |", "| --- |" + " ---: |" * len(phases)]
    for name in dict.fromkeys(name for name, _ in cells):
        shown = [
            "impossible"
            if cells[name, phase]["kind"] == "impossible"
            else f"{visits[name, phase]:,}"
            for phase in phases
        ]
        rows.append(f"| {name} | " + " | ".join(shown) + " |")
    reasons = sorted(
        (cell["reason"], f"{phase}/{name}")
        for (name, phase), cell in cells.items()
        if cell["kind"] == "impossible"
    )
    if reasons:
        rows += ["", "The impossible cells, and why:", ""]
    for reason, some in groupby(reasons, key=lambda each: each[0]):
        rows.append(f"- {', '.join(at for _, at in some)}: {reason}.")
    return "\n".join(rows)


def section(protocol: str) -> str:
    """The record of one protocol."""
    record = json.loads((RESULTS / f"swarm-{protocol}.json").read_text("utf-8"))
    modes: Modes = record["modes"]
    return "\n\n".join(
        (
            f"`python bench/swarm.py {protocol}` at commit {record['commit']}: "
            f"{len(record['made'])} calls such as `{next(iter(record['made']))} --coverage`.",
            run_table(modes),
            "In how many of them each property could be judged, and held:",
            judged_table(modes),
            "How often each cell of the dispatch table was reached:",
            cell_table(modes),
        )
    )


def pages() -> dict[Path, str]:
    """None."""
    return {}


def blocks() -> dict[tuple[Path, str], str]:
    """The marked blocks of docs/simulator.md."""
    return {(PAGE, f"swarm of {protocol}"): section(protocol) for protocol in PROTOCOLS}
