"""The record of simulated programs: no seat sold twice, and a catalogue of bugs, each found.

``simulated.py shops`` runs the ticket shop of ``tests/testing/ticket_shop.py`` over each protocol
that offers a membership, 10,000 seeds each. ``simulated.py catalogue`` runs the programs of
``tests/testing/seeded_bugs.py``: 1,000 seeds with the bug, 10,000 without it. Each writes
``bench/results/simulated-NAME.json``.

What a piece of some seeds gave is kept in a folder named after the commit, and not run again. With
``--minutes`` no piece begins later than that; the record holds what was run, and the next call at
the same commit goes on from there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from record import commit, write

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "testing"))

from seeded_bugs import CATALOGUE
from ticket_shop import RETURNING, one

from ringcast.testing.run import Outcome

SEEDS, FOUND_WITHIN = 10_000, 1_000
EACH = 20
"""Seeds of a piece."""

Run = Callable[[int], Outcome]


def shops() -> dict[str, tuple[int, Run]]:
    """By protocol: how many seeds, and how to run one."""
    return {name: (SEEDS, partial(one, protocol=name)) for name in RETURNING}


def catalogue() -> dict[str, tuple[int, Run]]:
    """By program, broken or not."""
    runs: dict[str, tuple[int, Run]] = {}
    for name, bug in CATALOGUE.items():
        runs[f"{name}, broken"] = (FOUND_WITHIN, partial(bug.run, broken=True))
        runs[name] = (SEEDS, partial(bug.run, broken=False))
    return runs


RECORDS = {"shops": shops, "catalogue": catalogue}


def piece(run: Run, first: int) -> dict[str, Any]:
    """Run some seeds."""
    began_s, failed, met = time.process_time(), [], Counter[str]()
    for seed in range(first, first + EACH):
        outcome = run(seed)
        met.update({name: int(seen) for name, seen in outcome.met.items()})
        if outcome.error is not None:
            failed.append([seed, outcome.kind, str(outcome.error)[:200]])
    spent_s = time.process_time() - began_s
    return {"seeds": EACH, "cpu_s": spent_s, "failed": failed, "met": dict(met)}


def in_turn(modes: dict[str, tuple[int, Run]]) -> Iterator[tuple[str, int]]:
    """A piece of each mode, then the next of each: a record that ends early has some of all."""
    each = [[(name, at) for at in range(0, count, EACH)] for name, (count, _) in modes.items()]
    for some in zip_longest(*each):
        yield from (mode for mode in some if mode is not None)


def merged(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """Pieces of one mode."""
    met: Counter[str] = Counter()
    for each in pieces:
        met.update(each["met"])
    failed = [seed for each in pieces for seed in each["failed"]]
    seeds, cpu_s = (sum(each[name] for each in pieces) for name in ("seeds", "cpu_s"))
    return {
        "seeds": seeds,
        "seeds_per_cpu_s": round(seeds / cpu_s, 2),
        "failed": len(failed),
        "density": len(failed) / seeds,
        "first": failed[:20],
        "met": dict(met),
    }


def main() -> None:
    """Run what is missing, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", choices=RECORDS)
    parser.add_argument("only", nargs="*", help="these protocols or programs alone")
    parser.add_argument("--minutes", type=float, default=10**6)
    asked = parser.parse_args()
    name = f"simulated-{asked.record}"
    folder = Path("out", f"{name}-{commit()}")
    folder.mkdir(parents=True, exist_ok=True)
    modes = RECORDS[asked.record]()
    if unknown := set(asked.only) - modes.keys():
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(modes)}")
    deadline = time.monotonic() + 60 * asked.minutes
    found: dict[str, list[dict[str, Any]]] = {}
    for mode, first in in_turn(modes):
        file = folder / f"{mode}-{first}.json"
        if not file.exists():
            if time.monotonic() > deadline or (asked.only and mode not in asked.only):
                continue
            file.write_text(json.dumps(piece(modes[mode][1], first)), "utf-8")
        found.setdefault(mode, []).append(json.loads(file.read_bytes()))
    record = {mode: merged(pieces) for mode, pieces in found.items()}
    for mode, told in record.items():
        print(f"{mode}: {told['failed']} of {told['seeds']} failed {told['first'][:3]}")
    print(write(name, {"modes": record}))


if __name__ == "__main__":
    main()
