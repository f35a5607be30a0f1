"""Platform: the few things a host takes from the machine it runs on.

The real one has sockets, clocks and files. A test gives a host another one, and everything above
runs on it unchanged: the codec, discovery, the protocol, groups.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from ringcast.core.ids import NodeId
from ringcast.core.trace import TraceEvent
from ringcast.runtime.port_config import PortConfig
from ringcast.runtime.store import Store
from ringcast.runtime.tracelog import TraceLog
from ringcast.runtime.udp import Udp
from ringcast.traces import Claims
from ringcast.wire import address
from ringcast.wire.address import Address
from ringcast.wire.seal import Bytes


class DatagramSource(Protocol):
    """A socket to read from."""

    def waits(self) -> bool:
        """Whether there is something to receive."""

    def receive(self) -> Sequence[Bytes]:
        """Some datagrams, valid until the next call; BlockingIOError: there are none after all."""

    def forget(self) -> int:
        """Throw away what waits; how many datagrams."""


class Transport(Protocol):
    """Datagrams to and from the processors of one broadcast domain. Each may be lost."""

    sent: int
    blocked: int
    """Not sent because a buffer was full."""
    send_failures: int

    @property
    def address(self) -> Address:
        """Where this processor listens."""

    @property
    def sources(self) -> Sequence[DatagramSource]:
        """What is read when something has arrived; a source of broadcasts alone comes first."""

    def connect(self, peers: dict[NodeId, Address]) -> None:
        """Send to these processors from now on."""

    def hosts(self) -> set[str]:
        """Where these are, as numbers and not as names."""

    def broadcast(self, *datagrams: bytes) -> None:
        """To all others, in a row."""

    def unicast(self, node: NodeId, datagram: bytes) -> None:
        """To one processor."""

    def unicasts(self, node: NodeId, datagrams: Iterable[bytes]) -> None:
        """To one processor, in a row."""

    def send_to(self, address: Address, datagram: bytes) -> None:
        """To an address at which no processor is known yet."""

    def listen(self, readable: Callable[[], None]) -> None:
        """Call ``readable`` whenever something has arrived, and while something waits."""

    def ignore(self) -> None:
        """Call it no more, and keep what arrives."""

    def close(self) -> None:
        """Give everything back."""


class StableStore(Protocol):
    """A few integers that survive a crash."""

    values: dict[str, int]

    def persist(self, key: str, value: int) -> None:
        """Durable when this returns; StorageError, and nothing changed, if it cannot be."""

    def close(self) -> None:
        """Let another incarnation use it."""


class TraceSink(Protocol):
    """Where trace events go."""

    failed: str
    """Why nothing more is recorded, or empty."""

    def __call__(self, event: TraceEvent) -> None:
        """Take one event."""

    def flush(self) -> None:
        """Events taken so far survive the end of the process."""

    def close(self) -> None:
        """Flush and close."""


class Platform(Protocol):
    """What a host runs on. Its event loop is the one that runs when the host is started."""

    def monotonic_ns(self) -> int:
        """A clock that nobody sets."""

    def time_ns(self) -> int:
        """The time of day. Boot numbers are drawn from it, too."""

    def transport(self, config: PortConfig, receive_buffer: int) -> Transport:
        """Open a port's sockets; TransportError says what to change."""

    def store(self, directory: Path) -> StableStore:
        """Open a node's stable storage; StorageError says why it cannot be used."""

    def trace(self, directory: Path, node: NodeId, boot: int, claims: Claims) -> TraceSink:
        """Begin the trace of an incarnation, with what its protocol claims."""


class LivePlatform:
    """This machine: UDP, its clocks, its files."""

    monotonic_ns = staticmethod(time.monotonic_ns)
    time_ns = staticmethod(time.time_ns)

    def transport(self, config: PortConfig, receive_buffer: int) -> Transport:
        """UDP sockets."""
        udp = Udp(config.bind_address, receive_buffer)
        try:
            if config.multicast:
                group = address.parse(config.multicast, "multicast")
                udp.join_multicast(group, config.interface, receive_buffer)
        except BaseException:
            udp.close()
            raise
        return udp

    def store(self, directory: Path) -> StableStore:
        """A file."""
        return Store(directory)

    def trace(self, directory: Path, node: NodeId, boot: int, claims: Claims) -> TraceSink:
        """A file."""
        return TraceLog(directory, node, boot, claims)


LIVE = LivePlatform()
