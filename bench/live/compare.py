"""Ours beside corosync, PySyncObj and the raw limit of Python's sockets, in one interleaved run.

``compare.py --all`` takes about ten minutes, writes ``bench/results/live.json`` and
``live.png``, and the tables of ``docs/performance.md``. ``--quick`` takes a minute and writes
nothing. Needs root (network namespaces) and the packages corosync, libcpg-dev and gcc.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1]))

import corosync
import pso
import raw
from asked import Command, keep
from corosync import Corosync
from promises import Row, figure, ratio_table
from record import RESULTS, table
from windows import Windows, sound

from ringcast.bench import bridge
from ringcast.bench.bridge import Bridge
from ringcast.bench.run import run

SIZES = (64, 1024, 8192, 60_000)
RATE = 400
MEMBERS = (2, 3, 4, 6, 8, 10, 12)
OVERHEAD = 60
"""Bytes our frame of one message of 1 KiB has besides it: what the raw limit must carry too."""

JUMBO = 9000
COROSYNC_JUMBO = "netmtu: 8192"
TOKEN_MS = 100
COROSYNC_100 = (
    f"token: {TOKEN_MS}\n    token_coefficient: 0\n    token_retransmits_before_loss_const: 2"
)
"""corosync refuses so short a timeout with more retransmissions."""

OURS_100 = {
    "token_loss_us": TOKEN_MS * 1000,
    "token_retransmit_us": 20_000,
    "join_us": 5_000,
    "consensus_us": 20_000,
}
TOKEN_FD_100 = {
    "beat_us": 20_000,
    "suspect_us": TOKEN_MS * 1000,
    "suspect_most_us": TOKEN_MS * 1000,
}
"""token-fd takes as much silence for a crash."""

PSO_TRIES = 5
SCRIPT = "bench/live/compare.py"


def rows(n: int) -> list[Row]:
    """What must hold for ``n`` members."""
    return [
        Row("64 B messages/s over corosync", f"ours 64 {n}", f"corosync 64 {n}", 8, 14),
        Row("1024 B over corosync, 1400 B frames", f"ours 1024 {n}", f"corosync 1024 {n}", 1, 1.5),
        Row("1024 B over corosync, 8 KiB frames", f"ours jumbo {n}", f"corosync 1024 {n}", 2, 3),
        Row("the same, corosync with 8 KiB too", f"ours jumbo {n}", f"corosync jumbo {n}", 2, 3),
        Row("8 KiB messages/s over corosync", f"ours 8192 {n}", f"corosync 8192 {n}", 1, 2),
        Row("60 KB messages/s over corosync", f"ours 60000 {n}", f"corosync 60000 {n}", 1, 2),
        Row(
            "frames/s over the raw limit, 1 KiB, multicast",
            f"ours frames {n}",
            f"raw multicast {n}",
            0.6,
            0.85,
        ),
        Row(
            "frames/s over the raw limit, 1 KiB, unicast",
            f"ours frames unicast {n}",
            f"raw unicast {n}",
            0.6,
            0.85,
        ),
        Row("64 B over PySyncObj, loopback", f"ours loopback {n}", f"PySyncObj {n}", 8, 20),
        Row("the same, token-fd", f"token-fd loopback {n}", f"PySyncObj {n}", 4, 8),
        Row(
            f"p50 latency at {RATE} messages/s over corosync's",
            f"ours p50 {n}",
            f"corosync p50 {n}",
            1.5,
            1.0,
            less=True,
        ),
        Row("an idle ring, share of a core", f"ours idle {n}", "", 0.05, 0.05, less=True),
        Row(
            f"silence after kill -9, token timeout {TOKEN_MS} ms, over corosync's",
            f"ours gap {n}",
            f"corosync gap {n}",
            1.0,
            0.5,
            less=True,
        ),
        Row(
            "the same, token-fd over Totem",
            f"token-fd gap {n}",
            f"ours gap {n}",
            1.0,
            0.7,
            less=True,
        ),
        Row("1 KiB with keys over without", f"ours keys {n}", f"ours 1024 {n}", 0.6, 0.85),
    ]


def throughput(book: Windows, n: int, network: Bridge, peer: Corosync) -> None:
    """Every size, ours and corosync's in turn; then frames against the raw limit, and keys."""
    for size in SIZES:
        trial = book.trial(n, size)
        ours = sound(run(trial, network))
        book.note(f"ours {size} {n}", ours.messages_per_s)
        if size == 1024:
            book.note(f"ours frames {n}", ours.frames_per_s)
        book.note(f"corosync {size} {n}", sound(peer.run(trial)).messages_per_s)
    keys = sound(run(book.trial(n, keys=True), network))
    book.note(f"ours keys {n}", keys.messages_per_s)
    frame = 1024 + OVERHEAD
    for way, multicast in (("multicast", True), ("unicast", False)):
        limit = raw.limit(n - 1, frame, book.seconds, multicast, network)
        book.note(f"raw {way} {n}", limit["frames_per_s"])
    unicast = sound(run(book.trial(n, multicast=False), network))
    book.note(f"ours frames unicast {n}", unicast.frames_per_s)


def latency(book: Windows, n: int, network: Bridge, peer: Corosync) -> None:
    """From send to own delivery at a rate that both carry easily; and the ring at rest.

    corosync runs with real-time priority by default, so do we here (``realtime = true``).
    """
    trial = book.trial(n, 64, rate=RATE, seconds=2 * book.seconds, realtime=True)
    for name, figures in (("ours", run(trial, network)), ("corosync", peer.run(trial))):
        assert sound(figures).latency_ms is not None
        book.note(f"{name} p50 {n}", figures.latency_ms.p50)  # type: ignore[union-attr]
    idle = run(book.trial(n, senders=0, seconds=2 * book.seconds), network)
    book.note(f"ours idle {n}", idle.cpu_s / idle.seconds)


def jumbo(book: Windows, n: int) -> None:
    """Frames of 8 KiB."""
    with Bridge(n, JUMBO) as network, Corosync(network, n, COROSYNC_JUMBO) as peer:
        trial = book.trial(n, frame=8192, mtu=JUMBO)
        book.note(f"ours jumbo {n}", sound(run(trial, network)).messages_per_s)
        book.note(f"corosync jumbo {n}", sound(peer.run(trial)).messages_per_s)


def failover(book: Windows, n: int, network: Bridge) -> None:
    """One member killed under load: the longest silence at the others."""
    trial = book.trial(n, 64, rate=RATE * n, seconds=2.0, kill=True, settings=OURS_100)
    book.note(f"ours gap {n}", run(trial, network).gap_ms)
    token_fd = replace(trial, protocol="token-fd", settings=TOKEN_FD_100)
    book.note(f"token-fd gap {n}", run(token_fd, network).gap_ms)
    with Corosync(network, n, COROSYNC_100) as peer:
        book.note(f"corosync gap {n}", peer.run(trial).gap_ms)


def loopback(book: Windows, n: int) -> None:
    """Beside PySyncObj, which uses TCP over loopback."""
    trial = book.trial(n, 64, namespaces=False, multicast=False)
    book.note(f"ours loopback {n}", sound(run(trial)).messages_per_s)
    token_fd = sound(run(replace(trial, protocol="token-fd")))
    book.note(f"token-fd loopback {n}", token_fd.messages_per_s)
    for _ in range(PSO_TRIES):  # on a busy machine its leader may be deposed, and nothing moves
        rate = pso.measure(n, 64, 1.0, 2 * book.seconds)["messages_per_s"]
        if rate:
            break
    else:
        raise RuntimeError("PySyncObj applied nothing; is the machine busy?")
    book.note(f"PySyncObj {n}", rate)


def one_round(book: Windows, n: int) -> None:
    """Everything once, for ``n`` members."""
    with Bridge(n) as network:
        if book.wanted & {"throughput", "latency"}:
            with Corosync(network, n) as peer:
                for name, measure in (("throughput", throughput), ("latency", latency)):
                    if name in book.wanted:
                        measure(book, n, network, peer)
        if "failover" in book.wanted:
            failover(book, n, network)
    if "throughput" in book.wanted:
        jumbo(book, n)
    if "loopback" in book.wanted:
        loopback(book, n)


def members(book: Windows) -> None:
    """Throughput against the number of members."""
    for n in MEMBERS:
        with Bridge(n) as network:
            for size in (64, 1024):
                figures = sound(run(book.trial(n, size), network))
                book.note(f"members {size} {n}", figures.messages_per_s)


def member_table(book: Windows) -> str:
    """Throughput against N."""
    lines = [
        (
            str(n),
            *(
                figure(median(book.values[f"members {size} {n}"]))
                if f"members {size} {n}" in book.values
                else ""
                for size in (64, 1024)
            ),
        )
        for n in MEMBERS
    ]
    return table(("members", "64 B, messages/s", "1024 B, messages/s"), lines)


def plot(book: Windows, file: Path) -> None:
    """Throughput against N, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    chart, axes = pyplot.subplots(1, 2, figsize=(9, 3.2), constrained_layout=True)
    for axis, size in zip(axes, (64, 1024), strict=True):
        heights = [median(book.values[f"members {size} {n}"]) for n in MEMBERS]
        axis.plot(MEMBERS, heights, marker="o")
        axis.set(title=f"messages of {size} B", xlabel="members", ylabel="messages/s")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    chart.savefig(file, dpi=110)


PARTS: dict[str, str] = {
    "throughput": "sizes, frames, keys and jumbo frames beside corosync and the raw limit",
    "latency": "latency at a low rate, and the processor time of an idle ring",
    "failover": "the silence after kill -9",
    "loopback": "beside PySyncObj",
    "members": "throughput against the number of members",
}


def main() -> None:
    """Measure, print, write."""
    command = Command(__doc__, PARTS, "everything once, three members", rounds=5)
    command.parser.add_argument("--seconds", type=float, default=1.0, help="length of a window")
    asked = command.parse()
    for why in (bridge.obstacle(), corosync.obstacle(), pso.obstacle()):
        if why:
            sys.exit(f"compare.py: {why}")
    counts = (3,) if asked.quick else (3, 5)
    book = Windows(asked.seconds, asked.picked)
    work: list[Callable[[], None]] = [lambda n=n: one_round(book, n) for n in counts]  # type: ignore[misc]
    for _ in range(asked.repeats):
        for each in work:
            each()
    if "members" in asked.picked and not asked.quick:
        members(book)
    promised = [replace(row, group=str(n)) for n in counts for row in rows(n)]
    found = book.judged(promised)
    print("\n" + ratio_table(found, "N"))
    if asked.all:
        figures = {"ratios": found, "measured": book.spreads(), "seconds": asked.seconds}
        blocks = {"live ratios": ratio_table(found, "N"), "live members": member_table(book)}
        plot(book, RESULTS / "live.png")
        keep("live", SCRIPT, figures, blocks)


if __name__ == "__main__":
    main()
