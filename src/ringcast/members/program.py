"""What every program with a node in it needs: an event loop, and an orderly end on a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress


async def until_signal(work: asyncio.Task[None]) -> None:
    """Let ``work`` go on until it ends or somebody asks for the end; then it leaves in order."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, work.cancel)
    with suppress(asyncio.CancelledError):
        await work


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
