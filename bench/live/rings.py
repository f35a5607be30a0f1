"""Three rings of two members and two gateways beside one ring of six, in one interleaved run.

``rings.py`` takes four minutes and root, and writes ``bench/results/rings-live.json`` and the
table of ``docs/performance.md``. Every member has a network namespace, every ring a bridge of its
own with multicast, and a gateway an interface at two of them. The ways take turns, each round in
the other order, so that what else the machine does falls on all of them. Gateways need processor
time, too: rates beside what a message costs tell the machine from the protocol.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from asked import keep
from promises import figure
from record import spread, table
from windows import Windows, sound

from ringcast.bench.bridge import Bridge, obstacle
from ringcast.bench.run import Figures, run
from ringcast.core.rings import shaped

MEMBERS = 6
SIZES = (64, 1000)
RATE = 600
"""Messages a second of all members together where latency is measured: all ways carry it easily."""

RINGS = shaped("chain", 3, MEMBERS // 3, Random(0))
GATEWAYS = {id for ring in RINGS for id in ring if id > MEMBERS}
JOINED: dict[str, Any] = {
    "protocol": "totem-multi",
    "rings": RINGS,
    "settings": {"acyclic": True},
}
WAYS: dict[str, dict[str, Any]] = {
    "totem, one ring": {},
    "totem-multi, one ring": {"protocol": "totem-multi"},
    "three rings, to all": JOINED,
    "three rings, each to its own": {**JOINED, "local": True},
}
SHOWN = {
    "messages_per_s": "messages/s",
    "messages_per_cpu_s": "for a second of processor time",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "cores": "cores",
}
"""The last three are those of the fixed rate."""

SCRIPT = "bench/live/rings.py"


def measure(book: Windows, way: str, size: int, network: Bridge) -> None:
    """One way once: as much as it can, and latency at a rate that is the same for all."""
    name = f"{way}, {size} B"
    full = sound(run(book.trial(MEMBERS, size, **WAYS[way]), network))
    book.note(f"{name}: messages_per_s", full.messages_per_s)
    book.note(f"{name}: messages_per_cpu_s", full.messages_per_s * full.seconds / full.cpu_s)
    book.note(f"{name}: gateways_share", of_gateways(full))
    light = book.trial(MEMBERS, size, rate=RATE, **WAYS[way])
    slow = sound(run(light, network))
    assert slow.latency_ms is not None
    book.note(f"{name}: p50_ms", slow.latency_ms.p50)
    book.note(f"{name}: p99_ms", slow.latency_ms.p99)
    book.note(f"{name}: cores", slow.cpu_s / slow.seconds)


def of_gateways(found: Figures) -> float:
    """What part of all processor time was the gateways'."""
    used = sum(each["cpu_s"] for each in found.members if each["id"] in GATEWAYS)
    return float(used / found.cpu_s)


def rows(figures: dict[str, dict[str, float]]) -> str:
    """The table of the page."""
    lines = [
        (f"{size} B", way, *(cell(figures[f"{way}, {size} B: {key}"]) for key in SHOWN))
        for size in SIZES
        for way in WAYS
    ]
    return table(("", "way", *SHOWN.values()), lines)


def cell(found: dict[str, float]) -> str:
    """A median, with its extremes."""
    return f"{figure(found['median'])} ({figure(found['least'])} to {figure(found['most'])})"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a window")
    asked = parser.parse_args()
    if why := obstacle():
        sys.exit(f"rings.py: network namespaces: {why}")
    book = Windows(asked.seconds, set())
    load: list[float] = []
    with (
        Bridge(MEMBERS) as one,
        Bridge(MEMBERS + len(GATEWAYS), rings=RINGS) as three,
    ):
        for number in range(asked.rounds):
            load.append(os.getloadavg()[0])
            for size in SIZES:
                for way in WAYS if number % 2 else reversed(WAYS):
                    measure(book, way, size, three if "rings" in WAYS[way] else one)
    figures = book.spreads()
    block = rows(figures)
    print("", block, sep="\n")
    said = {"rounds": asked.rounds, "seconds": asked.seconds, "rate": RATE, "load": spread(load)}
    keep("rings-live", SCRIPT, {**said, "measured": figures}, {"rings": block})


if __name__ == "__main__":
    main()
