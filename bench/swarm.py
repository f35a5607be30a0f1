"""The record of swarm runs: do the protocols keep what they claim, under any faults?

``swarm.py totem|total|token-fd|counter`` writes ``bench/results/swarm-PROTOCOL.json``, from which
``make docs`` writes tables. A record consists of calls of ``ringcast sim``; what each prints is
kept in a folder named after the commit, and a call whose output is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from record import commit, write

from ringcast.protocols.total import SHEET as TOTAL

FIRST = 100_000
EACH = 1000
"""Seeds of one call."""
SUMS = ("runs", "events", "deliveries", "views", "frames", "simulated_s", "wall_s")


def seeds(count: int, first: int = FIRST) -> Iterator[str]:
    """``count`` seeds, as options of several calls."""
    for at in range(first, first + count, EACH):
        yield f"--seeds {at}..{at + EACH}"


PLANS: dict[str, dict[str, list[str]]] = {
    "totem": {"totem": list(seeds(10_000))},
    "total": {
        mode: [
            f"--profile {mode} --nodes {nodes} {some}"
            for nodes in range(3, 8)
            for some in seeds(2000, FIRST + 2000 * nodes)
        ]
        for mode in TOTAL.profiles
    },
    "token-fd": {"token-fd": list(seeds(20_000))},
    "counter": {"counter": list(seeds(20_000))},
}
"""By protocol and mode, the options of each call. Without ``--nodes`` a swarm draws the members."""


def report(folder: Path, command: str, jobs: int) -> dict[str, Any]:
    """What a command prints, or has printed."""
    file = folder / (command.removeprefix("ringcast sim ").replace(" ", "") + ".json")
    if not file.exists():
        words = [*command.split()[1:], "--jobs", str(jobs), "--coverage", "--json"]
        done = subprocess.run([sys.executable, "-m", "ringcast.cli", *words], capture_output=True)
        if not done.stdout:
            sys.exit(done.stderr.decode())
        file.write_bytes(done.stdout)
        print(f"{command} -> {done.returncode}", flush=True)
    found: dict[str, Any] = json.loads(file.read_bytes())
    return found


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
            claim: [sum(each["judged"][claim][i] for each in reports) for i in (0, 1)]
            for claim in reports[0]["judged"]
        },
        "violations": [breach for each in reports for breach in each["violations"]],
        "coverage": [
            row | {"visits": visits[row["phase"], row["input"]]} for row in reports[0]["coverage"]
        ],
    }


def main() -> None:
    """Run what is missing, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("protocol", choices=PLANS)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    folder = Path("out", f"swarm-{asked.protocol}-{commit()}")
    folder.mkdir(parents=True, exist_ok=True)
    modes = {
        mode: [f"ringcast sim --protocol {asked.protocol} {some}" for some in calls]
        for mode, calls in PLANS[asked.protocol].items()
    }
    print(
        write(
            f"swarm-{asked.protocol}",
            {
                "commands": [command for commands in modes.values() for command in commands],
                "modes": {
                    mode: merged([report(folder, command, asked.jobs) for command in commands])
                    for mode, commands in modes.items()
                },
            },
        )
    )


if __name__ == "__main__":
    main()
