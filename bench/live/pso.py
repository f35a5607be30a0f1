"""PySyncObj, a Raft library in pure Python: the same load on loopback, as it is meant to be used.

As a program: ``pso.py ID PORTS SIZE WARM SECONDS`` is one of the processes, which says when it
knows a leader and then waits for a line on its input; ``measure`` starts them. Only the leader
sends, which is PySyncObj's fastest way: others would have to forward to it. The replicated
method only counts; nothing is checked.
"""

from __future__ import annotations

import importlib.util
import json
import select
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ringcast.runtime.loopback import LOOPBACK, free_ports

PATIENCE_S = 30.0
FLIGHT_BYTES = 10_000 * 64
"""Messages of 64 B under way: fewer make it slower, more do not make it faster."""


def obstacle() -> str:
    """Why PySyncObj cannot be measured here, or nothing."""
    known = importlib.util.find_spec("pysyncobj")
    return "" if known else "PySyncObj is not installed: pip install -e '.[bench]'"


def serve(me: int, ports: list[int], size: int, warm_s: float, seconds: float) -> None:
    """One node: wait for a leader, send if this is it, count what is applied."""
    from pysyncobj import SyncObj, SyncObjConf, replicated

    class Counter(SyncObj):  # type: ignore[misc]
        def __init__(self) -> None:
            self.applied = 0
            places = [f"{LOOPBACK}:{port}" for port in ports]
            own = places.pop(me)
            super().__init__(own, places, SyncObjConf(autoTick=False, commandsQueueSize=10**6))

        @replicated  # type: ignore[untyped-decorator]
        def put(self, body: bytes) -> None:
            self.applied += 1

    node = Counter()
    under_way = 0

    def done(result: object, error: object) -> None:
        nonlocal under_way
        under_way -= 1

    while node._getLeader() is None:
        node.doTick(0.01)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        node.doTick(0.01)
    start_s = time.monotonic() + warm_s
    end_s = start_s + seconds
    leader = node._isLeader()
    flight = max(100, FLIGHT_BYTES // size)
    body = bytes(size)
    counted: list[tuple[float, int]] = []
    while (now_s := time.monotonic()) < end_s:
        if not counted and now_s >= start_s:
            counted.append((now_s, node.applied))
        while leader and under_way < flight:
            under_way += 1
            node.put(body, callback=done)
        node.doTick(0.001)
    (first_s, first), last, last_s = counted[0], node.applied, time.monotonic()
    print(json.dumps({"rate": (last - first) / (last_s - first_s), "leader": leader}))
    until_s = time.monotonic() + 0.5
    while time.monotonic() < until_s:
        node.doTick(0.01)


def measure(nodes: int, size: int, warm_s: float, seconds: float) -> dict[str, Any]:
    """Messages a second at the slowest of so many nodes."""
    ports = free_ports(nodes)
    with ExitStack() as undo:
        crew = []
        for me in range(nodes):
            words = (me, ports, size, warm_s, seconds)
            node = subprocess.Popen(
                [sys.executable, str(Path(__file__)), *map(json.dumps, words)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            undo.callback(node.wait)
            undo.callback(node.kill)
            crew.append(node)
        for node in crew:
            assert node.stdout is not None
            assert node.stdout.readline() == "ready\n"
        for node in crew:
            assert node.stdin is not None
            node.stdin.write("go\n")
            node.stdin.flush()
        patience_s = warm_s + seconds + PATIENCE_S
        shares = [json.loads(node.communicate(timeout=patience_s)[0]) for node in crew]
    rate = min(share["rate"] for share in shares)
    return {"messages_per_s": round(rate, 1), "mb_per_s": round(rate * size / 1e6, 3)}


if __name__ == "__main__":
    serve(*map(json.loads, sys.argv[1:]))
