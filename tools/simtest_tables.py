"""What simulated programs were run through, from the records in ``bench/results``."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from tags import ROOT

PAGE = ROOT / "docs" / "testing.md"
REPLICATION = ROOT / "docs" / "replication.md"
PROGRAMS = ROOT / "tests" / "testing" / "seeded_bugs.py"


def record(name: str) -> Any:
    """What ``bench/simulated.py NAME`` has written; empty if it was not run."""
    file = ROOT / "bench" / "results" / f"simulated-{name}.json"
    return json.loads(file.read_bytes()) if file.exists() else {}


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


def commits(modes: dict[str, Any]) -> str:
    """Which commits made the seeds."""
    return ", ".join(sorted({commit for each in modes.values() for commit in each["made"]}))


def shops_table(modes: dict[str, Any]) -> str:
    """By protocol: how many runs of the shop, and what happened in them."""
    rows = [
        f"By `python bench/simulated.py shops`, at commits {commits(modes)}:",
        "",
        "| over | runs | with a disk lost | with all killed | wrong |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for name, each in modes.items():
        lost, killed = (each["met"].get(what, 0) for what in ("a disk is lost", "all are killed"))
        failed = each["failures"] or "none"
        rows.append(f"| {name} | {each['seeds']:,} | {lost:,} | {killed:,} | {failed} |")
    return "\n".join(rows)


def live_table(runs: list[dict[str, Any]]) -> str:
    """By protocol: how many live runs of the shop, and what was done to it."""
    rows = [
        "| over | runs | partitions | kills of one | kills of all | wrong |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for over in dict.fromkeys(each["protocol"] for each in runs):
        some = [each for each in runs if each["protocol"] == over]
        parted, killed, all_killed = (
            sum(each["met"].get(what, 0) for each in some)
            for what in ("partition", "kill one", "kill all")
        )
        wrong = sum(bool(each["wrong"]) for each in some) or "none"
        rows.append(f"| {over} | {len(some)} | {parted} | {killed} | {all_killed} | {wrong} |")
    return "\n".join(rows)


def programs_text(modes: dict[str, Any], million: dict[str, Any]) -> str:
    """How many seeds of examples and shared objects, and of one program on Spark."""
    objects = {name: each for name, each in modes.items() if name.startswith("objects")}
    examples = {name: each for name, each in modes.items() if name not in objects}
    rows = ["| program | seeds | over | wrong |", "| --- | ---: | --- | --- |"]
    if not modes:
        rows = ["There is no record of them yet."]
    for name, each in sorted(examples.items()):
        rows.append(
            f"| `{name}` | {each['seeds']:,} | six protocols | {each['failures'] or 'none'} |"
        )
    for name, each in sorted(objects.items()):
        over = name.partition(", ")[2]
        rows.append(
            f"| shared objects | {each['seeds']:,} | {over} | {each['failures'] or 'none'} |"
        )
    if modes:
        rows += ["", f"Made at commits {commits(modes)}."]
    if million:
        failed = sum(each["failures"] for each in million["kinds"])
        rows += [
            "",
            f"On Spark, `{million['command']}`: {million['runs']:,} runs in "
            f"{million['seconds']:,.0f} s on two cores, {failed or 'none'} failed (commit "
            f"{million['commit']}).",
        ]
    return "\n".join(rows)


def pages() -> dict[Path, str]:
    """No page is generated as a whole."""
    return {}


def blocks() -> dict[tuple[Path, str], str]:
    """The tables."""
    modes = {name: record(name).get("modes", {}) for name in ("catalogue", "shops", "programs")}
    tickets = json.loads((ROOT / "bench" / "results" / "tickets.json").read_bytes())
    return {
        (PAGE, "seeded bugs"): bugs_table(modes["catalogue"]),
        (PAGE, "simulated programs"): programs_text(modes["programs"], record("million")),
        (REPLICATION, "live shops"): live_table(tickets["runs"]),
        (REPLICATION, "simulated shops"): shops_table(modes["shops"]),
    }
