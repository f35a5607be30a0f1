"""Thread pools without threads: a job runs some time after it was submitted, at one moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any

from ringcast.testing.loop import SimLoop
from ringcast.testing.process import PROCESS

JOB_US = 1_000
"""A job begins and its result comes after up to this long, each."""


class PoolJob(Future[Any]):
    """What a pool was asked to do. Who waits for the result makes it happen."""

    def __init__(self, pool: Pool, work: Callable[[], Any]) -> None:
        super().__init__()
        self._pool = pool
        self.work = work
        self.context = copy_context()
        self.outcome: tuple[Any, BaseException | None] | None = None
        self.slept_us = 0

    def result(self, timeout: float | None = None) -> Any:
        """The result; virtual time goes on until it is there."""
        self._pool.finish(self)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, or None; virtual time goes on until the job is done."""
        self._pool.finish(self)
        return super().exception(timeout)


class Pool:
    """The jobs of one executor, begun in their order, as many at a time as it has workers."""

    def __init__(self, loop: SimLoop, workers: int, draw: Callable[[int], int]) -> None:
        self._loop = loop
        self._workers = workers
        self._draw = draw
        self._waiting: deque[PoolJob] = deque()
        self._begun: list[PoolJob] = []

    def submit(self, work: Callable[[], Any]) -> PoolJob:
        """Have it done some time later."""
        job = PoolJob(self, work)
        self._waiting.append(job)
        self._begin_some()
        return job

    def _begin_some(self) -> None:
        while self._waiting and len(self._begun) < self._workers:
            job = self._waiting.popleft()
            self._begun.append(job)
            self._later(0, self._carry_out, job)

    def _later(self, after_us: int, act: Callable[[PoolJob], None], job: PoolJob) -> None:
        """In the process that submitted the job, if it is still there."""
        loop = self._loop

        def due(_: None) -> None:
            loop.call_soon(act, job, context=job.context)

        loop.scheduler.at(loop.now_us + after_us + self._draw(JOB_US), due)

    def _carry_out(self, job: PoolJob) -> None:
        if job.outcome is None and not self._run(job):
            self._end(job)
        elif not job.done():
            self._later(job.slept_us, self._tell, job)

    def _run(self, job: PoolJob) -> bool:
        """The work itself; False if it was cancelled before."""
        if job.done() or not job.set_running_or_notify_cancel():
            return False
        process = PROCESS.get()
        assert process is not None, "only hosts have threads"
        process.in_job = True
        try:
            job.outcome = (job.work(), None)
        except BaseException as error:
            job.outcome = (None, error)
        finally:
            job.slept_us, process.job_us, process.in_job = process.job_us, 0, False
        return True

    def _tell(self, job: PoolJob) -> None:
        if not job.done():
            assert job.outcome is not None
            result, error = job.outcome
            if error is not None:
                job.set_exception(error)
            else:
                job.set_result(result)
        self._end(job)

    def _end(self, job: PoolJob) -> None:
        if job in self._begun:
            self._begun.remove(job)
            self._begin_some()

    def finish(self, wanted: PoolJob | None = None) -> None:
        """Somebody blocks until a job, or all, are done: so they are done now, in their order."""
        while self._begun and not (wanted is not None and wanted.done()):
            job = self._begun[0]
            if job.outcome is not None or job.context.run(self._run, job):
                self._tell(job)
            else:
                self._end(job)
