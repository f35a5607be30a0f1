"""This checkout beside another one, in one interleaved run: has anything become slower?

    git worktree add /tmp/before COMMIT
    python bench/against.py /tmp/before

Live members over loopback and over a bridge of their own (which needs root), the simulator, and the
machine alone. Each contestant runs with the sources of its own checkout. The
ratios are those of one round each, in the direction in which more is better: 0.97 is 3 % worse.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from promises import figure
from record import spread, table, write

HERE = Path(__file__).parents[1]
BRIDGE = ("--namespaces", "--multicast")
LIVE: Mapping[str, tuple[str, ...]] = {
    "64 B, loopback": (),
    "64 B, bridge": BRIDGE,
    "1 KiB, bridge": (*BRIDGE, "--size", "1024"),
    "1 KiB with keys, bridge": (*BRIDGE, "--size", "1024", "--keys"),
    "60 KB, bridge": (*BRIDGE, "--size", "60000"),
    "64 B, TOTAL, bridge": (*BRIDGE, "--protocol", "total"),
    "64 B, token-fd, loopback": ("--protocol", "token-fd"),
    "1 KiB with journals, bridge": (*BRIDGE, "--size", "1024", "--journal"),
}
"""Messages a second, flat out."""

PACED: Mapping[str, tuple[str, ...]] = {
    "1 / p50 at 400 messages/s, bridge": (*BRIDGE, "--rate", "400"),
    "1 / p50 at 400 messages/s, loopback": ("--rate", "400"),
}


def python(tree: Path, *arguments: str) -> str:
    """What this Python prints with the sources of a checkout."""
    env = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(
        [sys.executable, *arguments], env=env, cwd=tree, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{tree}: {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout


def live(tree: Path, options: Iterable[str], seconds: float) -> dict[str, Any]:
    """One window of live members."""
    asked = ("bench", "live", "--json", "--seconds", str(seconds), *options)
    found: dict[str, Any] = json.loads(python(tree, "-m", "ringcast.cli", *asked))
    return found


def throughput(options: Iterable[str], seconds: float, tree: Path) -> dict[str, float]:
    """Messages a second."""
    return {"": live(tree, options, seconds)["messages_per_s"]}


def latency(options: Iterable[str], seconds: float, tree: Path) -> dict[str, float]:
    """The reciprocal of the median, so that more is better."""
    return {"": 1000 / live(tree, options, 2 * seconds)["latency_ms"]["p50"]}


def recorded(tree: Path, script: str, *arguments: str) -> dict[str, Any]:
    """What a benchmark of the checkout writes down; its record is put back."""
    file = tree / "bench" / "results" / f"{script}.json"
    before = file.read_bytes()
    try:
        python(tree, f"bench/{script}.py", *arguments)
        found: dict[str, Any] = json.loads(file.read_bytes())
    finally:
        file.write_bytes(before)
    return found


def simulator(tree: Path) -> dict[str, float]:
    """Frames a second in the simulator, bare and checked, and the swarm's pace."""
    found = recorded(tree, "simulator", "--repeats", "3", "--seeds", "40")
    told = {
        f", {load}, {kind}": figures["frames_per_s"]["median"]
        for load, kinds in found["totem"].items()
        for kind, figures in kinds.items()
    }
    light = found["frames_per_s"]["ringcast"]["median"]
    return {", light ring": light, ", swarm": found["swarm"]["seeds_per_core_minute"], **told}


def machine(tree: Path) -> dict[str, float]:
    """Frames a second of the Totem machine alone."""
    found = recorded(tree, "machine", "--repeats", "5")["us_per_frame"]
    return {f", {what}": 1e6 / figures["median"] for what, figures in found.items()}


Measure = Callable[[Path], dict[str, float]]


def measures(seconds: float) -> dict[str, Measure]:
    """Everything that is measured, by name."""
    found: dict[str, Measure] = {}
    for name, options in LIVE.items():
        found[f"live, {name}"] = partial(throughput, options, seconds)
    for name, options in PACED.items():
        found[f"live, {name}"] = partial(latency, options, seconds)
    return {**found, "simulator": simulator, "machine": machine}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a live window")
    parser.add_argument("--only", default="", help="measures whose name begins so")
    asked = parser.parse_args()
    other = asked.other.resolve()
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    for round in range(asked.rounds):
        for name, measure in measures(asked.seconds).items():
            if not name.startswith(asked.only):
                continue
            order = [(HERE, ours), (other, theirs)]
            for tree, book in order if round % 2 else reversed(order):
                for what, value in measure(tree).items():
                    book.setdefault(name + what, []).append(value)
            print(f"{round + 1}/{asked.rounds}  {name}", flush=True)
    shared = [name for name in ours if name in theirs]
    ratios = {n: [a / b for a, b in zip(ours[n], theirs[n], strict=True)] for n in shared}
    rows = [
        (
            name,
            figure(median(ours[name])),
            figure(median(theirs[name])),
            f"{median(each):.3f} ({min(each):.3f} to {max(each):.3f})",
        )
        for name, each in ratios.items()
    ]
    print("\n" + table(("more is better", "this", "other", "ratio (extremes)"), rows))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=other, capture_output=True, text=True
    ).stdout.strip()
    if not asked.only:
        file = write(
            "against", {"other": commit, "ratios": {n: spread(r) for n, r in ratios.items()}}
        )
        print(f"\nwritten to {file.parent.name}/{file.name}")


if __name__ == "__main__":
    main()
