"""What the examples share: three nodes on this machine, and lines typed by the user."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

PORT = int(os.environ.get("RINGCAST_PORT", "5400"))
PLACE = Path(tempfile.gettempdir()) / f"ringcast-examples-{PORT}"


def settings(me: int) -> dict[str, Any]:
    """Node 1, 2 or 3. Without keys, which is allowed on loopback only."""
    return {
        "id": me,
        "bind": f"127.0.0.1:{PORT + me}",
        "peers": [f"{node}@127.0.0.1:{PORT + node}" for node in (1, 2, 3)],
        "state_dir": str(PLACE / f"node{me}"),
    }


async def lines() -> AsyncIterator[str]:
    """Lines of standard input, without blocking the event loop."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    async for line in reader:
        yield line.decode().strip()


def start(main: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Run an example as the node named on the command line, until its input ends or Ctrl-C."""
    if sys.argv[1:] not in (["1"], ["2"], ["3"]):
        sys.exit(f"usage: python {sys.argv[0]} 1|2|3")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1])))
