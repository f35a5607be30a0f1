"""Every cell of a dispatch table is reached by some run, unless it is impossible."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from ringcast.core.machine import Impossible, name
from ringcast.protocols.totem_single.machine import TotemSingle
from ringcast.sim.run import run
from ringcast.sim.swarm import draw

CELLS = {f"{phase}/{name(key)}": cell for (phase, key), cell in TotemSingle.table.cells.items()}
REASONS = {at: cell.reason for at, cell in CELLS.items() if isinstance(cell, Impossible)}
IMPOSSIBLE = REASONS.keys()

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
    assert all(len(reason) > 20 for reason in REASONS.values())
