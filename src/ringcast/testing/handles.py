"""What a SimLoop runs and awaits: handles, tasks and futures, light or numbered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringcast.testing.loop import SimLoop


def _nothing() -> None:
    """What is left of a callback that was cancelled."""


class SimHandle(asyncio.Handle):
    """What is to run in a turn. asyncio's own asks each time whether the loop is debugged."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: Context,
    ) -> None:
        self._context, self._loop, self._callback, self._args = context, loop, callback, args
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        """Do not run it."""
        self._cancelled = True
        self._callback, self._args = _nothing, ()


class SimTimer(asyncio.TimerHandle):
    """What is to run at a time."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: Context,
    ) -> None:
        self._context, self._loop, self._callback, self._args = context, loop, callback, args
        self._cancelled, self._scheduled, self._when = False, True, when
        self._repr = self._source_traceback = None

    cancel = SimHandle.cancel


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where it lies in memory."""

    __slots__ = ("_number", "context")

    def __init__(
        self, coro: Any, *, loop: SimLoop, number: int, context: Context | None, **kwargs: Any
    ) -> None:
        self._number = number
        self.context = context or copy_context()  # an empty one would belong to no host
        super().__init__(coro, loop=loop, context=self.context, **kwargs)

    def __hash__(self) -> int:
        return self._number


class SimFuture(asyncio.Future[Any]):
    """A future of which the same is true."""

    __slots__ = ("_number",)
    _number: int

    def __hash__(self) -> int:
        return self._number
