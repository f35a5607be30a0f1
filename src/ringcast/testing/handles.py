"""What a SimLoop runs and awaits: handles, tasks and futures, light or numbered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from ringcast.testing.loop import SimLoop


def _nothing() -> None:
    """What is left of a callback that was cancelled."""


class SimHandle(msgspec.Struct, eq=False, weakref=True):
    """What is to run in a turn: an ``asyncio.Handle`` that is made without a call of Python."""

    _callback: Callable[..., object]
    _args: tuple[Any, ...]
    _context: Context
    _cancelled: bool = False

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For programs that ask whether it is one."""
        return asyncio.Handle

    def cancel(self) -> None:
        """Do not run it."""
        self._cancelled = True
        self._callback, self._args = _nothing, ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._cancelled


class SimTimer(SimHandle, eq=False, weakref=True):
    """What is to run at a time."""

    _when: float = 0.0

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return asyncio.TimerHandle

    def when(self) -> float:
        """That time, by the clock of whose it is."""
        return self._when


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
