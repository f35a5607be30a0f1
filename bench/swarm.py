"""The record of swarm runs: do the protocols keep what they claim, under any faults?

``swarm.py PROTOCOL`` writes ``bench/results/swarm-PROTOCOL.json``,
from which ``make docs`` writes tables. A record consists of calls of ``ringcast sim``; what each
prints is kept in a folder named after the commit, and a call whose output is there is not made
again.

``swarm.py outsider`` does the same with somebody on the path who has no key, for every protocol in
turn, and writes ``outsider.json``, where each call names the commit that made it: those of earlier
commits count, and later ones go on from there. With ``--minutes`` no call begins later than that;
the record holds what was run, and the next call of the same commit goes on from there. ``--modes``
names those to run now, the cheapest first for instance.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from record import commit, read, write

from ringcast.core.registry import protocols
from ringcast.protocols.total import SHEET as TOTAL

FIRST = 3_000_000
EACH = 1000
"""Seeds of one call."""
SUMS = ("runs", "events", "deliveries", "views", "frames", "simulated_s", "wall_s")


OUTSIDER = "outsider"


def seeds(count: int, first: int = FIRST, each: int = EACH) -> Iterator[str]:
    """``count`` seeds, as options of several calls."""
    for at in range(first, first + count, each):
        yield f"--seeds {at}..{at + each}"


PLANS: dict[str, dict[str, list[str]]] = {
    "totem": {"totem": list(seeds(30_000))},
    "total": {
        mode: [
            f"--profile {mode} --nodes {nodes} {some}"
            for nodes in range(3, 8)
            for some in seeds(2000, FIRST + 2000 * nodes)
        ]
        for mode in TOTAL.profiles
    },
    "token-fd": {"token-fd": list(seeds(30_000))},
    "counter": {"counter": list(seeds(30_000))},
    "rbp": {"rbp": list(seeds(30_000))},
    "irbp": {"irbp": list(seeds(30_000))},
    "totem-multi": {"totem-multi": list(seeds(8000, each=200))},
    OUTSIDER: {
        sheet.name: [f"--outsider 0.15 {some}" for some in seeds(5000, each=100)]
        for sheet in protocols()
        if not sheet.fixed or sheet.swarm.crashes(3)  # the others stop with their first member
    },
}
"""By protocol and mode, the options of each call. Without ``--nodes`` a swarm draws the members."""


def kept(folder: Path, command: str) -> Path:
    """Where what a command printed is kept."""
    return folder / (command.removeprefix("ringcast sim ").replace(" ", "") + ".json")


def run(folder: Path, command: str, jobs: int) -> None:
    """Make a call, unless it was made before."""
    file = kept(folder, command)
    if not file.exists():
        words = [*command.split()[1:], "--jobs", str(jobs), "--coverage", "--json"]
        done = subprocess.run([sys.executable, "-m", "ringcast.cli", *words], capture_output=True)
        if not done.stdout:
            sys.exit(done.stderr.decode())
        file.write_bytes(done.stdout)
        print(f"{command} -> {done.returncode}", flush=True)


def in_turn(modes: dict[str, list[str]]) -> list[str]:
    """One call of each mode, then the next of each: a record that ends early has some of all."""
    rounds = zip_longest(*modes.values())
    return [command for some in rounds for command in some if command is not None]


def merged(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Reports of several calls as one."""
    faults: Counter[str] = Counter()
    visits: Counter[tuple[str, str]] = Counter()
    for each in reports:
        faults.update(each["faults"])
        visits.update({(row["phase"], row["input"]): row["visits"] for row in each["coverage"]})
    return {
        **{name: round(sum(each[name] for each in reports), 3) for name in SUMS},
        "faults": dict(sorted(faults.items())),
        "judged": {
            claim: [sum(each["judged"].get(claim, (0, 0))[i] for each in reports) for i in (0, 1)]
            for claim in reports[-1]["judged"]
        },
        "violations": [breach for each in reports for breach in each["violations"]],
        "coverage": [
            row | {"visits": visits[row["phase"], row["input"]]} for row in reports[-1]["coverage"]
        ],
    }


def main() -> None:
    """Run what is missing, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", choices=PLANS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10**6)
    parser.add_argument("--modes", nargs="+")
    asked = parser.parse_args()
    if unknown := {*(asked.modes or ())} - {*PLANS[asked.record]}:
        parser.error(f"no mode of {asked.record}: {', '.join(sorted(unknown))}")
    name = asked.record if asked.record == OUTSIDER else f"swarm-{asked.record}"
    folder = Path("out", f"{name}-{commit()}")
    folder.mkdir(parents=True, exist_ok=True)
    modes = {
        mode: [
            f"ringcast sim --protocol {mode if asked.record == OUTSIDER else asked.record} {some}"
            for some in calls
        ]
        for mode, calls in PLANS[asked.record].items()
    }
    former = {"made": {}, "modes": {}} | (read(name) if asked.record == OUTSIDER else {})
    deadline = time.monotonic() + 60 * asked.minutes
    for command in in_turn({mode: modes[mode] for mode in asked.modes or modes}):
        if command not in former["made"] and time.monotonic() < deadline:
            run(folder, command, asked.jobs)
    made: dict[str, str] = dict(former["made"])
    found: dict[str, list[dict[str, Any]]] = {mode: [r] for mode, r in former["modes"].items()}
    for mode, calls in modes.items():
        for command in calls:
            if command not in made and (file := kept(folder, command)).exists():
                made[command] = commit()
                found.setdefault(mode, []).append(json.loads(file.read_bytes()))
    record = {"made": made, "modes": {mode: merged(reports) for mode, reports in found.items()}}
    print(write(name, record))


if __name__ == "__main__":
    main()
