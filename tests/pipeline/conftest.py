"""Spark for the tests that need it: a session on this machine, and a real cluster.

A module that uses these fixtures has ``pytestmark = pytest.mark.xdist_group("spark")``: such tests
run in one process, one at a time, and share what is slow to start.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ringcast.pipeline import cluster as standalone
from ringcast.pipeline.session import Where, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS = 2


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores of this machine."""
    with open_session(Where(cores=2)) as session:
        yield session


class Running:
    """A cluster of two workers. Jobs go there from a process of their own: this one may have a
    session on this machine already."""

    def __init__(self, found: standalone.Cluster) -> None:
        self.found = found
        self.options = {"master": ["--master", found.master], "remote": ["--remote", found.remote]}
        """What a command has to be told."""

    def kill_busy_worker(self, kind: str) -> str:
        """Wait until the job sent to ``kind`` runs Python on a worker, then SIGKILL that worker
        and its executors. The master knows when this returns."""
        busy: list[str] = []

        def found() -> bool:
            busy[:] = [name for name, through in self._python() if through == kind]
            return bool(busy)

        assert standalone.wait_until(found, 120), "no task came to any worker"
        os.killpg(self.found.parts[busy[0]].pid, signal.SIGKILL)
        assert standalone.wait_until(lambda: standalone.registered(self.found) == WORKERS - 1, 60)
        return busy[0]

    def _python(self) -> Iterator[tuple[str, str]]:
        """The worker and the kind of each Python process of an executor, by where it runs."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                where = (process / "cwd").readlink()
                if where.is_relative_to(self.found.folder) and "daemon" in standalone.command_line(
                    int(process.name)
                ):
                    name, app, *_ = where.relative_to(self.found.folder).parts
                    yield name, "remote" if app.endswith("-0000") else "master"

    def mend(self) -> None:
        """Start the workers again that a test has killed."""
        for name in self.found.workers():
            if not self.found.alive(name):
                standalone.start(self.found, name, self.found.parts[name].command)
        assert standalone.wait_until(lambda: standalone.registered(self.found) == WORKERS, 60)


@pytest.fixture(scope="session")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Started once for all tests; see ``cluster``."""
    folder = tmp_path_factory.mktemp("state") / "cluster"
    yield Running(standalone.up(folder, WORKERS))
    standalone.down(folder)


@pytest.fixture
def cluster(running_cluster: Running) -> Running:
    """A real cluster with all its workers; see :class:`Running` for what to do with it."""
    running_cluster.mend()
    return running_cluster
