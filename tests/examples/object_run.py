"""One live run of the replicated objects, drawn from a seed: three processes, kill -9 of any and of
all, partitions that move; what clients were told must be linearizable."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).parents[1] / "testing"))
sys.path.insert(0, str(Path(__file__).parent))

from shared_objects import Clients
from ticket_run import NODES, Run, Wrong

SETTLE_S = 90.0


class ObjectRun(Run):
    """The members, what is done to them, and what clients were told."""

    def __init__(self, seed: int, root: Path, faults: int = 5) -> None:
        super().__init__(seed, root, 0, faults, Path(__file__).parent / "object_member.py")
        self.told = Clients(time.monotonic)
        self._writing = threading.Lock()

    def kill(self, node: int) -> None:
        if node in self.shops:
            with self._writing:
                self.told.lost(node, time.monotonic())
        super().kill(node)

    def do(self, who: str, node: int, kind: str, name: str, args: list[Any]) -> bool:
        """Ask a member; whether it answered."""
        with self._writing:
            operation = self.told.begin(who, node, kind, name, args)
        query = urlencode({"kind": kind, "name": name, "args": json.dumps(args)})
        status, result = self.ask(node, "GET", f"/do?{query}")
        if status == 200:
            with self._writing:
                self.told.end(kind, operation, result)
        return status == 200

    def settle(self, deadline_s: float = SETTLE_S) -> dict[str, str]:
        """All run, hear each other, and answer."""
        self.part(NODES)
        end = time.monotonic() + deadline_s
        for node in NODES:
            self.start(node)
        for node in NODES:
            while not self.do("settle", node, "dict", "get", ["settled"]):
                if time.monotonic() > end:
                    raise Wrong(f"seed {self.seed}: {node} does not answer")
        return {}

    def client(self, number: int) -> None:
        rng = Random(f"{self.seed}/client/{number}")
        turn = 0
        while not self.over.is_set():
            turn += 1
            asked = self.told.ask(rng, 1000 * number + turn)
            self.do(f"c{number}", rng.choice(NODES), *asked)
            time.sleep(rng.random() * 0.2)

    def holder(self, node: int) -> None:
        rng = Random(f"{self.seed}/holder/{node}")
        while not self.over.is_set():
            for name in ("acquire", "holder", "release"):
                self.do(f"m{node}", node, "lock", name, [])
                time.sleep(rng.random() * 0.3)

    def go(self) -> int:
        """Everything; how many operations had an answer."""
        threads = [threading.Thread(target=self.client, args=(n,)) for n in range(3)]
        threads += [threading.Thread(target=self.holder, args=(n,)) for n in NODES]
        try:
            self.settle()
            for each in threads:
                each.start()
            for _ in range(self.faults):
                self.mistreat()
            self.settle()
        finally:
            self.over.set()
            for each in threads:
                if each.ident is not None:
                    each.join()
            for node in NODES:
                self.kill(node)
        for path in self.place.glob("views*"):
            for line in path.read_text().splitlines():
                at, members = json.loads(line)
                for node in NODES:
                    if node not in members:
                        self.told.lost(node, at)
        self.told.check()
        return sum(map(self.told.answered, self.told.histories))


def main() -> None:
    """``python object_run.py FIRST COUNT``: that many runs, by seed."""
    import tempfile

    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as root:
            answered = ObjectRun(seed, Path(root)).go()
        print(f"seed {seed}: {answered} answers, {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
