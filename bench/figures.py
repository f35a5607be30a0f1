"""Does the simulated ring behave like the one measured in 1994? A table, JSON and a plot."""

from __future__ import annotations

import argparse
from statistics import correlation, linear_regression
from typing import Any

import matplotlib
import msgspec

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from polling import poll
from record import RESULTS, table, write
from totem_figures import Latency, crash, latency, mean_outage, throughput, token_loss

SIZES = (4, 100, 200, 400, 600, 800, 1024, 1200, 1350)
RATES = (100, 200, 300, 400, 500, 600, 625, 700)
RINGS = (2, 5, 10, 20)
PAPER = {4: "1130", 600: "> 900", 1024: "810"}
EXPECTED = {4: "1130", 600: "918", 1024: "810"}


def use(size: int, rate: float) -> float:
    """Share of a 10 Mb/s Ethernet that carries contents."""
    return size * 8 * rate / 1e7


def measure(seconds: float, seeds: int) -> dict[str, Any]:
    """Every experiment; times in ms, rates in messages a second."""
    five = {size: throughput(size, seconds) for size in SIZES}
    one = {size: throughput(size, seconds, (1,)) for size in SIZES}
    agreed = {rate: latency(rate, seconds) for rate in RATES}
    safe = {rate: latency(rate, seconds, safe=True) for rate in RATES}
    rings = {n: latency(400, seconds, n) for n in RINGS}
    return {
        "simulated_s": seconds,
        "seeds": seeds,
        "throughput": five,
        "throughput_one_sender": one,
        "agreed": agreed,
        "safe": safe,
        "gated": {rate: poll(rate) for rate in RATES},
        "exhaustive": {rate: poll(rate, exhaustive=True) for rate in RATES},
        "rings": rings,
        "membership": mean_outage([token_loss(seed, resend=False) for seed in range(seeds)]),
        "resend": mean_outage([token_loss(seed, resend=True) for seed in range(seeds)]),
        "crash": mean_outage([crash(seed) for seed in range(seeds)]),
    }


def rows(found: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Claim, the paper's figure, the dossier's expectation, and ours."""
    five, one = found["throughput"], found["throughput_one_sender"]
    agreed: dict[int, Latency] = found["agreed"]
    safe: dict[int, Latency] = found["safe"]
    rings: dict[int, Latency] = found["rings"]
    shown = [
        (f"{tag} msg/s, {size} B, five senders", PAPER[size], f"{EXPECTED[size]} ± 5 %",
         f"{five[size]:.0f}")
        for tag, size in (("E1", 1024), ("E2", 600), ("E2", 4))
    ]  # fmt: skip
    shown += [
        (f"E3 msg/s, {size} B, one sender", "about the same", f"{five[size]:.0f} ± 5 %",
         f"{one[size]:.0f}")
        for size in (1024, 600, 4)
    ]  # fmt: skip
    shown += [
        (f"E4 useful utilisation, {size} B", paper, expected, f"{use(size, five[size]):.0%}")
        for size, paper, expected in ((1024, "", "66 %"), (1350, "about 70 %", "above 66 %"))
    ]
    for name, runs, paper, expected in (
        ("agreed / T, mean", agreed, "slightly above 0.5", "0.5-0.65"),
        ("safe / T, mean", safe, "about 2", "about 2"),
    ):
        ratios = [run.mean / run.rotation for run in runs.values()]
        shown.append((f"E5 {name}", paper, expected, f"{min(ratios):.2f}-{max(ratios):.2f}"))
    ratios = [run.last / run.rotation for run in safe.values()]
    shown.append(("E5 safe / T, last", "", "about 2.3", f"{min(ratios):.2f}-{max(ratios):.2f}"))
    for name, runs in (("agreed", agreed), ("safe", safe)):
        errors = [r.mean / getattr(found["gated"][rate], name) - 1 for rate, r in runs.items()]
        off = f"{min(errors):+.0%} to {max(errors):+.0%}"
        shown.append((f"E5 {name} against polling model", "", "", off))
    shown += [
        (f"E6 agreed at {rate} msg/s, ms (last)", paper, expected,
         f"{agreed[rate].mean:.1f} ({agreed[rate].last:.1f})")
        for rate, paper, expected in ((400, "< 10", "7.5"), (625, "about 13", "13"))
    ]  # fmt: skip
    shown += [
        (f"E6 polling model, exhaustive, {rate}", paper, expected,
         f"{found['exhaustive'][rate].agreed:.1f}")
        for rate, paper, expected in ((400, "< 10", "7.5"), (625, "about 13", "13"))
    ]  # fmt: skip
    rotations = [run.rotation for run in rings.values()]
    shown.append(
        (f"E7 T, ms, N = {', '.join(map(str, rings))}", "linear", "5.1, 12.7, 25, 51",
         ", ".join(f"{t:.1f}" for t in rotations))
    )  # fmt: skip
    for name, times in (("T", rotations), ("agreed", [run.mean for run in rings.values()])):
        r2 = correlation(list(rings), times) ** 2
        slope = linear_regression(list(rings), times).slope
        shown.append(
            (f"E7 R² of {name} over N", "linear", "> 0.99", f"{r2:.4f}, {slope:.2f} ms each")
        )
    lost, resent, crashed = found["membership"], found["resend"], found["crash"]
    shown += [
        ("E8 token lost, no resending, ms", "100 + 40", "100 + 40",
         f"100 + {lost.first - 100:.0f}"),
        ("E9 token lost, resending, ms", "16", "12 + about T/2",
         f"{resent.first:.1f} first, {resent.token:.1f} all, {resent.views} views"),
        ("E11 crash, ms", "", "100 + 60 + 40", f"{crashed.first:.0f}"),
    ]  # fmt: skip
    return shown


def plot(found: dict[str, Any]) -> None:
    """The figures 4.18 to 4.20 and latency over ring size, as the model draws them."""
    five, one = found["throughput"], found["throughput_one_sender"]
    agreed, safe, rings = found["agreed"], found["safe"], found["rings"]
    figure, axes = plt.subplots(2, 2, figsize=(10, 7.5), constrained_layout=True)
    for runs, line, label in ((five, "-", "five senders"), (one, ":", "one sender")):
        axes[0, 0].plot(SIZES, list(runs.values()), line, marker="o", label=label)
        useful = [100 * use(size, rate) for size, rate in runs.items()]
        axes[0, 1].plot(SIZES, useful, line, marker="o", label=label)
    axes[0, 0].plot((4, 1024), (1130, 810), "kx", markersize=9, label="measured in 1994")
    axes[0, 0].set(title="Throughput (F4.18)", xlabel="message, bytes", ylabel="messages / s")
    axes[0, 1].set(title="Useful utilisation (F4.19)", xlabel="message, bytes", ylabel="%")
    rotation = [run.rotation for run in agreed.values()]
    axes[1, 0].plot(RATES, rotation, "k--", marker="o", label="rotation time T")
    axes[1, 0].plot(RATES, [r.mean for r in agreed.values()], marker="o", label="agreed")
    axes[1, 0].plot(RATES, [r.mean for r in safe.values()], marker="o", label="safe")
    axes[1, 0].plot((625,), (13,), "kx", markersize=9, label="agreed in 1994")
    axes[1, 0].set(title="Latency, 1000 B (F4.20)", xlabel="messages / s", ylabel="ms")
    axes[1, 1].plot(RINGS, [r.rotation for r in rings.values()], "k--", marker="o", label="T")
    axes[1, 1].plot(RINGS, [r.mean for r in rings.values()], marker="o", label="agreed")
    axes[1, 1].set(title="400 messages / s", xlabel="members", ylabel="ms")
    for each in axes.flat:
        each.set_ylim(bottom=0)
        each.grid(alpha=0.3)
        each.legend()
    figure.savefig(RESULTS / "figures.png", dpi=110)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="simulated, per experiment")
    parser.add_argument("--seeds", type=int, default=50, help="for the lost tokens and crashes")
    asked = parser.parse_args()
    found = measure(asked.seconds, asked.seeds)
    shown = rows(found)
    head = ("claim", "paper", "expected", "ours")
    print(table(head, shown))
    written = [dict(zip(head, row, strict=True)) for row in shown]
    file = write("figures", {"table": written, **msgspec.to_builtins(found, str_keys=True)})
    plot(found)
    print(f"\nwritten to {file.parent.name}/{file.name} and {file.parent.name}/figures.png")


if __name__ == "__main__":
    main()
