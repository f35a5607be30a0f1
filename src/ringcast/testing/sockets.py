"""UDP sockets of simulated hosts, with what ``socket.socket`` and ``select.poll`` offer."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from ringcast.testing.handles import SimHandle
from ringcast.testing.process import PROCESS, Process

if TYPE_CHECKING:
    from ringcast.testing.host import Host
    from ringcast.testing.loop import SimLoop
    from ringcast.testing.network import Datagram
    from ringcast.testing.streams import Stream

BUFFER = 2**20
"""Bytes that wait in a socket, unless it asks for another size; what comes then is lost."""

MOST_DATA = 65_507
"""Bytes of a datagram over IPv4."""

DYNAMIC = 49_152
"""The first port that is given to who asks for none."""

REFUSED_OPTIONS = {103, 104}
"""UDP_SEGMENT and UDP_GRO: datagrams go and come one by one here."""

Place: TypeAlias = tuple[str, int]


def failure(number: int) -> OSError:
    """What the system says."""
    return OSError(number, os.strerror(number))


class SimSocket:
    """A UDP socket of the process that opens it."""

    def __init__(self, host: Host, process: Process) -> None:
        self._host, self._process = host, process
        self.family, self.type, self.proto = socket.AF_INET, socket.SOCK_DGRAM, 0
        self._port = 0
        self._source: Place = (host.address, 0)
        """Where its datagrams come from."""
        self._bound = ""
        self._peer: Place | None = None
        self._limit = BUFFER
        self._held = 0
        self.inbox: deque[Any] = deque()
        self.reader: SimHandle | None = None
        self.waking = False
        self._number = host.next_descriptor()
        self._closed = False

    # --- addresses -------------------------------------------------------------------------

    def bind(self, place: Place) -> None:
        """Listen at one of the host's addresses."""
        name, port = place[:2]
        if name not in ("", "0.0.0.0") and self._host.find(name) is not self._host:
            raise failure(errno.EADDRNOTAVAIL)
        self._open(port)
        self._bound = name or "0.0.0.0"

    def _open(self, port: int) -> None:
        self._port = self._host.open_port(self, port)
        self._source = (self._host.address, self._port)

    def connect(self, place: Place) -> None:
        """Send there, unless told otherwise."""
        self._peer = place[0], place[1]

    def getsockname(self) -> Place:
        """Where it listens."""
        return self._bound or "0.0.0.0", self._port

    def getpeername(self) -> Place:
        """Where it sends to."""
        if self._peer is None:
            raise failure(errno.ENOTCONN)
        return self._peer

    # --- sending ---------------------------------------------------------------------------

    def send(self, data: Any, flags: int = 0) -> int:
        """To who it is connected to. This is the path of every frame."""
        peer = self._peer
        if peer is None or self._closed or not self._port:
            return self.sendto(data, peer or self.getpeername())
        if self._process.alive:
            self._host.send_datagram(peer, self._source, bytes(data))
        return len(data)

    def sendto(self, data: Any, *args: Any) -> int:
        """To a place."""
        if self._closed:
            raise failure(errno.EBADF)
        if len(data) > MOST_DATA:
            raise failure(errno.EMSGSIZE)
        if not self._port:
            self._open(0)
        if self._process.alive:
            self._host.send_datagram(args[-1], self._source, bytes(data))
        return len(data)

    # --- receiving -------------------------------------------------------------------------

    def take(self, datagram: Datagram) -> None:
        """It arrives."""
        held = self._held + len(datagram.data)
        if held > self._limit:
            self._host.loses("socket full")
            return
        self._held = held
        self.inbox.append(datagram)
        if self.reader is not None and not self.waking:
            self.waking = True
            self._host.loop._ready.append(self.reader)

    def wake(self) -> None:
        """Let the reader know."""
        if self.reader is not None and self.inbox and not self.waking:
            self.waking = True
            self._host.loop._ready.append(self.reader)

    def watch(self, callback: Callable[..., object], *args: Any) -> None:
        """Call back while there is something to receive. One handle serves for all times, because
        this is the path of every frame."""

        def readable() -> None:
            self.waking = False
            if self.reader is mine:
                try:
                    callback(*args)
                finally:
                    if self.inbox:
                        self.wake()

        self.reader = mine = SimHandle(readable, (), copy_context())
        self.waking = False
        self.wake()

    def recvfrom(self, size: int, flags: int = 0) -> tuple[bytes, Place]:
        """The next datagram and where it comes from."""
        if not self.inbox:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        datagram = self.inbox.popleft()
        data = datagram.data
        self._held -= len(data)
        return data[:size], datagram.source

    def recv(self, size: int, flags: int = 0) -> bytes:
        """The next datagram."""
        return self.recvfrom(size)[0]

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        """The next datagram, in a buffer."""
        inbox = self.inbox
        if not inbox:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data = inbox.popleft().data
        length = len(data)
        self._held -= length
        most = size or len(buffer)
        if length > most:
            data, length = data[:most], most
        buffer[:length] = data
        return length

    def recv_all(self) -> list[bytes]:
        """All datagrams that wait. No real socket has this."""
        inbox = self.inbox
        found: list[bytes] = []
        while inbox:
            found.append(inbox.popleft().data)
        self._held = 0
        return found

    # --- the rest --------------------------------------------------------------------------

    def setsockopt(self, level: int, option: int, value: Any = None, size: int = 0) -> None:
        """A buffer's size is taken; offload is refused, as by an old system."""
        if option in REFUSED_OPTIONS and level == socket.IPPROTO_UDP:
            raise failure(errno.ENOPROTOOPT)
        if option in (socket.SO_RCVBUF, 33) and level == socket.SOL_SOCKET and value:
            self._limit = value

    def getsockopt(self, level: int, option: int, size: int = 0) -> int:
        """No option has a value."""
        if option in REFUSED_OPTIONS and level == socket.IPPROTO_UDP:
            raise failure(errno.ENOPROTOOPT)
        return 0

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def settimeout(self, timeout: float | None) -> None:
        """It never blocks."""

    def fileno(self) -> int:
        """A number that no real file has; -1 when closed."""
        return -1 if self._closed else self._number

    def close(self) -> None:
        """Nothing arrives here any more."""
        if not self._closed:
            self._closed = True
            self._host.close_port(self, self._port)
            self.inbox.clear()
            self.reader = None

    def __enter__(self) -> SimSocket:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


NOWHERE: Place = ("0.0.0.0", 0)


class StreamSocket:
    """What libraries ask of a TCP socket besides its transport: addresses and options. One that a
    program opens itself can be connected by ``loop.sock_connect``, and then be given a transport
    by ``loop.create_connection``; it carries no bytes otherwise."""

    family, type, proto = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP

    def __init__(self, host: Host, here: Place = NOWHERE, there: Place | None = None) -> None:
        self._host, self._here, self._there = host, here, there
        self._number = host.next_descriptor()
        self.stream: Stream | None = None
        """Its connection, until that has a protocol."""

    def connected(self, stream: Stream) -> None:
        """``loop.sock_connect`` has succeeded."""
        self.stream = stream
        self._here, self._there = (stream.get_extra_info(x) for x in ("sockname", "peername"))

    def getsockname(self) -> Place:
        """Its own address."""
        return self._here

    def getpeername(self) -> Place:
        """The address of the other end."""
        if self._there is None:
            raise failure(errno.ENOTCONN)
        return self._there

    def setsockopt(self, *args: Any) -> None:
        """No option matters."""

    def getsockopt(self, *args: Any) -> int:
        """No option has a value."""
        return 0

    setblocking = settimeout = bind = setsockopt

    def fileno(self) -> int:
        """A number that no real file has."""
        return self._number

    def close(self) -> None:
        """Give up a connection that nobody has taken over."""
        if self.stream is not None:
            self.stream.abort()
            self.stream = None

    def _blocks(self, *args: Any) -> NoReturn:
        self._host.loop.escapes.escape(
            "a socket that blocks",
            "use asyncio.open_connection() and asyncio.start_server(), UDP, or host.call()",
        )

    connect = connect_ex = listen = accept = send = sendall = recv = recv_into = makefile = _blocks


class SimPoll:
    """``select.poll`` over such sockets; it never waits."""

    def __init__(self) -> None:
        self._sockets: dict[int, SimSocket] = {}

    def register(self, file: Any, mask: int = select.POLLIN) -> None:
        """Look at this socket, too. One that is given by its number is never found readable."""
        if isinstance(file, SimSocket):
            self._sockets[file.fileno()] = file

    def unregister(self, file: Any) -> None:
        """No longer."""
        if isinstance(file, SimSocket):
            del self._sockets[file.fileno()]

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """Those that have something."""
        found = []
        for number, each in self._sockets.items():
            if each.inbox:
                found.append((number, select.POLLIN))
        return found


def add_reader(loop: SimLoop, file: Any, callback: Callable[..., object], *args: Any) -> None:
    """Call back when a socket has something to read."""
    if not isinstance(file, SimSocket):
        loop.escapes.escape("waiting for a real file", "the sockets of hosts can be waited for")
    file.watch(callback, *args)


def remove_reader(loop: SimLoop, file: Any) -> bool:
    """Whether anybody was waiting."""
    found = isinstance(file, SimSocket) and file.reader is not None
    if found:
        file.reader = None
    return found


def text_of(name: str | bytes) -> str:
    """A name of a host, which some libraries give as bytes."""
    return name.decode("idna") if isinstance(name, bytes) else name


@lru_cache(1024)
def numeric(name: str) -> bool:
    """Whether it is an address and no name."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def owner() -> Process:
    """Whose socket it is to be; only hosts have some."""
    process = PROCESS.get()
    if process is None:
        raise OSError(errno.ENETDOWN, "the test itself is on no network: use a host")
    return process


class DatagramTransport(asyncio.DatagramTransport):
    """What ``loop.create_datagram_endpoint`` gives."""

    def __init__(self, loop: SimLoop, opened: SimSocket, protocol: Any) -> None:
        super().__init__({"socket": opened, "sockname": opened.getsockname()})
        self._loop, self._socket, self._protocol = loop, opened, protocol
        loop.call_soon(protocol.connection_made, self)
        add_reader(loop, opened, self._read)

    def _read(self) -> None:
        while self._socket.inbox:
            self._protocol.datagram_received(*self._socket.recvfrom(2**16))

    def sendto(self, data: Any, addr: Any = None) -> None:
        """Send to ``addr``, or to the address that the socket is connected to."""
        if addr is None:
            self._socket.send(data)
        else:
            self._socket.sendto(data, addr)

    def is_closing(self) -> bool:
        """Whether the socket is closed."""
        return self._socket.fileno() < 0

    def close(self) -> None:
        """Close the socket, and tell the protocol."""
        if not self.is_closing():
            self._socket.close()
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close
