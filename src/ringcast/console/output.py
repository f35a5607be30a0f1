"""What commands print: plain lines, tables, one JSON object, and progress on a terminal."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from ringcast.checks import PROPERTIES
from ringcast.core.machine import Discard, Impossible, name
from ringcast.core.registry import Sheet
from ringcast.pipeline.spark.progress import ProgressBar
from ringcast.sim.batch import Summary
from ringcast.sim.meter import Measures
from ringcast.sim.run import Breach

T = TypeVar("T")

MOST_SHOWN = 20
"""Violations printed for people; ``--json`` has them all."""

STYLE = {"valid": "green", "invalid": "bold red", "unknown": "yellow"}


def console(err: bool = False) -> Console:
    """Made anew each time, so that it writes where the streams point now."""
    return Console(stderr=err, highlight=False, soft_wrap=True)


def say(markup: str, err: bool = False) -> None:
    """One line for people."""
    console(err).print(markup)


def as_json(value: object) -> None:
    """One JSON object for programs."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def ids(members: Iterable[int]) -> str:
    """Processors as people write them: ``1 2 3``."""
    return " ".join(str(member) for member in sorted(members))


def print_verdicts(verdicts: Mapping[str, str]) -> None:
    """Each property that was checked, with its verdict."""
    say("[bold]checked[/bold]")
    for tag, verdict in verdicts.items():
        say(f"  [{STYLE[verdict]}]{verdict:<8}[/] {tag:<12} {escape(PROPERTIES[tag].title)}")


def print_violations(breaches: Sequence[Breach], err: bool = False) -> None:
    """What was violated, and the line that repeats it."""
    for breach in breaches[:MOST_SHOWN]:
        say(f"[bold red]violated[/] {escape(f'{breach.property}: {breach.explanation}')}", err)
        say(f"  repeat: {escape(breach.repeat)}", err)
    if len(breaches) > MOST_SHOWN:
        say(f"  and {len(breaches) - MOST_SHOWN} more; --json lists them all", err)


def print_summary(summary: Summary, verdicts: Mapping[str, str], wall_s: float) -> None:
    """The last lines of a batch: how much was run, and how it came out."""
    runs = "1 run" if summary.runs == 1 else f"{summary.runs} runs"
    say(
        f"{runs}, {summary.events} events, {summary.deliveries} deliveries, "
        f"{summary.views} views, {summary.simulated_us / 1e6:.1f} s simulated in {wall_s:.1f} s"
    )
    if summary.faults:
        kinds = ", ".join(f"{kind} {times}" for kind, times in sorted(summary.faults.items()))
        say(f"faults: {kinds}")
    alike: dict[tuple[int, int], list[str]] = {}
    for tag in verdicts:
        alike.setdefault((summary.valid[tag], summary.unknown[tag]), []).append(tag)
    for (valid, unknown_in), tags in sorted(alike.items(), reverse=True):
        say(f"valid in {valid} of {runs}, unknown in {unknown_in}: {' '.join(tags)}")
    if not verdicts:
        say("[yellow]unknown[/]: the protocol claims no property")
    unknown = [tag for tag, verdict in verdicts.items() if verdict == "unknown"]
    failed = len({breach.seed for breach in summary.violations})
    if failed:
        say(f"[bold red]a property was violated[/] in {failed} of {summary.runs}")
    elif unknown:
        say(f"[yellow]unknown[/] {', '.join(unknown)}: no run could tell; no violation")
    else:
        say("no violation")


def figures(measures: Measures) -> dict[str, object]:
    """How fast the group was, for programs; a level without messages has no latency."""
    levels = {"agreed": measures.agreed, "safe": measures.safe}
    return {
        "measured_s": measures.span_us / 1e6,
        "messages_per_s": round(measures.messages_per_s, 3),
        "bytes_per_s": round(measures.bytes_per_s, 3),
        "rotation_ms": round(measures.rotation_ms, 6) if measures.rotations else None,
        "latency_ms": {
            level: {
                "messages": found.messages,
                "mean": round(found.mean_ms, 6),
                "last": round(found.last_ms, 6),
            }
            if found.messages
            else None
            for level, found in levels.items()
        },
    }


def print_figures(measures: Measures) -> None:
    """How fast the group was, for people."""
    told = [f"{measures.messages_per_s:,.0f} messages/s ({measures.bytes_per_s / 1e6:.3f} MB/s)"]
    for level, found in (("agreed", measures.agreed), ("safe", measures.safe)):
        if found.messages:
            told.append(f"{level} in {found.mean_ms:.2f} ms, {found.last_ms:.2f} ms to the last")
    if measures.rotations:
        told.append(f"a rotation of the token in {measures.rotation_ms:.2f} ms")
    say(f"measured over {measures.span_us / 1e6:g} s: {'; '.join(told)}")


def progress(things: Iterable[T], total: int, quiet: bool) -> Generator[T, None, None]:
    """Hands ``things`` on while showing how far it is."""
    with ProgressBar("runs", total, quiet) as bar:
        for done, thing in enumerate(things, start=1):
            yield thing
            bar.show(done)


def coverage(sheet: Sheet, visits: Mapping[str, int]) -> list[dict[str, object]]:
    """One row a cell: phase, input, what the cell is (with the reason), visits."""
    table = sheet.make(1, sheet.default).table
    rows: list[dict[str, object]] = []
    for phase in table.phases:
        for key in table.keys:
            cell = table.cells[phase, key]
            match cell:
                case Discard(rule, reason):
                    kind, why = "discard", f"{rule}: {reason}"
                case Impossible(reason):
                    kind, why = "impossible", reason
                case _:
                    kind, why = "handler", ""
            rows.append(
                {
                    "phase": str(phase),
                    "input": name(key),
                    "kind": kind,
                    "reason": why,
                    "visits": visits.get(f"{phase}/{name(key)}", 0),
                }
            )
    return rows


def print_coverage(rows: list[dict[str, object]]) -> None:
    """The (phase, input) table with visit counts, and the cells that no run reached."""
    phases = list(dict.fromkeys(str(row["phase"]) for row in rows))
    inputs = list(dict.fromkeys(str(row["input"]) for row in rows))
    at = {(row["phase"], row["input"]): row for row in rows}
    grid = Grid(title="visits by phase and input", title_justify="left")
    grid.add_column("input")
    for phase in phases:
        grid.add_column(phase, justify="right")
    for input_ in inputs:
        grid.add_row(input_, *(_mark(at[phase, input_]) for phase in phases))
    console().print(grid)
    for kind in ("impossible", "discard"):
        reasons = {str(row["reason"]) for row in rows if row["kind"] == kind}
        for reason in sorted(reasons):
            cells = [f"{r['phase']}/{r['input']}" for r in rows if r["reason"] == reason]
            say(f"{kind}: {escape(', '.join(cells))}: {escape(reason)}")
    missed = [f"{row['phase']}/{row['input']}" for row in rows if unreached(row)]
    say(f"cells not reached: {', '.join(missed) or 'none'}")


def unreached(row: Mapping[str, object]) -> bool:
    """Whether a cell that can be reached was not."""
    return row["kind"] != "impossible" and row["visits"] == 0


def _mark(row: Mapping[str, object]) -> str:
    if row["kind"] == "impossible" and row["visits"] == 0:
        return "impossible"
    return f"{row['visits']}" + (" discarded" if row["kind"] == "discard" else "")
