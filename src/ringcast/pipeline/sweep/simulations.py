"""What a Spark task of a sweep does: some simulations, each row written as soon as it is there.

A simulation that fails is a result, so it is a row. A disk that is full is not: it ends the task,
and the sweep can be taken up again at exactly the rows that are missing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from time import perf_counter, thread_time
from traceback import extract_tb
from uuid import uuid4

import msgspec

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.sweep.results import Folder, Row, RunStatus, row_of, run_number, writing
from ringcast.pipeline.sweep.study import Point
from ringcast.sim.batch import Job
from ringcast.sim.run import RunResult, run
from ringcast.sim.spec import RunSpec, claims_of
from ringcast.traces import TraceWriter

DECIDING = ("core", "blocks", "protocols", "checks", "sim")
"""The packages whose code decides what comes of a run."""


class Orders(msgspec.Struct, frozen=True):
    """What all tasks of a sweep have in common."""

    folder: str
    code: str
    """What the driver's ``code_digest`` is."""
    jobs: tuple[bytes, ...]
    """By combination, as ``packed`` writes them."""
    traces: bool


@cache
def code_digest() -> str:
    """A hash of the code that decides what comes of a run."""
    digest = sha256()

    def take(found: Traversable) -> None:
        for each in sorted(found.iterdir(), key=lambda each: each.name):
            if each.is_dir():
                take(each)
            elif each.name.endswith(".py"):
                digest.update(f"{each.name}\0".encode() + each.read_bytes() + b"\0")

    for package in DECIDING:
        take(files("ringcast") / package)
    return digest.hexdigest()


def packed(job: Job) -> bytes:
    """A job as bytes, which name it and travel; equal ones may differ if pickled on the way."""
    return msgspec.msgpack.encode(job, order="deterministic")


def key_of(job: bytes, seed: int, code: str) -> str:
    """The name of what comes of a run: the same for the same specification and the same code."""
    return sha256(f"{code} {seed} ".encode() + job).hexdigest()


def finished(folder: Folder, key: str, traces: bool) -> Row | None:
    """The row of a run, if all that is wanted of it is there. One that failed has no trace."""
    row = folder.read_row(key)
    if row and traces and row["status"] != RunStatus.ERROR:
        trace = folder.traces / "fault" / f"{run_number(key)}.parquet"
        return row if trace.exists() else None
    return row


def simulate_all(orders: Orders, points: Sequence[Point]) -> Iterator[dict[str, float]]:
    """Simulate what is not there yet, and say what it cost.

    Spark may give a task to two workers, or again after a worker died.
    """
    if code_digest() != orders.code:
        raise PipelineError(
            "Spark's executors have another ringcast than this process, or it was changed while "
            "they ran; see to it that all have the same and start again"
        )
    folder = Folder(Path(orders.folder))
    for point in points:
        job = orders.jobs[point.combination]
        key = key_of(job, point.seed, orders.code)
        if finished(folder, key, orders.traces) is None:
            drawn = msgspec.structs.replace(msgspec.msgpack.decode(job, type=Job), seed=point.seed)
            row = simulated(folder, drawn, key, orders.traces)
            yield {"combination": point.combination, "cpu_s": row["cpu_s"]}


def simulated(folder: Folder, job: Job, key: str, traces: bool) -> Row:
    """Run a job and keep its trace, if that is wanted, and its row."""
    began_s, began_cpu_s = perf_counter(), thread_time()
    nodes = None
    try:
        spec = job.make()
        nodes = spec.nodes
        row = row_of(key, nodes, traced(folder, spec, key) if traces else run(spec))
    except PipelineError:
        raise
    except Exception as error:
        row = {"key": key, "nodes": nodes, "status": RunStatus.ERROR, "explanation": told(error)}
    row |= {"cpu_s": thread_time() - began_cpu_s, "wall_s": perf_counter() - began_s}
    folder.write_row(row)
    return row


def traced(folder: Folder, spec: RunSpec, key: str) -> RunResult:
    """Run ``spec`` and keep its trace."""
    staged = folder.staging / uuid4().hex
    with writing(folder.path):
        try:
            with TraceWriter(staged, run_number(key), claims_of(spec)) as writer:
                result = run(spec, [writer])
            # The table by which a trace is found comes last.
            for file in sorted(staged.glob("*/*"), key=lambda file: file.parent.name == "fault"):
                target = folder.traces / file.relative_to(staged)
                target.parent.mkdir(parents=True, exist_ok=True)
                file.replace(target)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    return result


def told(error: Exception) -> str:
    """An error in one line, with the place in our code where it came up."""
    frames = [frame for frame in extract_tb(error.__traceback__) if "ringcast" in frame.filename]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split()) + place
