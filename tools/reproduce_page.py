"""The tables of docs/reproduce.md: the record of full runs of ``ringcast reproduce``.

``python tools/reproduce_page.py DIR`` takes the experiments of a full run with ``--out DIR`` into
the record; those that it did not make stay as they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from tags import ROOT

from ringcast.pipeline.papers.experiments import names
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


def taken_in(record: Results, new: Results) -> Results:
    """The record with what a further full run found."""
    if new.quick:
        raise SystemExit("a quick run is no record")
    found = {each.name: each for each in (*record.experiments, *new.experiments)}
    order = [name for name in names() if name in found]
    return msgspec.structs.replace(new, experiments=tuple(found[name] for name in order))


if __name__ == "__main__":
    both = [
        msgspec.json.decode(path.read_bytes(), type=Results)
        for path in (RECORD, Path(sys.argv[1]) / "results.json")
    ]
    RECORD.write_bytes(msgspec.json.format(msgspec.json.encode(taken_in(*both)), indent=1) + b"\n")
