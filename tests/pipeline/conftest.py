"""Spark for the tests that need it: a session on this machine, and a real cluster.

Tests that use the session run in one process, one at a time, and those that use the cluster in
another one, so each group shares what is slow to start. Tests that start a Spark of their own are
in no group, and run wherever there is room.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ringcast.pipeline.spark import cluster as standalone
from ringcast.pipeline.spark.archive import class_archive, is_whole
from ringcast.pipeline.spark.java import java_home
from ringcast.pipeline.spark.session import Where, open_session, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent

sys.path.insert(0, str(HERE))  # for modules that several tests here share

WORKERS = 2

FIRST = """
import pyarrow
from ringcast.pipeline.spark.session import open_session
from ringcast.pipeline.spark.tasks import tasks
with open_session() as spark:
    tasks(spark, [1], lambda item: [{"is": item}], pyarrow.schema([("is", pyarrow.int64())]))
    spark.range(9).groupBy("id").count().collect()
    jvm = spark.sparkContext._gateway.proc
jvm.stdin.close()
jvm.wait()  # it is written at the very end
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups for pytest-xdist, by what a test uses, unless its module says another."""
    for item in items:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("xdist_group"):
            continue
        for fixture, group in (("running_cluster", "cluster"), ("spark", "spark")):
            if fixture in item.fixturenames and item.path.parent == HERE:
                item.add_marker(pytest.mark.xdist_group(group))
                break


@pytest.fixture(scope="session")
def first_session(tmp_path_factory: pytest.TempPathFactory) -> None:
    """On a new machine, a session that leaves the archive by which all others start faster."""
    archive = class_archive(java_home(os.environ), spark_home(), os.environ)
    every = tmp_path_factory.getbasetemp().parent  # of all processes of pytest-xdist
    with (every / "first-session.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive is not None and not is_whole(archive):
            subprocess.run([sys.executable, "-c", FIRST], check=True)


@pytest.fixture(scope="session")
def spark(first_session: None) -> Iterator[SparkSession]:
    """A session on two cores of this machine."""
    with open_session(Where(cores=2)) as session:
        yield session


class Running:
    """A cluster of two workers. Jobs go there from a process of their own: this one may have a
    session on this machine already."""

    def __init__(self, found: standalone.LocalSpark) -> None:
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

        assert standalone.wait_until(found, 600), "no task came to any worker"
        os.killpg(self.found.parts[busy[0]].pid, signal.SIGKILL)
        assert standalone.wait_until(lambda: standalone.registered(self.found) == WORKERS - 1, 600)
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
        assert standalone.wait_until(lambda: standalone.registered(self.found) == WORKERS, 600)


@pytest.fixture(scope="session")
def running_cluster(
    first_session: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Started once for all tests; see ``cluster``."""
    folder = tmp_path_factory.mktemp("state") / "cluster"
    yield Running(standalone.up(folder, WORKERS))
    standalone.down(folder)


@pytest.fixture
def cluster(running_cluster: Running) -> Running:
    """A real cluster with all its workers; see :class:`Running` for what to do with it."""
    running_cluster.mend()
    return running_cluster
