"""One live run of the ticket shop, drawn from a seed: three processes and a fourth that joins late,
clients that retry, kill -9 of any and of all, partitions that move, lost disks while a majority has
its own."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

EXAMPLES = Path(__file__).parents[2] / "examples"
NODES, LATE = (1, 2, 3), 4


class Wrong(AssertionError):
    """A seat was sold twice, or a confirmed sale is lost."""


def free_base(rng: Random) -> int:
    """A port with free ones behind it, for rings and faces."""
    while True:
        base = rng.randrange(20_000, 30_000)
        held: list[socket.socket] = []
        try:
            for n in (*NODES, LATE):
                for kind, port in (
                    (socket.SOCK_DGRAM, base + n),
                    (socket.SOCK_STREAM, base + 10 + n),
                ):
                    held.append(socket.socket(socket.AF_INET, kind))
                    held[-1].bind(("127.0.0.1", port))
            return base
        except OSError:
            continue
        finally:
            for each in held:
                each.close()


class Run:
    """The shop, what is done to it, and what its clients were told."""

    def __init__(
        self,
        seed: int,
        root: Path,
        seats: int = 60,
        faults: int = 6,
        program: Path = EXAMPLES / "tickets.py",
        protocol: str = "totem",
    ) -> None:
        self.program = program
        self.rng = Random(f"tickets/{seed}")
        self.seed, self.seats, self.faults = seed, seats, faults
        self.base = free_base(Random(f"{seed}/{os.getpid()}"))
        self.place = root / f"ringcast-examples-{self.base}"
        self.place.mkdir(parents=True)
        self.env = {
            **os.environ,
            "PYTHONPATH": str(EXAMPLES.parent / "src"),
            "RINGCAST_PORT": str(self.base),
            "RINGCAST_PROTOCOL": protocol,
            "TMPDIR": str(root),
            "TICKETS_SEATS": str(seats),
        }
        self.nodes = list(NODES)
        """Shops that clients know of: the late one, which has no vote, is added."""
        self.shops: dict[int, subprocess.Popen[bytes]] = {}
        self.confirmed: dict[int, str] = {}
        """Seats whose buyer was told so."""
        self.met: Counter[str] = Counter()
        """What was done to the shop, and how often."""
        self.over = threading.Event()
        self.wrong: list[str] = []
        self._lock = threading.Lock()

    # --- the shop --------------------------------------------------------------------------

    def start(self, node: int) -> None:
        """Also one that has ended by itself, as a member may that cannot go on: as a service
        manager does."""
        shop = self.shops.get(node)
        if shop is not None and shop.poll() is not None:
            self.kill(node)
            self.met["stopped by itself"] += 1
        if node not in self.shops:
            self.shops[node] = subprocess.Popen(
                [sys.executable, str(self.program), str(node)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=self.env,
            )

    def kill(self, node: int) -> None:
        shop = self.shops.pop(node, None)
        if shop is not None:
            shop.send_signal(signal.SIGKILL)
            shop.wait()
            assert shop.stdin is not None
            shop.stdin.close()

    def part(self, *sides: tuple[int, ...]) -> None:
        for side in sides:
            for node in side:
                deaf = [other for other in (*NODES, LATE) if other not in side]
                path = self.place / f"faults{node}.json"
                path.with_suffix(".new").write_text(json.dumps({"deaf_to": deaf}))
                path.with_suffix(".new").replace(path)

    def ask(self, node: int, method: str, target: str) -> tuple[int, object]:
        """Status and answer; 0 if there was none."""
        face = http.client.HTTPConnection("127.0.0.1", self.base + 10 + node, timeout=5)
        try:
            face.request(method, target)
            answer = face.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            time.sleep(0.05)
            return 0, None
        finally:
            face.close()

    # --- clients ---------------------------------------------------------------------------

    def buy(self, client: str, seat: int, request: int, rng: Random) -> None:
        """Order until there is an answer, at any member; it must not contradict another one."""
        while not self.over.is_set():
            node = rng.choice(self.nodes)
            target = f"/buy?seat={seat}&client={client}&request={request}"
            status, answer = self.ask(node, "POST", target)
            if status in (200, 409):
                assert isinstance(answer, dict)
                with self._lock:
                    other = self.confirmed.setdefault(seat, answer["buyer"])
                    if other != answer["buyer"]:
                        self.wrong.append(f"seat {seat}: {other} and {answer['buyer']}")
                return

    def client(self, number: int) -> None:
        rng = Random(f"{self.seed}/client/{number}")
        request = 0
        while not self.over.is_set():
            request += 1
            self.buy(f"c{number}", rng.randint(1, self.seats // 2), request, rng)
            time.sleep(rng.random() * 0.05)

    def last_client(self, number: int) -> None:
        """After healing every seat can be sold: one of four buys a quarter of them."""
        rng = Random(f"{self.seed}/last/{number}")
        for seat in range(1 + number, self.seats + 1, 4):
            self.buy(f"last{number}", seat, seat, rng)

    # --- the run ---------------------------------------------------------------------------

    def mistreat(self) -> None:
        """One fault, and some time for it to matter."""
        rng = self.rng
        nodes = rng.sample(self.nodes, len(self.nodes))
        kind = rng.random()
        if kind < 0.4:
            self.part(tuple(nodes[:2]), tuple(nodes[2:]))
            self.met["partition"] += 1
        elif kind < 0.5:
            self.part(tuple(nodes))
            self.met["heal"] += 1
        elif kind < 0.75:
            self.kill(nodes[0])
            self.met["kill one"] += 1
        elif kind < 0.85:
            for node in nodes:
                self.kill(node)
            self.met["kill all"] += 1
        time.sleep(rng.uniform(0.1, 1.5))
        for node in nodes:
            if node in self.shops or rng.random() < 0.7:
                self.start(node)

    def lose_a_disk(self) -> None:
        """All have everything: of three disks, one may go."""
        node = self.rng.choice(NODES)
        self.kill(node)
        shutil.rmtree(self.place / f"tickets{node}", ignore_errors=True)
        self.start(node)
        self.met["lose a disk"] += 1

    def settle(self, deadline_s: float = 90) -> dict[str, str]:
        """All run and hear each other; what each of them reads once it answers."""
        self.part((*NODES, LATE))
        found: dict[str, str] = {}
        end = time.monotonic() + deadline_s
        for node in self.nodes:
            while True:
                for each in self.nodes:
                    self.start(each)
                status, answer = self.ask(node, "GET", "/seats")
                if status == 200:
                    assert isinstance(answer, dict)
                    found = answer
                    break
                if time.monotonic() > end:
                    raise Wrong(f"seed {self.seed}: {node} does not answer: {answer}")
        return found

    def go(self) -> int:
        """Everything; how many seats were sold while things went wrong."""
        clients = [threading.Thread(target=self.client, args=(n,)) for n in range(4)]
        try:
            self.settle()
            for each in clients:
                each.start()
            for number in range(self.faults):
                if number == self.faults // 3:
                    self.nodes.append(LATE)
                    self.start(LATE)
                if number == self.faults // 2:
                    self.settle()
                    self.lose_a_disk()
                    self.settle()
                self.mistreat()
            self.settle()
            self.over.set()
            for each in clients:
                each.join()
            sold = len(self.confirmed)
            self.over.clear()
            clients = [threading.Thread(target=self.last_client, args=(n,)) for n in range(4)]
            for each in clients:
                each.start()
            for each in clients:
                each.join()
            found = self.settle()
            for seat, buyer in self.confirmed.items():
                if found.get(str(seat)) != buyer:
                    self.wrong.append(f"seat {seat}: {buyer} was told, {found.get(str(seat))} is")
            if len(found) != self.seats:
                self.wrong.append(f"{len(found)} of {self.seats} seats are sold")
            if self.wrong:
                raise Wrong(f"seed {self.seed}: {self.wrong}")
            return sold
        finally:
            self.over.set()
            for each in clients:
                if each.is_alive():
                    each.join()
            for node in self.nodes:
                self.kill(node)
