"""What keys cost: throughput with them over without, in one interleaved run.

``keys.py`` writes ``bench/results/keys.json``: pairs of runs, one with keys and one without, each
pair in the other order, so that what else the machine does falls on both. Messages for a second of
the processor's time are compared besides: what else it does hardly counts there.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from msgspec.structs import replace
from record import spread, write
from windows import sound

from ringcast.bench.run import Trial, run


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=1024)
    asked = parser.parse_args()
    trial = Trial(nodes=3, size=asked.size, seconds=asked.seconds)
    ratios: list[float] = []
    rates: dict[bool, list[float]] = {True: [], False: []}
    worth: dict[bool, list[float]] = {True: [], False: []}
    load: list[float] = []
    for number in range(asked.pairs):
        told: dict[bool, float] = {}
        load.append(os.getloadavg()[0])
        for keys in (True, False) if number % 2 else (False, True):
            figures = sound(run(replace(trial, keys=keys)))
            told[keys] = figures.messages_per_s
            rates[keys].append(told[keys])
            worth[keys].append(told[keys] * figures.seconds / figures.cpu_s)
        ratios.append(told[True] / told[False])
        print(
            f"{told[True]:,.0f} with keys, {told[False]:,.0f} without: {ratios[-1]:.3f}", flush=True
        )
    record = {
        "trial": {"nodes": trial.nodes, "size": trial.size, "seconds": trial.seconds},
        "with_keys": spread(rates[True]),
        "without": spread(rates[False]),
        "ratio": spread(ratios),
        "ratio_of_medians": median(rates[True]) / median(rates[False]),
        "by_processor_time": median(worth[True]) / median(worth[False]),
        "load": spread(load),
    }
    print(write("keys", record), record)


if __name__ == "__main__":
    main()
