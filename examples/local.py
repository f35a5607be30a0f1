"""What the examples share: three nodes on this machine, and lines typed by the user."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import CancelledError
from itertools import chain
from pathlib import Path
from typing import Any

from ringcast.core.errors import RingcastError

PORT = int(os.environ.get("RINGCAST_PORT", "5400"))
PROTOCOL = os.environ.get("RINGCAST_PROTOCOL", "totem")
LISTED = ("counter", "rbp", "irbp", "token-fd")
"""Protocols that must be told of all who may ever take part; the others hear of who comes."""
PLACE = Path(tempfile.gettempdir()) / f"ringcast-examples-{PORT}"


def settings(me: int, most: int = 3) -> dict[str, Any]:
    """Node 1, 2 or 3, or one that joins them. Without keys, which is allowed on loopback only."""
    known = most if PROTOCOL in LISTED else 3
    return {
        "id": me,
        "protocol": PROTOCOL,
        "bind": f"127.0.0.1:{PORT + me}",
        "peers": [f"{node}@127.0.0.1:{PORT + node}" for node in range(1, known + 1)],
        "state_dir": str(PLACE / f"node{me}"),
    }


async def lines() -> AsyncIterator[str]:
    """Lines of standard input, whatever it is, without blocking the event loop."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Queue[bytes] = asyncio.Queue(maxsize=100)

    def read() -> None:
        # Unbuffered: a buffer has a lock, on which the end of the program could get stuck.
        with (
            contextlib.suppress(RuntimeError, CancelledError),  # the loop has ended before us
            open(0, "rb", buffering=0, closefd=False) as stdin,
        ):
            for line in chain(stdin, [b""]):
                asyncio.run_coroutine_threadsafe(typed.put(line), loop).result()

    # A daemon, so that a program that was interrupted does not wait for one more line.
    threading.Thread(target=read, daemon=True).start()
    while line := await typed.get():
        yield line.decode().strip()


@contextlib.asynccontextmanager
async def lasting(other: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run ``other`` beside the body, until the body ends. An error of ``other`` ends the body: a
    program that waits for its user would not notice otherwise that its node has stopped."""
    try:
        async with asyncio.TaskGroup() as tasks:
            beside = tasks.create_task(other)
            yield beside
            beside.cancel()
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


def start(main: Callable[[int], Coroutine[Any, Any, None]], most: int = 3) -> None:
    """Run an example as the node named on the command line, until its input ends or Ctrl-C."""
    numbers = [str(number) for number in range(1, most + 1)]
    if len(sys.argv) != 2 or sys.argv[1] not in numbers:
        sys.exit(f"usage: python {sys.argv[0]} {'|'.join(numbers)}")
    try:
        asyncio.run(main(int(sys.argv[1])))
    except KeyboardInterrupt:
        pass
    except RingcastError as error:
        sys.exit(str(error))
