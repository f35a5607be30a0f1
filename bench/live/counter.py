"""The counter-based protocol beside Totem: three members, 64 bytes, every message safe, flat out.

``counter.py`` takes two minutes and writes ``bench/results/counter.json``: pairs of runs over
loopback, each pair in the other order, so that what else the machine does falls on both. The rates
and what a message costs in processor time are told apart: on a busy machine members wait for their
turn to run, and a protocol with a longer way to delivery waits more often.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from record import spread, table, write
from windows import sound

from ringcast.bench.run import Trial, run
from ringcast.core.ids import Level

PAIR = ("totem", "counter")
FIGURES = {
    "messages_per_s": "messages a second",
    "messages_per_cpu_s": "messages for a second of processor time",
    "p50_ms": "latency, median, ms",
}


def measured(protocol: str, seconds: float) -> dict[str, float]:
    """One run of one of them."""
    found = sound(
        run(Trial(nodes=3, size=64, seconds=seconds, level=Level.SAFE, protocol=protocol))
    )
    assert found.latency_ms is not None
    return {
        "messages_per_s": found.messages_per_s,
        "messages_per_cpu_s": found.messages_per_s * found.seconds / found.cpu_s,
        "p50_ms": found.latency_ms.p50,
    }


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in PAIR}
    load: list[float] = []
    for number in range(asked.pairs):
        load.append(os.getloadavg()[0])
        for name in PAIR if number % 2 else PAIR[::-1]:
            runs[name].append(measured(name, asked.seconds))
        totem, counter = (runs[name][-1]["messages_per_s"] for name in PAIR)
        print(f"totem {totem:,.0f}, counter {counter:,.0f}: {counter / totem:.3f}", flush=True)
    figures = {
        figure: {
            **{name: spread([each[figure] for each in runs[name]]) for name in PAIR},
            "counter over totem": spread(
                [c[figure] / t[figure] for t, c in zip(*(runs[name] for name in PAIR), strict=True)]
            ),
        }
        for figure in FIGURES
    }
    rows = [
        (FIGURES[figure], *(f"{each[name]['median']:,.0f}" for name in PAIR), shown(each))
        for figure, each in figures.items()
    ]
    print(table(("", *PAIR, "counter over totem, in pairs"), rows))
    print(write("counter", {"pairs": asked.pairs, "load": spread(load), **figures}))


def shown(each: dict[str, dict[str, float]]) -> str:
    """A ratio, with its extremes."""
    ratio = each["counter over totem"]
    return f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"


if __name__ == "__main__":
    main()
