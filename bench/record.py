"""Where the figures go: JSON beside the machine and the commit they were measured on."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results"


def write(name: str, figures: dict[str, Any]) -> Path:
    """Write ``figures`` to ``results/name.json``."""
    RESULTS.mkdir(exist_ok=True)
    machine = {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    file = RESULTS / f"{name}.json"
    record = {"commit": commit(), "sources": sources(), "machine": machine, **figures}
    file.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    return file


def read(name: str) -> dict[str, Any]:
    """What ``results/name.json`` holds, for those that go on from there."""
    file = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_bytes()) if file.exists() else {}
    return found


@contextmanager
def alone() -> Iterator[None]:
    """Within it no other process writes a record: for campaigns of which several run at once."""
    RESULTS.mkdir(exist_ok=True)
    folder = os.open(RESULTS, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def git(*words: str) -> str:
    """What git says of this checkout."""
    told = subprocess.run(
        ("git", *words), cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return told.stdout.strip()


def commit() -> str:
    """The commit measured, with a plus sign if the sources differ from it."""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (
        "+" if git("status", "--porcelain", "--", "../src") else ""
    )


def sources() -> str:
    """The tree of the sources, the same in every commit that has them: commits may be put together
    anew."""
    return git("rev-parse", "--short", "HEAD:src")


def spread(values: list[float]) -> dict[str, float]:
    """Median and extremes of repeated measurements."""
    return {"median": median(values), "least": min(values), "most": max(values)}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table, aligned for a terminal."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    )
