"""RBP and iRBP beside Totem, TOTAL, token-fd and PySyncObj, in one interleaved run.

``rbp.py --all`` takes about eight minutes, writes ``bench/results/rbp.json`` and the tables of
``docs/performance.md``. ``--quick`` takes two minutes and writes nothing. Everything runs over
loopback and needs no rights. It repeats with real members what ``ringcast reproduce rbp-costs
rbp-changes`` simulates: throughput and latency by members, losses, and a kill (E12 of the study).
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import pso
from asked import Command, keep
from promises import Row, figure, ratio_table
from record import table
from windows import Windows, sound

from ringcast.bench.run import Trial, run

PROTOCOLS = ("totem", "rbp", "irbp", "total", "token-fd")
MEMBERS = (2, 3, 5, 8)
N = 3
SIZE = 64
RATE = 400
PSO_TRIES = 5

LIMIT_US = 100_000
"""Silence that all take for a crash; what else a change waits for is as in compare.py."""

IDLE_US = 20_000
"""How long the token of rbp rests if there is nothing to do."""

LIMITS: dict[str, dict[str, Any]] = {
    "token-fd": {"beat_us": 20_000, "suspect_us": LIMIT_US, "suspect_most_us": LIMIT_US},
    "irbp": {
        "beat_us": 20_000,
        "suspect_us": LIMIT_US,
        "suspect_max_us": LIMIT_US,
        "exclude_us": 10 * LIMIT_US,
        "exclude_max_us": 10 * LIMIT_US,
    },
    # R8, R19: the token may rest, then the ACK is repeated five times, and waited for once more.
    "rbp": {"idle_us": IDLE_US, "token_us": (LIMIT_US - IDLE_US) // 6, "retries": 5},
    "totem": {
        "token_loss_us": LIMIT_US,
        "token_retransmit_us": 20_000,
        "join_us": 5_000,
        "consensus_us": 20_000,
    },
}

SCRIPT = "bench/live/rbp.py"

ROWS = tuple(
    Row(title, over, under, must, less=less, group=str(N))
    for title, over, under, must, less in (
        (f"{SIZE} B messages/s, rbp over Totem", f"rbp {N}", f"totem {N}", 0.5, False),
        (f"{SIZE} B messages/s, irbp over Totem", f"irbp {N}", f"totem {N}", 0.5, False),
        (f"{SIZE} B messages/s, rbp over PySyncObj", f"rbp {N}", "PySyncObj", 20, False),
        (f"{SIZE} B messages/s, irbp over PySyncObj", f"irbp {N}", "PySyncObj", 20, False),
        ("no deliveries after kill -9, irbp over token-fd", "irbp gap", "token-fd gap", 1, True),
        ("the same, rbp over token-fd", "rbp gap", "token-fd gap", None, True),
        ("the same, irbp over Totem", "irbp gap", "totem gap", None, True),
        (f"p50 at {RATE} messages/s, rbp over Totem", f"rbp p50 {N}", f"totem p50 {N}", None, True),
        ("the same, irbp over Totem", f"irbp p50 {N}", f"totem p50 {N}", None, True),
    )
)


def trial(book: Windows, nodes: int, protocol: str, **more: Any) -> Trial:
    """A measurement over loopback."""
    return book.trial(nodes, SIZE, protocol=protocol, namespaces=False, multicast=False, **more)


def throughput(book: Windows, n: int) -> None:
    """As much as they can, and latency at a rate that all carry easily."""
    for name in PROTOCOLS:
        found = sound(run(trial(book, n, name)))
        book.note(f"{name} {n}", found.messages_per_s)
        light = sound(run(trial(book, n, name, rate=RATE, seconds=2 * book.seconds)))
        assert light.latency_ms is not None
        book.note(f"{name} p50 {n}", light.latency_ms.p50)


def failover(book: Windows) -> None:
    """One of three killed under load: the longest silence at the others."""
    for name, settings in LIMITS.items():
        killed = trial(book, N, name, rate=RATE * N, seconds=2.0, kill=True, settings=settings)
        book.note(f"{name} gap", run(killed).gap_ms)


def raft(book: Windows) -> None:
    """PySyncObj, as compare.py has it."""
    for _ in range(PSO_TRIES):  # on a busy machine its leader may be deposed, and nothing moves
        rate = pso.measure(N, SIZE, 1.0, 2 * book.seconds)["messages_per_s"]
        if rate:
            book.note("PySyncObj", rate)
            return
    raise RuntimeError("PySyncObj applied nothing; is the machine busy?")


def member_table(book: Windows) -> str:
    """Throughput and latency against N."""
    head = ("members", *PROTOCOLS, *(f"{name}, p50 ms" for name in PROTOCOLS))
    names = [f"{name}{what}" for what in ("", " p50") for name in PROTOCOLS]
    return table(
        head,
        [
            (str(n), *(figure(median(book.values[f"{name} {n}"])) for name in names))
            for n in MEMBERS
            if f"{names[0]} {n}" in book.values
        ],
    )


PARTS = {
    "throughput": "messages a second and latency, by members",
    "failover": "the silence after kill -9",
    "pysyncobj": "beside PySyncObj",
}


def main() -> None:
    """Measure, print, write."""
    command = Command(__doc__, PARTS, "everything once, three members", rounds=5)
    command.parser.add_argument("--seconds", type=float, default=1.0, help="length of a window")
    asked = command.parse()
    if "pysyncobj" in asked.picked and (why := pso.obstacle()):
        sys.exit(f"rbp.py: {why}")
    book = Windows(asked.seconds, asked.picked)
    for at in range(asked.repeats):
        if "throughput" in asked.picked:
            for n in MEMBERS if at == 0 and not asked.quick else (N,):
                throughput(book, n)
        if "failover" in asked.picked:
            failover(book)
        if "pysyncobj" in asked.picked:
            raft(book)
    found = book.judged(ROWS)
    blocks = {"rbp ratios": ratio_table(found, "N"), "rbp members": member_table(book)}
    print("", *blocks.values(), sep="\n\n")
    if asked.all:
        figures = {"ratios": found, "measured": book.spreads(), "seconds": asked.seconds}
        keep("rbp", SCRIPT, figures, blocks)


if __name__ == "__main__":
    main()
