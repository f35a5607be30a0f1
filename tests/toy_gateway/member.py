"""A process of the live test: a plain member of one ring, or the gateway between two.

It registers the toy, so nothing installed has to know it. A member submits each line that it reads
and prints what it delivers and which configurations it installs. The gateway is an ordinary
``Node`` with two ports; it has nothing to print.
"""

from __future__ import annotations

import asyncio
import sys

from gateway import SHEET

from ringcast import Node
from ringcast.core.effects import InstallView, PackedMessages
from ringcast.core.ids import Level, ViewId
from ringcast.core.registry import register
from ringcast.runtime.config import NodeConfig, load
from ringcast.runtime.host import LiveHost


class Printer:
    """An application below groups: it prints the order itself."""

    def on_deliver(self, view: ViewId, batch: PackedMessages) -> None:
        for body in batch.bodies:
            print("deliver", body.decode())

    def on_view(self, change: InstallView) -> None:
        if not change.transitional:
            print("view", *change.members)

    def on_uncertain(self, first: int, count: int) -> None:
        print("uncertain", first, count)

    def on_quiet(self) -> None:
        sys.stdout.flush()

    def on_stop(self, reason: str) -> None:
        print("stop", reason, flush=True)


async def member(config: NodeConfig) -> None:
    """Submit lines until there are no more, then leave."""
    loop = asyncio.get_running_loop()
    host = LiveHost(config, Printer())
    await host.start()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        host.submit((line.strip().encode(),), Level.AGREED)
    host.leave()


async def gateway(config: NodeConfig) -> None:
    """Forward for ever."""
    async with Node.open(config):
        await asyncio.Event().wait()


if __name__ == "__main__":
    register(SHEET)
    own = load(sys.argv[1])
    asyncio.run(gateway(own) if own.ports else member(own))
