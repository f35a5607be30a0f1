"""Somebody on the path: all frames between nodes go through it. It has no key."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from loopback import configs

from ringcast.api.node import Node
from ringcast.wire import keys

Frame = tuple[int, int, bytes]
"""Who sent it, to whom, and what."""


class Adversary:
    """Relays frames between nodes 1..n, keeps them, and may send what it likes to anybody."""

    def __init__(self, settings: list[dict[str, Any]]) -> None:
        self.ports = {each["id"]: int(each["bind"].rpartition(":")[2]) for each in settings}
        self.seen: list[Frame] = []
        self.passes: Callable[[int, int, bytes], bool] = lambda src, to, data: True
        self.on_frame: Callable[[int, int, bytes], None] = lambda src, to, data: None
        self._relays: dict[tuple[int, int], socket.socket] = {}
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for each in settings:
            each["peers"] = [f"{each['id']}@{each['bind']}"]
            for to in self.ports:
                if to != each["id"]:
                    relay = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                    relay.bind(("127.0.0.1", 0))
                    relay.setblocking(False)
                    self._relays[each["id"], to] = relay
                    each["peers"].append(f"{to}@127.0.0.1:{relay.getsockname()[1]}")

    def send(self, to: int, data: bytes) -> None:
        """Something for a node, from nowhere."""
        self._out.sendto(data, ("127.0.0.1", self.ports[to]))

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for (src, to), relay in self._relays.items():
            loop.add_reader(relay, self._relay, src, to, relay)

    def _relay(self, src: int, to: int, relay: socket.socket) -> None:
        while True:
            try:
                data = relay.recv(2**16)
            except OSError:
                return
            self.seen.append((src, to, data))
            if self.passes(src, to, data):
                self.send(to, data)
            self.on_frame(src, to, data)

    def stop(self) -> None:
        for relay in self._relays.values():
            asyncio.get_running_loop().remove_reader(relay)
            relay.close()
        self._out.close()


@asynccontextmanager
async def on_the_path(settings: list[dict[str, Any]]) -> AsyncIterator[Adversary]:
    """All frames between these nodes, which are not started yet, pass the adversary."""
    adversary = Adversary(settings)
    adversary.start()
    try:
        yield adversary
    finally:
        adversary.stop()


def keyed(root: Path, count: int, **more: Any) -> list[dict[str, Any]]:
    """Settings of nodes with a key."""
    file = root / "group.key"
    keys.write(file, keys.add({}))
    return configs(root, count, key_file=str(file), **more)


async def opened(stack: AsyncExitStack, settings: list[dict[str, Any]]) -> list[Node]:
    """Nodes on one ring."""
    nodes = [await stack.enter_async_context(Node.open(each)) for each in settings]
    for node in nodes:
        await node.wait_for_ring(len(nodes))
    return nodes


def refused(node: Node) -> dict[str, int]:
    """How many frames a node refused, by reason."""
    found = node.metrics()["frames_refused"]
    assert isinstance(found, dict)
    return found
