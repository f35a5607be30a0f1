"""Many seeds over all cores, and the sum of their results."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from typing import Any

import msgspec

from ringcast.protocols import DEFAULT
from ringcast.sim.meter import Measures
from ringcast.sim.run import Breach, RunResult, run
from ringcast.sim.spec import RunSpec
from ringcast.sim.swarm import draw

CHUNK = 16
"""Seeds a worker takes at a time: enough to hide the hand-over, few enough for a smooth bar."""

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal to get when the parent dies."""


class Job(msgspec.Struct, frozen=True):
    """One run of a batch: a drawn one, or a given specification with another seed."""

    seed: int
    protocol: str = DEFAULT
    nodes: int | None = None
    spec: RunSpec | None = None
    profile: str = ""
    outsider: float = 0.0
    config: dict[str, Any] = {}
    """Settings that are not drawn."""

    def make(self) -> RunSpec:
        """The specification to run."""
        if self.spec is None:
            drawn = draw(self.seed, self.protocol, self.nodes, self.profile, self.config)
            return msgspec.structs.replace(drawn, outsider=self.outsider)
        return msgspec.structs.replace(self.spec, seed=self.seed)


class Summary:
    """Counts over many runs."""

    def __init__(self) -> None:
        self.runs = self.events = self.deliveries = self.views = 0
        self.frames = self.simulated_us = 0
        self.measures = Measures()
        self.faults: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.visits: Counter[str] = Counter()
        self.violations: list[Breach] = []
        self.valid: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        """Runs in which a property held, and in which it could not be judged, by property."""

    def add(self, result: RunResult) -> None:
        """Take one result in."""
        self.runs += 1
        self.events += result.events
        self.deliveries += result.deliveries
        self.views += result.views
        self.frames += result.frames
        self.simulated_us += result.simulated_us
        self.measures += result.measures
        self.faults.update(result.faults)
        self.lost.update(result.lost)
        self.visits.update(result.visits)
        self.violations.extend(result.violations)
        for name, verdict in result.verdicts.items():
            if verdict != "invalid":
                (self.valid if verdict == "valid" else self.unknown)[name] += 1


def run_batch(jobs: Iterable[Job], workers: int | None = None) -> Iterator[RunResult]:
    """Run every job, yielding results as they come; with one worker, in this process.

    Leaving the iterator early, by an exception or Ctrl-C, ends the workers; so does our death.
    """
    workers = workers or os.cpu_count() or 1
    if workers == 1:
        for job in jobs:
            yield run(job.make())
        return
    chunks = _chunks(jobs)
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (os.getpid(),))
    pending: set[Future[list[RunResult]]] = set()
    try:
        pending.update(pool.submit(_run_chunk, chunk) for chunk in islice(chunks, 2 * workers))
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            pending.update(pool.submit(_run_chunk, chunk) for chunk in islice(chunks, len(done)))
            for future in done:
                yield from future.result()
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _chunks(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    rest = iter(jobs)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def _run_chunk(jobs: list[Job]) -> list[RunResult]:
    return [run(job.make()) for job in jobs]


def _begin(parent: int) -> None:
    """Ctrl-C goes to the whole terminal group; the parent ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)


def end_with(parent: int) -> None:
    """From now on this process ends when its parent does, however that happened.

    By SIGKILL, since a process that was stopped would get nothing else.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # it was gone before we could say so
            os._exit(1)
