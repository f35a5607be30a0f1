"""Every cell of Totem's dispatch table is reached by some run, unless it is impossible."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from pathlib import Path

from ringcast.core.machine import Impossible, name
from ringcast.protocols.totem_single.machine import TotemSingle
from ringcast.sim.run import run
from ringcast.sim.swarm import draw

ROOT = Path(__file__).parents[2]
CELLS = {f"{phase}/{name(key)}": cell for (phase, key), cell in TotemSingle.table.cells.items()}
IMPOSSIBLE = {at for at, cell in CELLS.items() if isinstance(cell, Impossible)}

LIKELY = (49, 92, 106, 341)
"""Seeds that reach everything; the rarest cell, Encapsulated in Commit, needs the last one."""

OTHERS = range(150, 500)
"""Where to look on when a change of the protocol has made those take another course."""


def test_every_cell_is_reached_or_impossible() -> None:
    visits: Counter[str] = Counter()
    for seed in chain(LIKELY, OTHERS):
        visits.update(run(draw(seed)).visits)
        if visits.keys() >= CELLS.keys() - IMPOSSIBLE:
            break
    assert visits.keys() <= CELLS.keys()
    assert not IMPOSSIBLE & visits.keys()
    assert not CELLS.keys() - IMPOSSIBLE - visits.keys(), "cells that no run reaches"


def test_impossible_cells_say_why() -> None:
    assert all(len(CELLS[at].reason) > 20 for at in IMPOSSIBLE)


def test_the_record_of_ten_thousand_seeds_is_what_the_page_says() -> None:
    record = json.loads((ROOT / "bench" / "results" / "swarm.json").read_text("utf-8"))
    assert (record["runs"], record["violations"]) == (10_000, [])
    visits = {f"{row['phase']}/{row['input']}": row["visits"] for row in record["coverage"]}
    assert visits.keys() == CELLS.keys(), "the table has changed: run the seeds again"
    assert {at for at, times in visits.items() if not times} == IMPOSSIBLE
    page = (ROOT / "docs" / "simulator.md").read_text("utf-8").split("## What was run")[1]
    assert f"at commit {record['commit']}: 10,000 groups" in page
    assert all(f"{times:,}" in page for times in visits.values() if times)
    assert all(CELLS[at].reason in page for at in IMPOSSIBLE)
