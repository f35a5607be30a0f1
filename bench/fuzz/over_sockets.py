"""A hostile member with the key, over sockets: live nodes on loopback, one of which is fed by it.

It seals with the codec of node 1, so that its frames come in node 1's name, with numbers that fit;
what it says are node 1's frames with parts replaced. The journal's port is fed with spoilt bytes.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from altered import altered, numbers, spoilt
from steps import together
from world import weighed

from ringcast.api.node import Node
from ringcast.runtime.loopback import free_ports
from ringcast.wire import keys

NODES, VICTIM = 3, 2
BURST = 50
"""Frames between two turns of the event loop."""
MOST_GROUPS = 5
"""Of one round."""


def settings(root: Path, protocol: str) -> list[dict[str, Any]]:
    """Nodes with a key and a journal."""
    keys.write(root / "group.key", keys.add({}))
    ports = free_ports(NODES)
    peers = [f"{node}@127.0.0.1:{port}" for node, port in enumerate(ports, 1)]
    return [
        {
            "id": node,
            "bind": f"127.0.0.1:{port}",
            "peers": peers,
            "protocol": protocol,
            "key_file": str(root / "group.key"),
            "state_dir": str(root / f"n{node}"),
            "journal": str(root / f"j{node}"),
            "journal_patience_s": 0.2,
        }
        for node, port in enumerate(ports, 1)
    ]


class Attack:
    """One group under attack."""

    def __init__(self, nodes: list[Node], seed: str) -> None:
        self.rng = Random(f"{seed}/fuzz/sockets")
        self.kept: list[Any] = []
        self.known = [0]
        self.defects: list[str] = []
        host, victim = nodes[0]._host, nodes[VICTIM - 1]._host
        assert host is not None and victim is not None
        self._codec, self._to = host.ports[0]._codec, victim.ports[0].address
        self.grows = victim.machine, victim.ports[0]._codec, victim.ports[0]._meetings.book
        """What hostile frames could fill."""
        self._out = socket.socket(type=socket.SOCK_DGRAM)
        encode = self._codec.encode
        self._encode = encode

        def listening(message: Any, to: int) -> bytes:
            self.hear(message)
            return encode(message, to)

        self._codec.encode = listening  # type: ignore[method-assign]

    def hear(self, message: Any) -> None:
        """An honest frame of node 1."""
        plain = msgspec.to_builtins(message, builtin_types=(bytes,))
        if len(self.kept) < 300:
            self.kept.append(plain)
        elif self.rng.random() < 0.1:
            self.kept[self.rng.randrange(300)] = plain
        if self.rng.random() < 0.1:
            found: list[int] = []
            numbers(plain, found)
            self.known = (found + self.known)[:200]

    def send(self) -> None:
        """One hostile frame."""
        rng = self.rng
        plain = rng.choice(self.kept)
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            plain = altered(rng.random, plain, self.known)
        with suppress(OverflowError, OSError):
            data = self._encode(plain, rng.choice((0, VICTIM, VICTIM, 3)))
            self._out.sendto(data, self._to)

    async def call(self) -> None:
        """Spoilt bytes for the journal's port."""
        with suppress(OSError):
            _, writer = await asyncio.open_connection(*self._to)
            writer.write(spoilt(self.rng.random, bytes(self.rng.choice((4, 60, 600)))))
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def close(self) -> None:
        """No more."""
        self._out.close()


async def attacked(protocol: str, seed: str, count: int) -> dict[str, Any]:
    """So many frames against one group; AssertionError if a node has a defect."""
    defects: list[str] = []

    def note(loop: Any, context: dict[str, Any]) -> None:
        defects.append(repr(context.get("exception") or context["message"]))

    asyncio.get_running_loop().set_exception_handler(note)
    with tempfile.TemporaryDirectory() as made:
        async with AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(Node.open(each))
                for each in settings(Path(made), protocol)
            ]
            attack = Attack(nodes, seed)
            stack.callback(attack.close)
            async with asyncio.timeout(60):
                for node in nodes:
                    await node.wait_for_ring(NODES)
            groups = [node.join("g") for node in nodes]
            for group in groups:
                await stack.enter_async_context(group)
            sent = 0
            while sent < count and all(node.running for node in nodes):
                for _ in range(BURST):
                    attack.send()
                sent += BURST
                if sent % (20 * BURST) == 0:
                    await attack.call()
                    for group in groups:
                        with suppress(Exception):
                            group.send_nowait(bytes(attack.rng.choice((5, 3000))))
                await asyncio.sleep(0)
            objects, size = weighed(attack.grows)
            stops = [node._host.stopped for node in nodes if node._host and node._host.stopped]
            counts = [each["frames_refused"] for each in (node.metrics() for node in nodes)]
            refused = sum(sum(some.values()) for some in counts if isinstance(some, dict))
    defects += [reason for reason in stops if reason.startswith("a defect")]
    assert not defects, defects
    return {
        "done": sent,
        "refused": refused,
        "stops": len(stops),
        "longest_us": 0,
        "slowest": "",
        "objects": objects,
        "bytes": size,
    }


def round_of(protocols: list[str], seed: int, count: int) -> dict[str, Any]:
    """One group, of the protocols in turn; and another one when a member stopped, as it may."""
    protocol, found = protocols[seed % len(protocols)], dict[str, Any](done=0)
    for number in range(MOST_GROUPS):
        if found["done"] < count:
            left = count - found["done"]
            result = asyncio.run(attacked(protocol, f"{seed}/{number}", left))
            found = together(found, result) if number else result
    return found
