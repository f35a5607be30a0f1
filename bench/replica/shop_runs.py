"""The record of live runs of the ticket shop: is a seat ever sold twice, or a sale forgotten?

``shop_runs.py [--seeds 50] [--seats 1000] [--minutes 30]`` runs the seeds that the record
``bench/results/tickets.json`` has not, one after the other, and adds each to it: three processes
and a fourth that joins late, kill -9 of any and of all, partitions that move, a lost disk. No run
begins later than ``--minutes``; the next call goes on from there. ``--anew`` forgets the record
first. It ends with 1 if a run went wrong; that one is in the record, and is run again by the next
call.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "examples"))

from record import RESULTS, commit, write
from ticket_run import Run, Wrong

NAME = "tickets"


def one(seed: int, seats: int) -> dict[str, Any]:
    """What came of a seed."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        run, wrong, sold = Run(seed, Path(root), seats, faults=12), "", 0
        try:
            sold = run.go()
        except Wrong as error:
            wrong = str(error)
    return {
        "seed": seed,
        "commit": commit(),
        "seats": seats,
        "sold_meanwhile": sold,
        "seconds": round(time.monotonic() - began_s, 1),
        "met": dict(sorted(run.met.items())),
        "wrong": wrong,
    }


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--seats", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--anew", action="store_true")
    asked = parser.parse_args()
    end_s = time.monotonic() + 60 * asked.minutes
    file = RESULTS / f"{NAME}.json"
    runs: list[dict[str, Any]] = []
    if file.exists() and not asked.anew:
        runs = [each for each in json.loads(file.read_text())["runs"] if not each["wrong"]]
    known = {each["seed"] for each in runs}
    wrong = False
    for seed in range(asked.seeds):
        if seed in known or time.monotonic() > end_s:
            continue
        found = one(seed, asked.seats)
        print(found, flush=True)
        runs.append(found)
        wrong = wrong or bool(found["wrong"])
        write(NAME, {"runs": sorted(runs, key=lambda each: int(each["seed"]))})
    sys.exit(wrong)


if __name__ == "__main__":
    main()
