"""Nodes and groups run unchanged on another platform: here, a network and a disk in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from ringcast.api.events import Message
from ringcast.api.node import Node
from ringcast.core.ids import NodeId
from ringcast.core.trace import Delivered, TraceEvent
from ringcast.runtime.config import NodeConfig
from ringcast.runtime.platform import Platform, StableStore, TraceSink, Transport
from ringcast.runtime.port_config import PortConfig
from ringcast.traces import Claims
from ringcast.wire.address import Address


class Memory:
    """Stable storage that outlives its owner."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def persist(self, key: str, value: int) -> None:
        self.values = {**self.values, key: value}

    def close(self) -> None:
        pass


class Events:
    """A trace in a list."""

    failed = ""

    def __init__(self) -> None:
        self.list: list[TraceEvent] = []

    def __call__(self, event: TraceEvent) -> None:
        self.list.append(event)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class Wire:
    """A socket without a network: both a transport and its one source."""

    def __init__(self, world: InMemory, address: Address) -> None:
        self._world, self.address = world, address
        self.sent = self.blocked = self.send_failures = 0
        self.sources = (self,)
        self._peers: dict[NodeId, Address] = {}
        self._waiting: deque[bytes] = deque()
        self._readable: Callable[[], None] | None = None

    def connect(self, peers: dict[NodeId, Address]) -> None:
        self._peers = peers

    def hosts(self) -> set[str]:
        return {at.host for at in self._peers.values()}

    def broadcast(self, *datagrams: bytes) -> None:
        for node in self._peers:
            self.unicasts(node, datagrams)

    def unicast(self, node: NodeId, datagram: bytes) -> None:
        self.send_to(self._peers[node], datagram)

    def unicasts(self, node: NodeId, datagrams: Iterable[bytes]) -> None:
        for datagram in datagrams:
            self.unicast(node, datagram)

    def send_to(self, address: Address, datagram: bytes) -> None:
        self.sent += 1
        if (there := self._world.wires.get(address)) is not None:
            there.arrive(datagram)

    def arrive(self, datagram: bytes) -> None:
        self._waiting.append(datagram)
        self._world.loop.call_soon(self._ready)

    def _ready(self) -> None:
        if self._waiting and self._readable:
            self._readable()

    def waits(self) -> bool:
        return bool(self._waiting)

    def receive(self) -> list[bytes]:
        return [self._waiting.popleft()]

    def forget(self) -> int:
        forgotten = len(self._waiting)
        self._waiting.clear()
        return forgotten

    def listen(self, readable: Callable[[], None]) -> None:
        self._readable = readable
        self._ready()

    def ignore(self) -> None:
        self._readable = None

    def close(self) -> None:
        self.ignore()
        del self._world.wires[self.address]


class InMemory:
    """A platform whose clocks follow the event loop, with no socket and no file."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.wires: dict[Address, Wire] = {}
        self.stores: dict[Path, Memory] = {}
        self.traces: dict[tuple[NodeId, int], Events] = {}

    def monotonic_ns(self) -> int:
        return int(self.loop.time() * 1e9)

    def time_ns(self) -> int:
        return self.monotonic_ns()

    def transport(self, config: PortConfig, receive_buffer: int) -> Transport:
        wire = self.wires[config.bind_address] = Wire(self, config.bind_address)
        return wire

    def store(self, directory: Path) -> StableStore:
        return self.stores.setdefault(directory, Memory())

    def trace(self, directory: Path, node: NodeId, boot: int, claims: Claims) -> TraceSink:
        return self.traces.setdefault((node, boot), Events())


def config(node: int) -> NodeConfig:
    return NodeConfig(
        id=node,
        bind=f"127.0.0.1:{node}",
        peers=("1@127.0.0.1:1", "2@127.0.0.1:2"),
        state_dir=f"/nowhere/{node}",
        trace_dir="/nowhere",
    )


def test_a_group_needs_neither_sockets_nor_files() -> None:
    async def main() -> None:
        world = InMemory()
        platform: Platform = world
        async with (
            asyncio.timeout(120),
            Node(config(1), platform) as one,
            Node(config(2), platform) as two,
            one.join("g") as a,
            two.join("g") as b,
        ):
            while b.members != (1, 2):
                await b.__anext__()
            await a.send(b"hello")
            async for event in b:
                if isinstance(event, Message):
                    assert event.body == b"hello"
                    break
            ring_seqs = [store.values["ring_seq"] for store in world.stores.values()]
            assert len(ring_seqs) == 2 and min(ring_seqs) > 0
        assert {node for node, _ in world.traces} == {1, 2}
        for trace in world.traces.values():
            assert any(isinstance(event, Delivered) for event in trace.list)
        assert not world.wires

    asyncio.run(main())
    assert not Path("/nowhere").exists()
