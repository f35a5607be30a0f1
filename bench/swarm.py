"""The record of TOTAL's swarm: 10,000 seeds in each mode, groups of 3 to 7 members.

``swarm.py`` takes two hours of one core and writes ``bench/results/swarm-total.json``, from which
``make docs`` writes tables. It consists of calls of ``ringcast sim``, one for each mode and number
of members; what they print is kept in the folder of ``--parts``, and a call whose output is there
already is not made again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from record import write

from ringcast.protocols.total import SHEET

NODES = range(3, 8)
EACH = 2000
FIRST = 100_000
SUMS = ("runs", "events", "deliveries", "views", "frames", "simulated_s", "wall_s")


def command(mode: str, nodes: int, jobs: int) -> list[str]:
    """2,000 seeds of their own for each number of members."""
    first = FIRST + EACH * (nodes - NODES[0])
    return (
        f"ringcast sim --protocol total --profile {mode} --nodes {nodes} "
        f"--seeds {first}..{first + EACH} --jobs {jobs} --coverage --json"
    ).split()


def part(folder: Path, mode: str, nodes: int, jobs: int) -> dict[str, Any]:
    """One call, or what an earlier one printed."""
    file = folder / f"{mode}-{nodes}.json"
    if not file.exists():
        program, *words = command(mode, nodes, jobs)
        done = subprocess.run([sys.executable, "-m", "ringcast.cli", *words], capture_output=True)
        if not done.stdout:
            sys.exit(done.stderr.decode())
        file.write_bytes(done.stdout)
        print(program, *words, f"-> {done.returncode}", flush=True)
    found: dict[str, Any] = json.loads(file.read_bytes())
    return found


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Reports of several calls as one."""
    faults: Counter[str] = Counter()
    for each in parts:
        faults.update(each["faults"])
    visits: Counter[tuple[str, str]] = Counter()
    for each in parts:
        for row in each["coverage"]:
            visits[row["phase"], row["input"]] += row["visits"]
    return {
        **{name: round(sum(each[name] for each in parts), 3) for name in SUMS},
        "faults": dict(sorted(faults.items())),
        "judged": {
            claim: [sum(each["judged"][claim][i] for each in parts) for i in (0, 1)]
            for claim in parts[0]["judged"]
        },
        "violations": [breach for each in parts for breach in each["violations"]],
        "coverage": [
            row | {"visits": visits[row["phase"], row["input"]]} for row in parts[0]["coverage"]
        ],
    }


def main() -> None:
    """Run what is missing, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=Path, default=Path("out/swarm-total"))
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    asked.parts.mkdir(parents=True, exist_ok=True)
    modes = {
        mode: merged([part(asked.parts, mode, nodes, asked.jobs) for nodes in NODES])
        for mode in SHEET.profiles
    }
    commands = [" ".join(command(mode, n, asked.jobs)) for mode in modes for n in NODES]
    print(write("swarm-total", {"commands": commands, "modes": modes}))


if __name__ == "__main__":
    main()
