"""The table of seeded bugs, from the record in ``bench/results`` and the programs' docstrings."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from tags import ROOT

PAGE = ROOT / "docs" / "testing.md"
RECORD = ROOT / "bench" / "results" / "simulated-catalogue.json"
PROGRAMS = ROOT / "tests" / "testing" / "seeded_bugs.py"


def docstrings() -> dict[str, str]:
    """What each program's bug is, by the program's name."""
    tree = ast.parse(PROGRAMS.read_text("utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]
    return {each.name: " ".join((ast.get_docstring(each) or "").split()) for each in functions}


def bugs_table(modes: dict[str, Any]) -> str:
    """How many seeds show each bug, the most frequent first, and what came of the correct ones."""
    what = docstrings()
    shares = {
        mode.removesuffix(", broken"): each["failures"] / each["seeds"]
        for mode, each in modes.items()
        if mode.endswith(", broken")
    }
    seeds = sorted({modes[f"{name}, broken"]["seeds"] for name in shares})
    correct = [modes[name] for name in shares if name in modes]
    failed = sum(each["failures"] for each in correct)
    rows = [
        f"Of {seeds[0]:,}{f' to {seeds[-1]:,}' if len(seeds) > 1 else ''} seeds of each program, "
        "these show its bug. The same programs without the bug",
        f"ran {sum(each['seeds'] for each in correct):,} seeds, at least "
        f"{min(each['seeds'] for each in correct):,} each; {failed or 'none'} of them failed.",
        "",
        "| bug | what it is | seeds that show it |",
        "| --- | --- | ---: |",
    ]
    for name, share in sorted(shares.items(), key=lambda row: -row[1]):
        rows.append(f"| `{name}` | {what[name]} | {share:.1%} |")
    return "\n".join(rows)


def pages() -> dict[Path, str]:
    """No page is generated as a whole."""
    return {}


def blocks() -> dict[tuple[Path, str], str]:
    """The table."""
    return {(PAGE, "seeded bugs"): bugs_table(json.loads(RECORD.read_bytes())["modes"])}
