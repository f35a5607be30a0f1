"""What a sweep costs besides its simulations: the same runs on Spark and in a plain pool."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ringcast.pipeline.spark.session import Where, open_session
from ringcast.pipeline.sweep import study
from ringcast.pipeline.sweep.job import sweep
from ringcast.sim.batch import Job
from ringcast.sim.run import run

STUDY = """
name = "cost"
seeds = "0..{runs}"
[run]
nodes = 5
duration_us = {duration_us}
network = "lan"
[[run.workload]]
kind = "poisson"
rate = 2000
"""


def the_study(runs: int) -> study.Study:
    """Simulations of about half a second each."""
    return study.parse(STUDY.format(runs=runs, duration_us=DURATION_US), Path())


DURATION_US = 700_000


@contextmanager
def open_sweep(cores: int, scratch: Path) -> Iterator[Callable[[int], int]]:
    """Sweeps with so many runs, in a session that is open already."""
    with open_session(Where(cores=cores)):

        def ask(runs: int) -> int:
            folder = scratch / "sweep"
            try:
                return sweep(the_study(runs), folder).simulated
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        yield ask


def _simulate(job: Job) -> int:
    return run(job.make()).events


@contextmanager
def open_pool(cores: int) -> Iterator[Callable[[int], int]]:
    """The same runs, one at a time, in processes that are there already."""
    with multiprocessing.get_context("fork").Pool(cores) as pool:

        def ask(runs: int) -> int:
            what = the_study(runs)
            jobs = [what.job(point) for point in what.points()]
            return len(list(pool.imap_unordered(_simulate, jobs)))

        yield ask
