"""``verify`` of large traces in this checkout and in another one: has it become slower?

    git worktree add /tmp/before 7dc2056
    python bench/pipeline/verify_speed.py /tmp/before

7dc2056 is the last commit whose checks compared no contents. Both judge the same made traces, in
turn and in one process each, without Spark, as ``verify`` does it in its workers: one of Totem, and
one of token-fd, whose group never changes. Besides, this checkout judges a trace as RBP and iRBP
would write it, to be compared with Totem's. A million events take 13 MB of disk (below TMPDIR) and
0.1 s of a core in each of six turns, so three rounds over 50,000,000 need 2 GB and three minutes.
``--events 1000000 --rounds 1`` tries whether it works. It writes
``bench/results/verify-against.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from promises import figure
from record import spread, table, write

HERE = Path(__file__).parents[2]
EVENTS = 50_000_000
RING = 5_000_000
"""Events a ring."""
NOTED = ("token-path",)
"""Judged by notes that a made trace does not have."""

TRACES: dict[str, dict[str, Any]] = {
    "totem": {},
    "token-fd": {"rings": 1},
    "epochs": {"epochs": True},
}
"""What makes a trace that protocol's."""

TURNS = (
    ("totem", "totem", True),
    ("token-fd", "token-fd", True),
    ("rbp", "epochs", False),
    ("irbp", "epochs", False),
)
"""Whose claims are judged in which trace, and whether the other checkout can."""

TIMES_TOTEM = 1.3
"""What an event of RBP or iRBP may cost, in events of Totem."""
NO_SLOWER = 1.1
"""What the other checkout may be outdone by."""


def judge(folder: Path, name: str) -> dict[str, float]:
    """Judge the trace in ``folder`` by the claims of a protocol, with whichever sources are in
    front."""
    from ringcast.core.registry import protocol
    from ringcast.pipeline.verify import run_verifier
    from ringcast.pipeline.verify.condense.window import look
    from ringcast.traces import Claims

    sheet = protocol(name)
    claims = sheet.claims(next(iter(sheet.profiles.values())))
    tags = tuple(tag for claim in claims if (tag := claim.split()[0]) not in NOTED)
    request: Any = getattr(run_verifier, "VerifyRequest", None) or vars(run_verifier)["Ask"]
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    case = run_verifier.Case(folder, 0, request(tags, Claims(tags)))
    while numbers := case.open_windows():
        for number in numbers:
            case.take(number, look(case.windows[number]))
    found = case.verdict()
    used = {"s": time.perf_counter() - began_s, "cpu_s": time.process_time() - began_cpu_s}
    wrong = {tag: verdict for tag, verdict in found.verdicts.items() if verdict != "valid"}
    if found.error or wrong or not found.verdicts:
        raise RuntimeError(f"{name}: {found.error or wrong}")
    return used


def ask(tree: Path, folder: Path, name: str) -> dict[str, float]:
    """The same in a process with the sources of a checkout."""
    done = subprocess.run(
        [sys.executable, __file__, "--judge", str(folder), name],
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr}")
    used: dict[str, float] = json.loads(done.stdout)
    return used


def make(folder: Path, events: int, **shape: Any) -> None:
    """Write a trace."""
    from ringcast.traces.synthetic.generate import generate
    from ringcast.traces.synthetic.group import Shape

    generate(folder, Shape(**{"events": events, "rings": max(2, events // RING), **shape}))


def compare(other: Path, events: int, rounds: int) -> dict[str, Any]:
    """Seconds of processor time, by protocol and checkout, and ratios of one round each."""
    cpu_s: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="ringcast-bench-") as name:
        for trace, shape in TRACES.items():
            make(Path(name, trace), events, **shape)
            print(f"made the trace of {trace}", flush=True)
        for number in range(rounds):
            for protocol, trace, both in TURNS:
                trees = {"this": HERE, "other": other} if both else {"this": HERE}
                for tree in list(trees) if number % 2 else list(reversed(trees)):
                    used = ask(trees[tree], Path(name, trace), protocol)
                    cpu_s.setdefault(f"{protocol}, {tree}", []).append(used["cpu_s"])
            print(f"round {number + 1} of {rounds}", flush=True)

    def ratio(of: str, to: str) -> list[float]:
        return [a / b for a, b in zip(cpu_s[of], cpu_s[to], strict=True)]

    ratios = {}
    for protocol, _, both in TURNS:
        what, to = ("before", f"{protocol}, other") if both else ("Totem", "totem, this")
        ratios[f"{protocol}, over {what}"] = ratio(f"{protocol}, this", to)
    return {"cpu_s": cpu_s, "ratios": ratios}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, nargs="?", help="the other checkout")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--judge", nargs=2, metavar=("FOLDER", "PROTOCOL"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.judge:
        print(json.dumps(judge(Path(asked.judge[0]), asked.judge[1])))
        return
    if asked.other is None:
        parser.error("which checkout?")
    found = compare(asked.other.resolve(), asked.events, asked.rounds)
    rows = []
    for name, ratios in found["ratios"].items():
        most = TIMES_TOTEM if name.endswith("Totem") else NO_SLOWER
        told = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        rows.append((name, told, f"at most {most}", "yes" if median(ratios) <= most else "NO"))
    seconds = [(name, figure(median(each))) for name, each in found["cpu_s"].items()]
    print("\n" + table(("claims of, checkout", "CPU s"), seconds))
    print("\n" + table(("processor time", "ratio", "asked", "kept"), rows))
    if asked.events == EVENTS:
        spreads = {k: {n: spread(v) for n, v in found[k].items()} for k in found}
        git = ("git", "-C", str(asked.other), "rev-parse", "--short", "HEAD")
        other = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
        write("verify-against", {"other": other, "events": asked.events, **spreads})


if __name__ == "__main__":
    main()
