"""The tables of docs/reproduce.md: the record of a full run of ``ringcast reproduce``."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tags import ROOT

from ringcast.pipeline.papers.paper_page import Results
from ringcast.pipeline.papers.reproduce import Finding

PAGE = ROOT / "docs" / "reproduce.md"
RECORD = ROOT / "bench" / "results" / "reproduce.json"

WORDS = {True: "agrees", False: "**differs**", None: ""}


def table(found: Finding) -> str:
    """An experiment's claims, theirs and ours."""
    rows = [
        f"**{found.title}** (`{found.name}`): {found.verdict}. {found.source}.",
        "",
        "| | paper | ours | |",
        "| --- | --- | --- | --- |",
    ]
    rows += [f"| {c.text} | {c.paper} | {c.ours} | {WORDS[c.agrees]} |" for c in found.claims]
    return "\n".join(rows)


def pages() -> dict[Path, str]:
    """None."""
    return {}


def blocks() -> dict[tuple[Path, str], str]:
    """All tables of the record."""
    results = msgspec.json.decode(RECORD.read_bytes(), type=Results)
    return {(PAGE, "results"): "\n\n".join(map(table, results.experiments))}
