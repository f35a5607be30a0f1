"""The record of live runs of the ticket shop: is a seat ever sold twice, or a sale forgotten?

``shop_runs.py [--seeds 50] [--seats 1000] [--minutes 30] [PROTOCOL ...]`` runs the seeds that the
record ``bench/results/tickets.json`` has not, a seed over each protocol in turn, and adds each to
it: three processes and a fourth that joins late, kill -9 of any and of all, partitions that move, a
lost disk. No run begins later than ``--minutes``; the next call goes on from there, and several may
run at once if each has protocols of its own. ``--anew`` forgets their record first. It ends with 1
if a run went wrong; that one is in the record, and is run again by the next call.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "examples"))

from record import alone, commit, read, write
from ticket_run import Run, Wrong

NAME = "tickets"
PROTOCOLS = ("totem", "total", "counter", "rbp", "irbp", "totem-multi")
"""Those whose members come back."""


def one(seed: int, protocol: str, seats: int) -> dict[str, Any]:
    """What came of a seed."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        run, wrong, sold = Run(seed, Path(root), seats, 12, protocol=protocol), "", 0
        try:
            sold = run.go()
        except Wrong as error:
            wrong = str(error)
    return {
        "seed": seed,
        "protocol": protocol,
        "commit": commit(),
        "seats": seats,
        "sold_meanwhile": sold,
        "seconds": round(time.monotonic() - began_s, 1),
        "met": dict(sorted(run.met.items())),
        "wrong": wrong,
    }


def kept(found: dict[str, Any]) -> None:
    """Put what came of a seed into the record."""
    with alone():
        runs = [
            each
            for each in read(NAME).get("runs", ())
            if (each["protocol"], each["seed"]) != (found["protocol"], found["seed"])
        ]
        write(NAME, {"runs": sorted([*runs, found], key=lambda r: (r["protocol"], r["seed"]))})


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("protocols", nargs="*", default=PROTOCOLS)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--seats", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--anew", action="store_true")
    asked = parser.parse_args()
    if unknown := set(asked.protocols) - set(PROTOCOLS):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(PROTOCOLS)}")
    end_s = time.monotonic() + 60 * asked.minutes
    runs = () if asked.anew else read(NAME).get("runs", ())
    known = {(each["protocol"], each["seed"]) for each in runs if not each["wrong"]}
    wrong = False
    for seed in range(asked.seeds):
        for protocol in asked.protocols:
            if (protocol, seed) not in known and time.monotonic() < end_s:
                found = one(seed, protocol, asked.seats)
                print(found, flush=True)
                kept(found)
                wrong = wrong or bool(found["wrong"])
    sys.exit(wrong)


if __name__ == "__main__":
    main()
