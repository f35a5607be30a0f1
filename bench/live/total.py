"""TOTAL beside JGroups' SEQUENCER and beside Totem, in one interleaved run.

``total.py --all`` takes about ten minutes, writes ``bench/results/total.json`` and ``total.png``,
and the tables of ``docs/performance.md``. ``--quick`` takes a minute and writes nothing. Needs
root (network namespaces) and the packages libjgroups-java and openjdk-17-jdk-headless.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jgroups
from asked import Command, keep
from jgroups import JGroups
from promises import Row, figure, ratio_table
from record import RESULTS, table
from windows import Windows, sound

from ringcast.bench import bridge
from ringcast.bench.bridge import Bridge
from ringcast.bench.run import Figures, run

SIZES = (64, 1024)
MEMBERS = (2, 3, 4, 6, 8, 10)
PROTOCOLS = ("totem", "total")
RATE = 400
N = 3
"""Members of a group beside JGroups."""

TWICE = 2
"""In each round, since JGroups' figures scatter more than others."""

ACKS = (1, 4, 16, 64)
"""How many numbers a member acknowledges at a time (k of TL-25), in a group of …"""
ACKING = 8

SCRIPT = "bench/live/total.py"
WHAT = ("us", "times")

ROWS = (
    Row("64 B messages/s over JGroups", "jgroups total 64", "jgroups 64", 3, group=str(N)),
    Row(
        f"p50 latency at {RATE} messages/s over JGroups', unbundled",
        "jgroups total p50",
        "jgroups p50",
        1.0,
        less=True,
        group=str(N),
    ),
)


def beside_jgroups(book: Windows) -> None:
    """JGroups with bundling, where that is faster, and without, where that is sooner."""
    with Bridge(N) as network, JGroups(network) as peer:
        full = book.trial(N, 64, protocol="total")
        book.note("jgroups total 64", sound(run(full, network)).messages_per_s)
        book.note("jgroups 64", sound(peer.run(full, bundling=True)).messages_per_s)
        light = book.trial(N, 64, protocol="total", rate=RATE, seconds=2 * book.seconds)
        book.note("jgroups total p50", p50(run(light, network)))
        book.note("jgroups p50", p50(peer.run(light, bundling=False)))


def beside_totem(book: Windows, n: int) -> None:
    """Throughput, latency at light load, and what the sequencer does for it."""
    with Bridge(n) as network:
        for name in PROTOCOLS:
            for size in SIZES:
                found = sound(run(book.trial(n, size, protocol=name), network))
                book.note(f"{name} {size} {n}", found.messages_per_s)
            if name == "total":
                office(book, f"multicast {n}", found)
            light = book.trial(n, 64, protocol=name, rate=RATE, seconds=2 * book.seconds)
            book.note(f"{name} p50 {n}", p50(run(light, network)))
        office(book, f"unicast {n}", sound(run(book.trial(n, protocol="total", multicast=False),
                                               network)))  # fmt: skip


def acknowledging(book: Windows) -> None:
    """What acknowledgements cost the sequencer, by how many numbers each of them is for."""
    with Bridge(ACKING) as network:
        for k in ACKS:
            trial = book.trial(ACKING, protocol="total", settings={"ack_every": k})
            office(book, f"every {k}", sound(run(trial, network)))


def p50(figures: Figures) -> float:
    """The median from sending to the sender's own delivery."""
    assert sound(figures).latency_ms is not None
    return figures.latency_ms.p50  # type: ignore[union-attr]


def office(book: Windows, what: str, figures: Figures) -> None:
    """The sequencer's processor time for a message, and how often another member's that is."""
    used = {each["id"]: each["cpu_s"] for each in figures.members}
    own = used.pop(figures.members[0]["machine"]["sequencer"])
    messages = figures.messages_per_s * figures.seconds
    book.note(f"sequencer us {what}", 1e6 * own / messages)
    book.note(f"sequencer times {what}", own / mean(used.values()))


def member_table(book: Windows) -> str:
    """TOTAL and Totem against N."""
    head = ("members", *(f"{p}, {s} B" for s in SIZES for p in PROTOCOLS),
            *(f"{p}, p50 ms" for p in PROTOCOLS))  # fmt: skip
    names = [f"{p} {s}" for s in (*SIZES, "p50") for p in PROTOCOLS]
    return table(head, lines(book, names))


def office_table(book: Windows) -> str:
    """What being the sequencer costs against N."""
    ways = ("multicast", "unicast")
    head = ("members", *(f"{way}, {what}" for way in ways for what in ("us a message", "times")))
    names = [f"sequencer {what} {way}" for way in ways for what in WHAT]
    return table(head, lines(book, names))


def ack_table(book: Windows) -> str:
    """The same against how many numbers an acknowledgement is for."""
    found = [
        (str(k), *(figure(median(book.values[f"sequencer {what} every {k}"])) for what in WHAT))
        for k in ACKS
        if f"sequencer us every {k}" in book.values
    ]
    return table(("ack_every", "us a message", "times"), found)


def lines(book: Windows, names: list[str]) -> list[tuple[str, ...]]:
    """For each number of members, the medians of what has these names."""
    return [
        (str(n), *(figure(median(book.values[f"{name} {n}"])) for name in names))
        for n in MEMBERS
        if f"{names[0]} {n}" in book.values
    ]


def plot(book: Windows, file: Path) -> None:
    """All of it against N, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    def curve(axis: Any, name: str, label: str) -> None:
        axis.plot(MEMBERS, [median(book.values[f"{name} {n}"]) for n in MEMBERS], marker="o",
                  label=label)  # fmt: skip

    chart, axes = pyplot.subplots(2, 2, figsize=(9, 6), constrained_layout=True)
    for axis, size in zip(axes[0], SIZES, strict=True):
        for name in PROTOCOLS:
            curve(axis, f"{name} {size}", name)
        axis.set(title=f"messages of {size} B", ylabel="messages/s")
    for name in PROTOCOLS:
        curve(axes[1][0], f"{name} p50", name)
    axes[1][0].set(title=f"median latency at {RATE} messages/s", ylabel="ms")
    for way in ("multicast", "unicast"):
        curve(axes[1][1], f"sequencer times {way}", way)
    axes[1][1].set(title="the sequencer's processor time", ylabel="times another member's")
    for axis in axes.flat:
        axis.set_xlabel("members")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend()
    chart.savefig(file, dpi=110)


PARTS = {
    "jgroups": "beside JGroups, three members",
    "members": "beside Totem, against the number of members",
}


def main() -> None:
    """Measure, print, write."""
    command = Command(__doc__, PARTS, "everything once, three members")
    command.parser.add_argument("--seconds", type=float, default=1.0, help="length of a window")
    asked = command.parse()
    for why in (bridge.obstacle(), jgroups.obstacle()):
        if why:
            sys.exit(f"total.py: {why}")
    book = Windows(asked.seconds, asked.picked)
    for _ in range(asked.repeats):
        if "jgroups" in asked.picked:
            for _ in range(TWICE):
                beside_jgroups(book)
        if "members" in asked.picked:
            for n in (N,) if asked.quick else MEMBERS:
                beside_totem(book, n)
            acknowledging(book)
    found = book.judged(ROWS)
    blocks = {
        "total ratios": ratio_table(found, "N"),
        "total members": member_table(book),
        "total sequencer": office_table(book),
        "total acks": ack_table(book),
    }
    print("", *blocks.values(), sep="\n\n")
    if asked.all:
        figures = {"ratios": found, "measured": book.spreads(), "seconds": asked.seconds}
        plot(book, RESULTS / "total.png")
        keep("total", SCRIPT, figures, blocks)


if __name__ == "__main__":
    main()
