"""The record of simulated programs: no seat sold twice, and a catalogue of bugs, each found.

``simulated.py shops`` runs the ticket shop of ``tests/testing/ticket_shop.py`` over each protocol
that offers a membership, 10,000 seeds each. ``simulated.py programs`` runs every example, and
clients of every shared object, with 200 seeds over each of these protocols. ``simulated.py
catalogue`` runs the programs of ``tests/testing/seeded_bugs.py``: 1,000 seeds with the bug, 10,000
without it. ``simulated.py million`` runs a million seeds of one of these programs without its bug,
as ``ringcast sweep --simtest`` on Spark. Each writes ``bench/results/simulated-NAME.json``.

All but the last grow by pieces of some seeds, in turn, and say how many each commit made: the next
call goes on from there, also at a later commit. With ``--minutes`` no piece begins later than that.
Several calls may run at once if each has protocols or programs of its own; ``--anew`` forgets
theirs first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from record import alone, commit, read, write

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "testing"))

import test_examples_simulated as examples
import test_objects_simulated as objects
from seeded_bugs import CATALOGUE
from ticket_shop import RETURNING, one

from ringcast.testing.run import Outcome

SEEDS, FOUND_WITHIN, OF_PROGRAMS = 10_000, 1_000, 200
EACH = 100
"""Seeds of a piece."""

Run = Callable[[int], Outcome]


def shops() -> dict[str, tuple[int, Run]]:
    """By protocol: how many seeds, and how to run one."""
    return {name: (SEEDS, partial(one, protocol=name)) for name in RETURNING}


def programs() -> dict[str, tuple[int, Run]]:
    """By example, whose seeds take the protocols in turn; by protocol, of the shared objects."""
    runs: dict[str, tuple[int, Run]] = {}
    for name, test in vars(examples).items():
        if (campaign := getattr(test, "simtest", None)) is not None:
            each = len(examples.PROTOCOLS)
            runs[name.removeprefix("test_")] = (OF_PROGRAMS * each, campaign.one)
    for protocol in RETURNING:
        runs[f"objects, {protocol}"] = (OF_PROGRAMS, partial(objects.one, protocol=protocol))
    return runs


def catalogue() -> dict[str, tuple[int, Run]]:
    """By program, broken or not."""
    runs: dict[str, tuple[int, Run]] = {}
    for name, bug in CATALOGUE.items():
        runs[f"{name}, broken"] = (FOUND_WITHIN, partial(bug.run, broken=True))
        runs[name] = (SEEDS, partial(bug.run, broken=False))
    return runs


RECORDS = {"shops": shops, "programs": programs, "catalogue": catalogue}


MILLION = "million"
SWEPT = "tests/testing/test_seeded_bugs.py::test_a_fenced_lock_protects_what_is_written"

MOST_FAILED = 20


def add(record: dict[str, Any], run: Run) -> dict[str, Any]:
    """The record of a mode with some seeds more."""
    first, made = record.get("seeds", 0), Counter[str](record.get("made", {}))
    began_s, failed = time.process_time(), list(record.get("failed", []))
    met = Counter[str](record.get("met", {}))
    for seed in range(first, first + EACH):
        outcome = run(seed)
        met.update({name: int(seen) for name, seen in outcome.met.items()})
        if outcome.error is not None:
            failed.append([seed, outcome.kind, str(outcome.error)[:200]])
    made[commit()] += EACH
    cpu_s = record.get("cpu_s", 0.0) + time.process_time() - began_s
    seeds = first + EACH
    return {
        "seeds": seeds,
        "made": dict(made),
        "cpu_s": round(cpu_s, 1),
        "failures": record.get("failures", 0) + len(failed) - len(record.get("failed", [])),
        "failed": failed[:MOST_FAILED],
        "met": dict(met),
    }


def million() -> None:
    """A million seeds on Spark, from its start to its end."""
    words = ("sweep", "--simtest", SWEPT, "--seeds", "0..1000000", "--json")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "ringcast.cli", *words, "--out", folder],
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
        )
    report = json.loads(done.stdout)
    del report["failures"]  # a path
    write(f"simulated-{MILLION}", {"command": f"ringcast {' '.join(words)}", **report})


def main() -> None:
    """Run what is missing, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", choices=[*RECORDS, MILLION])
    parser.add_argument("only", nargs="*", help="these protocols or programs alone")
    parser.add_argument("--minutes", type=float, default=10**6)
    parser.add_argument("--anew", action="store_true")
    asked = parser.parse_args()
    if asked.record == MILLION:
        million()
        return
    name = f"simulated-{asked.record}"
    modes = RECORDS[asked.record]()
    if unknown := set(asked.only) - modes.keys():
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(modes)}")
    todo = asked.only or list(modes)
    found: dict[str, Any] = {mode: {} for mode in todo}
    if not asked.anew:
        found |= {mode: each for mode, each in read(name).get("modes", {}).items() if mode in todo}
    deadline = time.monotonic() + 60 * asked.minutes
    while missing := [mode for mode in todo if found[mode].get("seeds", 0) < modes[mode][0]]:
        for mode in missing:
            if time.monotonic() > deadline:
                return
            found[mode] = told = add(found[mode], modes[mode][1])
            with alone():
                write(name, {"modes": read(name).get("modes", {}) | {mode: told}})
            print(f"{mode}: {told['failures']} of {told['seeds']} failed", flush=True)


if __name__ == "__main__":
    main()
