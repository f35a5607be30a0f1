"""Thread pools without threads: a job runs some time after it was submitted, at one moment."""

from __future__ import annotations

from _thread import RLock
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import PENDING
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from ringcast.testing.process import PROCESS

if TYPE_CHECKING:
    from ringcast.testing.loop import SimLoop

T = TypeVar("T")

JOB_US = 1_000
"""A job begins and its result comes after up to this long, each."""


class PoolJob:
    """What a pool was asked to do, and who is told of the outcome."""

    __slots__ = ("context", "future", "outcome", "slept_us", "work")

    def __init__(self, future: Any, work: Callable[[], Any]) -> None:
        self.future = future
        self.work = work
        self.context = copy_context()
        self.outcome: tuple[Any, BaseException | None] | None = None
        self.slept_us = 0


class _Condition(RLock):  # type: ignore[misc]
    """Of all such futures: there is one thread, so nobody waits to be notified."""

    def notify_all(self) -> None:
        """Nobody is there."""

    def wait(self, timeout: float | None = None) -> bool:
        """Nobody else would notify."""
        return False


_CONDITION: Any = _Condition()


class JobResult(Future[Any]):
    """What ``submit`` of an executor gives. Who waits for it makes it happen."""

    def __init__(self, pool: Pool) -> None:
        # As the class does it, without a condition for each.
        self._condition = _CONDITION
        self._state, self._result, self._exception = PENDING, None, None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self._pool = pool

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

    def __init__(self, loop: SimLoop, workers: int) -> None:
        self._loop = loop
        self._workers = workers
        self._waiting: deque[PoolJob] = deque()
        self._begun: list[PoolJob] = []

    def submit(self, work: Callable[[], Any], future: T) -> T:
        """Have it done some time later; the future is told, asyncio's or the other kind."""
        self._waiting.append(PoolJob(future, work))
        self._begin_some()
        return future

    def _begin_some(self) -> None:
        while self._waiting and len(self._begun) < self._workers:
            job = self._waiting.popleft()
            self._begun.append(job)
            self._later(0, self._carry_out, job)

    def _later(self, after_us: int, act: Callable[[PoolJob], None], job: PoolJob) -> None:
        """In the process that submitted the job, if it is still there."""
        loop = self._loop
        loop.later(after_us + loop.draw_job_us(JOB_US), act, job, context=job.context)

    def _carry_out(self, job: PoolJob) -> None:
        if job.outcome is None and not self._run(job):
            self._end(job)
        elif not job.future.done():
            self._later(job.slept_us, self._tell, job)

    def _run(self, job: PoolJob) -> bool:
        """The work itself; False if it was cancelled before."""
        future = job.future
        if future.done():
            return False
        if isinstance(future, Future) and not future.set_running_or_notify_cancel():
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
        future = job.future
        if not future.done():
            assert job.outcome is not None
            result, error = job.outcome
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
        self._end(job)

    def _end(self, job: PoolJob) -> None:
        if job in self._begun:
            self._begun.remove(job)
            self._begin_some()

    def finish(self, wanted: JobResult | None = None) -> None:
        """Somebody blocks until a job, or all, are done: so they are done now, in their order."""
        while self._begun and not (wanted is not None and wanted.done()):
            job = self._begun[0]
            if job.outcome is not None or job.context.run(self._run, job):
                self._tell(job)
            else:
                self._end(job)
