"""A ring at full load for ten minutes: does any member's memory grow?

``soak.py`` writes ``bench/results/soak.json``: the resident memory of each member, sampled, and
its growth between the second and the last minute.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec
from record import write

SAMPLE_S = 5.0


def members(parent: int) -> list[int]:
    """The processes that ``bench live`` started."""
    listed = subprocess.run(
        ["pgrep", "-P", str(parent), "-f", "bench_member"], capture_output=True, text=True
    )
    return [int(line) for line in listed.stdout.split()]


def resident_kib(pid: int) -> int:
    """What a process holds in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--size", type=int, default=1024)
    asked = parser.parse_args()
    command = [sys.executable, "-m", "ringcast.cli", "bench", "live", "--json", "--keys"]
    command += ["--nodes", str(asked.nodes), "--size", str(asked.size)]
    # On a busy machine a member may wait long for a core; being ejected is not what is asked here.
    command += ["--seconds", str(asked.seconds), "--set", "token_loss_us=5000000"]
    command += ["--set", "consensus_us=6000000"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE)
    began_s = time.monotonic()
    samples: dict[int, list[tuple[float, int]]] = {}
    while run.poll() is None and time.monotonic() - began_s < asked.seconds:
        time.sleep(SAMPLE_S)
        for pid in members(run.pid):
            at_s = time.monotonic() - began_s
            samples.setdefault(pid, []).append((round(at_s, 1), resident_kib(pid)))
    out, _ = run.communicate()
    figures = msgspec.json.decode(out)
    if figures["lost"] or figures["reordered"]:
        sys.exit(f"soak.py: lost {figures['lost']}, out of order {figures['reordered']}")
    found = []
    for taken in samples.values():
        early = median(kib for at_s, kib in taken if 60 <= at_s < 120 or len(taken) < 24)
        late = median(kib for at_s, kib in taken if at_s >= taken[-1][0] - 60)
        found.append({"early_kib": early, "late_kib": late, "growth": late / early - 1})
        print(f"{early / 1024:.1f} MiB in the second minute, {late / 1024:.1f} in the last")
    print(f"{figures['messages_per_s']:,.0f} messages/s over {figures['seconds']:.0f} s")
    rate = figures["messages_per_s"]
    write("soak", {"seconds": asked.seconds, "messages_per_s": rate, "members": found,
                   "samples": list(samples.values())})  # fmt: skip


if __name__ == "__main__":
    main()
