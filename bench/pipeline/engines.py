"""Engines in processes of their own, which take turns; time and memory of each turn.

A turn's memory is the sum of the resident sizes of the engine's process and of all that descend
from it (the JVM, Python workers), looked at twenty times a second; the largest sum counts.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from typing import Any

import msgspec

LOOK_S = 0.05
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")

Ask = Callable[..., Any]
Open = Callable[[], AbstractContextManager[Ask]]
"""Makes an engine ready, in its own process, for as long as it is asked."""


class Turn(msgspec.Struct, frozen=True):
    """One question answered."""

    seconds: float
    cpu_s: float
    peak_bytes: int
    answer: Any


class Processes:
    """A process and its descendants."""

    def __init__(self, root: int) -> None:
        self.root = root

    def _stats(self) -> list[list[str]]:
        """The fields of /proc/PID/stat from the third on, of each that lives."""
        found: dict[int, list[str]] = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    text = Path(entry.path, "stat").read_text()
                except OSError:
                    continue  # it has just ended
                found[int(entry.name)] = text.rpartition(")")[2].split()
        ours = {self.root}
        grew = True
        while grew:
            more = {pid for pid, stat in found.items() if int(stat[1]) in ours}
            grew = not more <= ours
            ours |= more
        return [found[pid] for pid in ours if pid in found]

    def resident_bytes(self) -> int:
        """Memory of all together; what they share counts for each."""
        return sum(int(stat[21]) for stat in self._stats()) * PAGE_BYTES

    def cpu_s(self) -> float:
        """Processor time of all together, with that of children that have ended."""
        return sum(sum(map(int, stat[11:15])) for stat in self._stats()) / TICKS


class Engine:
    """An engine in a process of its own, ready to be asked, to be closed at the end."""

    def __init__(self, name: str, make: Open) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make))
        self._process.start()
        theirs.close()
        assert self._process.pid is not None
        self._all = Processes(self._process.pid)
        self._hear()

    def _hear(self) -> Any:
        try:
            said = self._pipe.recv()
        except EOFError:
            raise RuntimeError(f"{self.name} has died") from None
        if isinstance(said, str):
            raise RuntimeError(f"{self.name} failed: {said}")
        return said

    def ask(self, *question: Any) -> Turn:
        """One turn."""
        done, peak = Event(), [0]

        def look() -> None:
            while not done.wait(LOOK_S):
                peak[0] = max(peak[0], self._all.resident_bytes())

        watcher = Thread(target=look)
        before_s = self._all.cpu_s()
        watcher.start()
        try:
            self._pipe.send(question)
            seconds, answer = self._hear()
        finally:
            done.set()
            watcher.join()
        return Turn(seconds, self._all.cpu_s() - before_s, peak[0], answer)

    def close(self) -> None:
        """End its process."""
        self._pipe.close()
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()


def _serve(pipe: Connection, make: Open) -> None:
    """The engine's process: answers until nobody is there to ask."""
    try:
        with make() as ask:
            pipe.send(None)
            while True:
                question = pipe.recv()
                began_s = time.perf_counter()
                answer = ask(*question)
                pipe.send((time.perf_counter() - began_s, answer))
    except EOFError:
        return
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        pipe.send(f"{type(error).__name__}: {error}")
