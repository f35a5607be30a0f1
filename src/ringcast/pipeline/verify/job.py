"""Traces of any size, verified as Spark tasks: windows of large runs, many small runs in one task.

Rows never enter the JVM: a task reads the files it needs, compares arrays, and gives back what is
odd. The driver puts the windows of a large run together and has the checks judge them.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import pyarrow as pa

from ringcast.pipeline.errors import PipelineError
from ringcast.pipeline.spark.progress import watch
from ringcast.pipeline.spark.tasks import tasks
from ringcast.pipeline.verify.condense.plan import Window
from ringcast.pipeline.verify.condense.window import Found, look
from ringcast.pipeline.verify.run_verifier import Case, VerifyRequest, verify_run
from ringcast.pipeline.verify.verdicts import Report, RunVerdict, SecondOpinion, doubted, together
from ringcast.traces.parquet import is_number
from ringcast.traces.schema import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE_BYTES = 16 << 20
"""The windows of a larger run are tasks of their own."""

TASK_ROWS = 1 << 20
"""Small windows share a task up to about so many deliveries."""

BATCH_BYTES = 1 << 18
"""Runs that are not large share a task up to about this size."""

ANSWER = pa.schema([("answer", pa.binary())])


class RunBatch(msgspec.Struct, frozen=True):
    """Runs that one task judges."""

    runs: tuple[tuple[str, int], ...]
    ask: VerifyRequest


Work: TypeAlias = RunBatch | tuple[Window, ...]
"""What a task does: judge runs, or look at windows."""

Which: TypeAlias = tuple[Path, int]
"""A run: its folder and number."""


def runs_in(folder: Path) -> list[int]:
    """The runs of a folder; an error names what is not whole."""
    if not folder.is_dir():
        raise PipelineError(f"{folder}: no such folder")
    found: dict[str, set[int]] = {}
    for table in TABLES:
        for path in sorted((folder / table).glob("*")):
            if path.suffix in (".part", ".spill"):
                raise PipelineError(f"{path}: left by a writer that was not finished; remove it")
            if path.suffix != ".parquet" or not is_number(path.stem):
                raise PipelineError(f"{path}: is not called <run>.parquet; move it elsewhere")
            found.setdefault(table, set()).add(int(path.stem))
    every = set().union(*found.values())
    if not every:
        raise PipelineError(f"{folder}: holds no trace; there is no {folder / 'fault'}/0.parquet")
    for table in TABLES:
        if lost := every - found.get(table, set()):
            path = folder / table / f"{min(lost)}.parquet"
            raise PipelineError(f"{path}: no such file; the run is incomplete")
    return sorted(every)


def verify(
    spark: SparkSession, folders: Iterable[Path], ask: VerifyRequest, quiet: bool = False
) -> Report:
    """Judge all runs of these folders."""
    began_s = perf_counter()
    found_in = {folder.resolve(): runs_in(folder) for folder in folders}  # tasks run elsewhere
    sizes = {(folder, run): _size(folder, run) for folder, own in found_in.items() for run in own}
    large = [which for which, size in sizes.items() if size > LARGE_BYTES]
    cases = {which: Case(*which, ask) for which in large}
    work: list[Work] = list(_batches({w: s for w, s in sizes.items() if w not in cases}, ask))
    done: dict[Which, RunVerdict] = {}
    while True:
        asked = [(case, at) for case in cases.values() for at in case.open_windows()]
        todo: list[Work] = [*_grouped(case.windows[at] for case, at in asked), *work]
        if not todo:
            break
        with watch(spark, len(todo), "parts", quiet):
            table = tasks(spark, todo, _answer, ANSWER)
        found = iter(table["answer"].to_pylist())
        for case, at in asked:
            case.take(at, msgspec.msgpack.decode(zlib.decompress(next(found)), type=Found))
        for answer in found:
            verdict = msgspec.msgpack.decode(zlib.decompress(answer), type=RunVerdict)
            done[Path(verdict.folder), verdict.run] = verdict
        work = []
    done |= {which: case.verdict() for which, case in cases.items()}
    return Report(tuple(done[which] for which in sizes), perf_counter() - began_s)


def second_opinion(
    spark: SparkSession, report: Report, lacks: Container[str] = ()
) -> SecondOpinion:
    """Have queries judge the same runs, and hold their answers against ours. Folders in ``lacks``
    are of logs that are not whole."""
    from ringcast.pipeline.verify.crosscheck.compare import cross_check, disagreements

    said: list[tuple[str, str]] = []
    lines: list[str] = []
    for folder in dict.fromkeys(each.folder for each in report.runs):
        judged = [each for each in report.runs if each.folder == folder and not each.error]
        tags = together((tag, v) for each in judged for tag, v in each.verdicts.items())
        cross = cross_check(spark, Path(folder), tags, [each.run for each in judged])
        claimed = {(each.run, tag) for each in judged for tag in each.verdicts}
        answers = [(c.property, c.verdict) for c in cross if (c.run, c.property) in claimed]
        said += ((tag, doubted(tag, v)) for tag, v in answers) if folder in lacks else answers
        for each in judged:
            lines += disagreements(each.run, each.verdicts, each.violations, cross)
    return SecondOpinion(together(said), lines)


def _size(folder: Path, run: int) -> int:
    return sum((folder / table / f"{run}.parquet").stat().st_size for table in TABLES)


def _batches(sizes: dict[Which, int], ask: VerifyRequest) -> Iterator[RunBatch]:
    """Runs put together, the largest first."""
    batch: list[tuple[str, int]] = []
    total = 0
    for (folder, run), size in sorted(sizes.items(), key=lambda item: -item[1]):
        if batch and total + size > BATCH_BYTES:
            yield RunBatch(tuple(batch), ask)
            batch, total = [], 0
        batch.append((str(folder), run))
        total += size
    if batch:
        yield RunBatch(tuple(batch), ask)


def _grouped(windows: Iterable[Window]) -> Iterator[tuple[Window, ...]]:
    """Windows in order, small ones together."""
    group: list[Window] = []
    rows = 0
    for window in windows:
        rows += window.rows
        if group and rows > TASK_ROWS:
            yield tuple(group)
            group, rows = [], window.rows
        group.append(window)
    if group:
        yield tuple(group)


def _answer(work: Work) -> Sequence[dict[str, bytes]]:
    """What a task does."""
    found: list[Found | RunVerdict]
    if isinstance(work, RunBatch):
        found = [verify_run(Path(folder), run, work.ask) for folder, run in work.runs]
    else:
        found = [look(window) for window in work]
    return [{"answer": zlib.compress(msgspec.msgpack.encode(each), 1)} for each in found]
