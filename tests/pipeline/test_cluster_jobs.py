"""Jobs on a real cluster: through its master and through Connect, and when a worker is killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringcast.pipeline.spark.cluster import wait_until

ITEMS = 6

JOB = """
import json, os, sys, time
from pathlib import Path
import pyarrow as pa
from pyspark.sql import functions as F
from ringcast.pipeline.spark.progress import watch
from ringcast.pipeline.spark.session import Where, open_session
from ringcast.pipeline.spark.tasks import tasks

kind, url, folder, items = sys.argv[1][2:], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])

def square(item):
    # Where this runs is the executor's folder, in its worker's: .../worker-1/app-.../0/...
    worker = next(part for part in Path.cwd().parts if part.startswith("worker-"))
    (folder / f"{item}-{worker}").touch()
    deadline = time.monotonic() + 120
    while not (folder / "go on").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return [{"item": item, "square": item * item}]

with open_session(Where(**{kind: url})) as spark:
    with watch(spark, items, "items") as bar:
        found = tasks(spark, list(range(items)), square,
                      pa.schema([("item", pa.int64()), ("square", pa.int64())]))
    threes = spark.range(100).where(F.col("id") % 3 == 0).count()
print(json.dumps({"rows": found.to_pylist(), "threes": threes, "done": bar.done}))
"""


def other(worker: str) -> str:
    """There are two."""
    return {"worker-1": "worker-2", "worker-2": "worker-1"}[worker]


def test_one_process_runs_all_tests_with_a_cluster(
    cluster: Any, request: pytest.FixtureRequest
) -> None:
    """They are a group; were it not kept, every process would start a cluster."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@cluster")


@pytest.mark.parametrize("kind", ["master", "remote"])
def test_a_job_survives_a_worker(kind: str, cluster: Any, tmp_path: Path) -> None:
    """The tasks that it was running are run by the other one, and the answer is the same."""

    def started() -> list[tuple[str, str]]:
        return [(path.name[0], path.name[2:]) for path in tmp_path.glob("*-worker-*")]

    command = [sys.executable, "-c", JOB, *cluster.options[kind], str(tmp_path), str(ITEMS)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        try:
            assert wait_until(lambda: len(started()) == 2 or job.poll() is not None, 120)
            killed = cluster.kill_busy_worker(kind)
            lost = [item for item, worker in started() if worker == killed]
            (tmp_path / "go on").touch()
            out, err = job.communicate(timeout=600)
        finally:
            job.kill()
    assert job.returncode == 0, err
    assert json.loads(out) == {
        "rows": [{"item": item, "square": item * item} for item in range(ITEMS)],
        "threes": 34,
        "done": ITEMS,
    }
    assert lost and all((item, other(killed)) in started() for item in lost)
    assert re.fullmatch(rf"(\d of {ITEMS} items(, \d+ s left)?\n)+", err), "progress, and no more"
