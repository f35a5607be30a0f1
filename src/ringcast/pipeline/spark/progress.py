"""How far a job is, and how long it will still take, whichever kind of Spark runs it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINE_EVERY_S = 10.0
"""Without a terminal: a line when the first is done, and one after each so many seconds."""

LOOK_EVERY_S = 0.25

WAIT_S = 10.0
"""Without any task running for so long, a job says that it waits."""

WAITS = (
    "no task has begun for {:.0f} s: other applications hold the cluster's cores, or its workers "
    "cannot start an executor; the job goes on as soon as some are free. End the others, start "
    "more workers, or see the master's page"
)


Count = Callable[[Mapping[int, int], int], None]
"""Takes how many tasks of each stage are done, and how many run."""


class ProgressBar:
    """A bar on a terminal, plain lines elsewhere, nothing when ``quiet``; on the error stream."""

    def __init__(
        self,
        label: str,
        total: int,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.label, self.total = label, total
        self.done = 0
        self.quiet, self.clock = quiet, clock
        self.started = clock()
        self.next_line = self.started
        self.screen = Console(stderr=True, highlight=False, soft_wrap=True)
        self.drawn: Progress | None = None
        self._ran = self.started
        """When a task ran last, or when it was said that none does."""

    def __enter__(self) -> ProgressBar:
        if not self.quiet and self.screen.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self.drawn = Progress(
                *columns, TimeRemainingColumn(), console=self.screen, transient=True
            )
            self.drawn.start()
            self.drawn.add_task(self.label, total=self.total)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.drawn is not None:
            self.drawn.stop()

    def show(self, done: int) -> None:
        """So many are done; fewer than before, or more than there are, cannot be."""
        done = min(done, self.total)
        if done <= self.done:
            return
        self.done = done
        if self.drawn is not None:
            self.drawn.update(self.drawn.task_ids[0], completed=done)
        elif not self.quiet and self.clock() >= self.next_line:
            self.screen.print(f"{done} of {self.total} {self.label}{self._left()}")
            self.next_line = self.clock() + LINE_EVERY_S

    def running(self, tasks: int) -> None:
        """So many tasks run at this moment. A job that gets no cores would wait in silence."""
        now = self.clock()
        if tasks:
            self._ran = now
        elif not self.quiet and now - self._ran >= WAIT_S:
            self.screen.print(WAITS.format(WAIT_S))
            self._ran = float("inf")  # once is enough

    def _left(self) -> str:
        if self.next_line == self.started:  # the first line: too early to tell
            return ""
        seconds = (self.clock() - self.started) * (self.total - self.done) / self.done
        return f", {seconds:.0f} s left"


@contextmanager
def watch(
    spark: SparkSession, total: int, label: str, quiet: bool = False
) -> Iterator[ProgressBar]:
    """Show how many of the ``total`` Spark tasks that the block runs are done."""
    with ProgressBar(label, total, quiet) as bar:
        if quiet:
            yield bar
            return
        done: dict[int, int] = {}

        def count(stages: Mapping[int, int], running: int) -> None:
            new = stages.items() - done.items()
            done.update(stages)
            bar.show(sum(done.values()))
            bar.running(running + len(new))  # one that has ended ran a moment ago

        from pyspark.sql import is_remote

        with (_told if is_remote() else _asking)(spark, count):
            yield bar
        bar.show(total)


@contextmanager
def _told(spark: SparkSession, count: Count) -> Iterator[None]:
    """A Connect server says by itself how far it is."""

    def handler(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        completed = {stage.stage_id: stage.num_completed_tasks for stage in stages or ()}
        count(completed, 1 if done else inflight_tasks)

    spark.registerProgressHandler(handler)  # type: ignore[arg-type]  # any callable will do
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)  # type: ignore[arg-type]


@contextmanager
def _asking(spark: SparkSession, count: Count) -> Iterator[None]:
    """A driver of our own has to be asked: the one use of its context in the pipeline."""
    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()
    seen: set[int] = set()

    def look() -> None:
        active = tracker.getActiveStageIds()
        seen.update(active)
        found = {stage: tracker.getStageInfo(stage) for stage in sorted(seen)}
        known = {stage: info for stage, info in found.items() if info}
        running = sum(info.numActiveTasks for info in known.values())
        completed = {stage: info.numCompletedTasks for stage, info in known.items()}
        count(completed, running if active else 1)  # between two stages nothing waits for a core

    def keep_looking() -> None:
        with suppress(Exception):  # a driver that is gone: whoever waits for the job is told
            while not over.wait(LOOK_EVERY_S):
                look()

    asking = threading.Thread(target=keep_looking, name="ringcast-progress", daemon=True)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()
