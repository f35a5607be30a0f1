"""Tables of what the simulator understands and measures: faults, workloads, networks, commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import msgspec
from tags import ROOT

from ringcast.pipeline.sweep.measures import MEASURES
from ringcast.sim.faults import Fault
from ringcast.sim.presets import PRESETS
from ringcast.sim.scenario.commands import COMMANDS
from ringcast.sim.workload import Workload
from ringcast.traces.schema import TABLES, columns

PAGE = ROOT / "docs" / "simulator.md"


def one_line(thing: object) -> str:
    """A docstring on one line, as Markdown."""
    return " ".join((inspect.getdoc(thing) or "").split()).replace("``", "`")


def kinds_table(kinds: Iterable[type[msgspec.Struct]], common: set[str]) -> str:
    """Structs that are told apart by ``kind``: their fields and what they mean."""
    rows = ["| kind | fields | what |", "| --- | --- | --- |"]
    for kind in kinds:
        own = [field for field in kind.__struct_fields__ if field not in common]
        fields = ", ".join(f"`{field}`" for field in own)
        rows.append(f"| `{kind.__struct_config__.tag}` | {fields} | {one_line(kind)} |")
    return "\n".join(rows)


def commands_list() -> str:
    """The commands of scenario files."""
    return "\n".join(f"- {one_line(command)}" for command in COMMANDS.values())


def tables_table() -> str:
    """The tables of a trace and their columns."""
    rows = ["| table | events | columns |", "| --- | --- | --- |"]
    for table, kinds in TABLES.items():
        names = ", ".join(kind.__name__ for kind in kinds)
        rows.append(f"| `{table}` | {names} | {', '.join(c.name for c in columns(table))} |")
    return "\n".join(rows)


def measures_table() -> str:
    """What a sweep can measure."""
    rows = ["| measure | what | needs `measure_from_us` |", "| --- | --- | --- |"]
    for name, measure in MEASURES.items():
        rows.append(f"| `{name}` | {measure.text} | {'yes' if measure.timed else ''} |")
    return "\n".join(rows)


def pages() -> dict[Path, str]:
    """None."""
    return {}


def blocks() -> dict[tuple[Path, str], str]:
    """The marked blocks of the pages on the simulator, on traces and on the pipeline."""
    shared = {"senders", "sizes", "safe", "start_us"}
    return {
        (PAGE, "faults"): kinds_table(get_args(Fault), {"at_us"}),
        (PAGE, "workloads"): kinds_table(get_args(Workload), shared),
        (PAGE, "networks"): ", ".join(f"`{name}`" for name in PRESETS) + ".",
        (PAGE, "commands"): commands_list(),
        (ROOT / "docs" / "traces.md", "tables"): tables_table(),
        (ROOT / "docs" / "pipeline.md", "measures"): measures_table(),
    }
