"""A durable replica with a quorum beside PySyncObj with its journal and beside etcd, in one run.

``compare.py [ROUNDS] [SECONDS]`` prints medians of puts of 64 B a second on three members of one
machine, with 1 and with 64 clients, and writes ``bench/results/replica.json``. The systems take
turns, so that what else the machine does meets all alike; a ratio is the median of the rounds' own.
With 5 rounds of 3 s, as it is, this takes three minutes. Needs etcd in PATH (Debian's package
etcd-server), grpcio and PySyncObj.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from record import table, write

from ringcast.runtime.loopback import LOOPBACK, free_ports

MEMBERS, CLIENTS = 3, (1, 64)
MEMBER = str(Path(__file__).parent / "put_member.py")
OURS, OTHERS = ("total", "totem"), ("pysyncobj", "etcd")
"""A replica over these protocols, and what it is compared with."""
SYSTEMS = (*OURS, *OTHERS)


class Crew:
    """The processes of one system, and the one that is asked."""

    def __init__(self, kind: str, ports: list[int], root: Path, stack: ExitStack) -> None:
        self._stack = stack
        if kind == "etcd":
            self._etcd(ports, root)
            words = [["etcd", "0", json.dumps(ports[:MEMBERS]), str(root)]]
        else:
            told = json.dumps(ports[:MEMBERS])
            words = [[kind, str(me), told, str(root / str(me))] for me in range(MEMBERS)]
            for word in words:
                Path(word[-1]).mkdir(parents=True)
        members = [
            self._start([sys.executable, MEMBER, *each], stdin=subprocess.PIPE) for each in words
        ]
        for member in members:
            assert self._line(member) == "ready"
        self._members = members

    def _start(self, command: list[str], **more: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def _etcd(self, ports: list[int], root: Path) -> None:
        urls = [f"http://{LOOPBACK}:{port}" for port in ports]
        cluster = ",".join(f"m{n}={urls[MEMBERS + n]}" for n in range(MEMBERS))
        for n in range(MEMBERS):
            given = {
                "name": f"m{n}",
                "data-dir": str(root / str(n)),
                "listen-client-urls": urls[n],
                "advertise-client-urls": urls[n],
                "listen-peer-urls": urls[MEMBERS + n],
                "initial-advertise-peer-urls": urls[MEMBERS + n],
                "initial-cluster": cluster,
            }
            options = [f"--{name}={value}" for name, value in given.items()]
            self._start(["etcd", *options], stderr=subprocess.DEVNULL)

    def _line(self, member: subprocess.Popen[str]) -> str:
        assert member.stdout is not None
        return member.stdout.readline().strip()

    def measure(self, clients: int, seconds: float) -> dict[str, float]:
        """One window of load, at the first member that takes it."""
        for member in self._members:
            assert member.stdin is not None
            member.stdin.write(f"{clients} {seconds}\n")
            member.stdin.flush()
            if (answer := self._line(member)) != "another":
                found: dict[str, float] = json.loads(answer)
                return found
        raise RuntimeError("no member leads")


def main(rounds: int = 5, seconds: float = 3.0) -> None:
    """All systems run all the time; they are asked in turn."""
    if shutil.which("etcd") is None:
        sys.exit("etcd is not in PATH: apt-get install etcd-server")
    windows: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as root, ExitStack() as stack:
        ports = free_ports(2 * MEMBERS * len(SYSTEMS))  # at once: some are TCP's, some UDP's
        crews = {
            kind: Crew(kind, ports[at :: len(SYSTEMS)], Path(root) / kind, stack)
            for at, kind in enumerate(SYSTEMS)
        }
        for _ in range(rounds):
            for clients in CLIENTS:
                for kind, crew in crews.items():
                    found = crew.measure(clients, seconds)
                    print(f"{kind}, {clients}: {found['puts_per_s']:.0f}/s", file=sys.stderr)
                    windows.setdefault(f"{kind} {clients}", []).append(found)
    report(windows, rounds, seconds)


def report(windows: dict[str, list[dict[str, float]]], rounds: int, seconds: float) -> None:
    """Medians over the rounds, with the lowest and the highest, and ours beside the others'."""
    figures: dict[str, Any] = {"rounds": rounds, "seconds": seconds, "load": os.getloadavg()[0]}
    rows = []
    for clients in CLIENTS:
        for kind in SYSTEMS:
            some = windows[f"{kind} {clients}"]
            rates = sorted(each["puts_per_s"] for each in some)
            p50 = median(each["p50_us"] for each in some)
            figures[f"{kind} {clients}"] = {"puts_per_s": rates, "p50_us": p50}
            numbers = (clients, median(rates), rates[0], rates[-1], p50)
            rows.append((kind, *(f"{number:.0f}" for number in numbers)))
    print(table(("system", "clients", "puts/s", "least", "most", "p50 µs"), rows))
    for clients in CLIENTS:
        for ours, other in product(OURS, OTHERS):
            windows_of_both = windows[f"{ours} {clients}"], windows[f"{other} {clients}"]
            pairs = list(zip(*windows_of_both, strict=True))
            puts = median(mine["puts_per_s"] / its["puts_per_s"] for mine, its in pairs)
            late = median(mine["p50_us"] / its["p50_us"] for mine, its in pairs)
            figures[f"{ours} / {other} {clients}"] = {"puts_per_s": puts, "p50_us": late}
            print(f"{clients} clients, {ours} / {other}: puts {puts:.2f}, p50 {late:.2f}")
    write("replica", figures)


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, float), sys.argv[1:], strict=False)))
