"""Sweeps: the simulations of a study as Spark tasks, taken up again where they were left.

Simulations are bundled to some seconds of work for each task, since a task costs some hundredths
of a second. What they cost is learnt from finished rows, so the first few are run one by one.
"""

from __future__ import annotations

import fcntl
import heapq
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from math import ceil
from pathlib import Path
from shlex import quote
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.spark.progress import watch
from ringcast.pipeline.spark.session import Where, open_session
from ringcast.pipeline.spark.tasks import tasks
from ringcast.pipeline.sweep.results import Folder, Row, RunStatus, publish, table_of, writing
from ringcast.pipeline.sweep.simulations import (
    Orders,
    code_digest,
    finished,
    key_of,
    packed,
    simulate_all,
)
from ringcast.pipeline.sweep.study import Point, Study
from ringcast.sim import runfile
from ringcast.sim.batch import Job
from ringcast.sim.spec import repeat_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_S = 4.0
"""Work of a task: two to five seconds hide what the task costs, and are soon lost or done."""

FEWEST_TASKS = 8
"""Of a small sweep, so that several cores have something to do."""

TRIALS = 8
"""Simulations run one by one to learn what they cost; of a large sweep, one in forty."""

SPENT = pa.schema([("combination", pa.int64()), ("cpu_s", pa.float64())])


class SweepOutcome(msgspec.Struct, frozen=True):
    """What came of a sweep."""

    results: pa.Table
    simulated: int
    """Runs that were not there before."""

    @property
    def statuses(self) -> dict[str, int]:
        """How many runs ended how."""
        return dict(sorted(Counter(self.results["status"].to_pylist()).items()))

    @property
    def failures(self) -> list[Row]:
        """The rows that are not fine."""
        rows: list[Row] = self.results.filter(
            pc.not_equal(self.results["status"], str(RunStatus.OK))
        ).to_pylist()
        return rows


def sweep(
    study: Study,
    path: Path,
    where: Where | None = None,
    *,
    traces: bool = False,
    quiet: bool = True,
) -> SweepOutcome:
    """Run what is missing of ``study`` in the folder ``path``, and write the tables of results.

    Several points may be the same run; it is simulated once. ``traces`` are kept if either the
    caller or the study wants them.
    """
    traces = traces or study.traces
    code = code_digest()
    with claimed(path) as folder:
        jobs = tuple([packed(combination.job) for combination in study.combinations])
        keys = [key_of(jobs[point.combination], point.seed, code) for point in study.points()]
        points = dict(zip(keys, study.points(), strict=True))
        rows = {key: row for key in points if (row := finished(folder, key, traces))}
        missing = [key for key in points if key not in rows]
        if missing:
            orders = Orders(str(folder.path), code, jobs, traces)
            with open_session(where, app=f"ringcast sweep {study.name}") as spark:
                spent = [(points[key].combination, row["cpu_s"]) for key, row in rows.items()]
                run_missing(spark, study, orders, [points[key] for key in missing], spent, quiet)
            rows |= {key: row for key in missing if (row := finished(folder, key, traces))}
        if lost := len(points) - len(rows):
            raise PipelineError(
                f"{lost} finished runs are not in {folder.path}; "
                "it must be the same folder for this process and for all of Spark's executors"
            )
        failed = [key for key, row in rows.items() if row["status"] != RunStatus.OK]
        commands = {key: repeatable(folder, study.job(points[key]), key) for key in failed}
        results = table_of(study, keys, rows, commands)
        publish(folder, study, code, results, [rows[key] for key in points])
    return SweepOutcome(results, len(missing))


def repeatable(folder: Folder, job: Job, key: str) -> str:
    """The command, in the folder of the sweep, that runs a failed job again."""
    if job.spec is None:
        return repeat_command(job.make())
    file = folder.failed / f"{key}.toml"
    folder.write(file, runfile.dump(job.make()).encode())
    return f"ringcast sim {file.relative_to(folder.path)}"


def command_for(row: Row, path: Path) -> str:
    """The command that shows a failure in ``path`` again, to be typed anywhere."""
    file = Folder(path).failed / f"{row['key']}.toml"
    return f"ringcast sim {quote(str(file))}" if file.exists() else str(row["repeat"])


@contextmanager
def claimed(path: Path) -> Iterator[Folder]:
    """The folder for one sweep at a time, with what a killed one left half-written removed."""
    folder = Folder(path.absolute())
    with ExitStack() as held:
        with writing(path):
            if path.is_dir() and any(path.iterdir()) and not folder.rows.is_dir():
                raise PipelineError(f"{path} holds something else than a sweep; name another")
            folder.rows.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context((folder.path / "lock").open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(f"another sweep is at work in {path}") from None
            shutil.rmtree(folder.staging, ignore_errors=True)
            folder.staging.mkdir(exist_ok=True)
        yield folder
        shutil.rmtree(folder.staging, ignore_errors=True)


def run_missing(
    spark: SparkSession,
    study: Study,
    orders: Orders,
    points: Sequence[Point],
    spent: Sequence[tuple[int, float]],
    quiet: bool,
) -> None:
    """Simulate ``points``; ``spent`` are combinations and CPU seconds of runs that are there."""

    def wave(bundles: Sequence[Sequence[Point]], label: str) -> list[tuple[int, float]]:
        with watch(spark, len(bundles), label, quiet):
            done = tasks(spark, bundles, partial(simulate_all, orders), SPENT)
        return [(row["combination"], row["cpu_s"]) for row in done.to_pylist()]

    trials = trial_points(points, len(spent))
    spent = [*spent, *wave([[point] for point in trials], "trial runs")]
    tried = set(trials)
    rest = [point for point in points if point not in tried]
    jobs = [combination.job for combination in study.combinations]
    wave(bundled(rest, estimated(jobs, spent)), "tasks")


def trial_points(points: Sequence[Point], known: int) -> Sequence[Point]:
    """Some of ``points``, evenly spread over them, unless enough is known already."""
    wanted = max(TRIALS, len(points) // 40) - known
    return points[:: ceil(len(points) / wanted)] if wanted > 0 else ()


def estimated(jobs: Sequence[Job], spent: Sequence[tuple[int, float]]) -> list[float]:
    """CPU seconds of a run of each combination: its mean, else in proportion to its size."""
    seen: defaultdict[int, list[float]] = defaultdict(list)
    for combination, cpu_s in spent:
        seen[combination].append(cpu_s)
    sizes = [job.spec.nodes * job.spec.duration_us if job.spec else 1 for job in jobs]
    rate = sum(cpu_s for _, cpu_s in spent) / max(1, sum(sizes[at] for at, _ in spent))
    return [fmean(seen[at]) if at in seen else rate * size for at, size in enumerate(sizes)]


def bundled(points: Sequence[Point], costs: Sequence[float]) -> list[list[Point]]:
    """``points`` in bundles of equal cost, ``TASK_S`` or less; the longest first in all of them.

    A point costs what ``costs`` says of its combination.
    """
    total = sum(costs[point.combination] for point in points)
    count = max(min(FEWEST_TASKS, len(points)), ceil(total / TASK_S))
    loads: list[tuple[float, int]] = [(0.0, at) for at in range(count)]
    bundles: list[list[Point]] = [[] for _ in loads]
    for point in sorted(points, key=lambda point: -costs[point.combination]):
        load, at = loads[0]
        bundles[at].append(point)
        heapq.heapreplace(loads, (load + costs[point.combination], at))
    heaviest = sorted(loads, key=lambda each: (-each[0], each[1]))
    return [bundles[at] for _, at in heaviest if bundles[at]]
