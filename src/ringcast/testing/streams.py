"""TCP between simulated hosts: what ``asyncio.open_connection`` and ``start_server`` use, and
``socket.create_server``.

A connection delivers bytes in order or breaks. While hosts are cut off from each other its bytes
wait and are tried again; after ``PATIENCE_US`` without success it breaks. A process that dies
resets its connections.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from ringcast.testing.network import RETRY_US
from ringcast.testing.process import Process
from ringcast.testing.sockets import Place, SimSocket, StreamSocket, failure, text_of

if TYPE_CHECKING:
    from ringcast.testing.host import Host
    from ringcast.testing.loop import SimLoop

PATIENCE_US = 15_000_000
"""How long bytes are sent again before a connection is given up."""

HIGH, LOW = 2**16, 2**14
"""Bytes on their way from which a writer has to wait, and down to which."""

DATA, EOF, FIN, RESET = range(4)


class Stream(asyncio.Transport):
    """One end of a connection."""

    peer: Stream

    def __init__(self, loop: SimLoop, host: Host, here: Place, there: Place) -> None:
        face = StreamSocket(host, here, there)
        super().__init__({"sockname": here, "peername": there, "socket": face})
        self._loop, self.host = loop, host
        self._context: Context = copy_context()
        """Of the process whose end this is."""
        self._protocol: Any = None
        self._queue: deque[tuple[int, bytes]] = deque()
        self._stalled_us = 0
        self._arrives_us = 0
        self._on_the_way = 0
        self._full = self._closing = self._lost = False
        self._resting = True  # until both ends are there
        self._unread: list[tuple[int, bytes]] = []
        host.streams.append(self)

    def begin(self, protocol: Any) -> None:
        """Both ends are there; ConnectionResetError if the other one has gone again."""
        if self._lost:
            raise failure(errno.ECONNRESET)
        self._protocol = protocol
        protocol.connection_made(self)
        self.resume_reading()

    # --- sending ---------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        """Send; the protocol is told to pause if much is on the way."""
        if self._closing or not data:
            return
        self._on_the_way += len(data)
        self._ship(DATA, bytes(data))
        if self._on_the_way > HIGH and not self._full:
            self._full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        """Send all of them."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Tell the other end that no more will come."""
        self._ship(EOF)

    def can_write_eof(self) -> bool:
        """It can."""
        return True

    def get_write_buffer_size(self) -> int:
        """How much is on the way."""
        return self._on_the_way

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """They are what they are."""

    def _ship(self, kind: int, data: bytes = b"") -> None:
        self._queue.append((kind, data))
        if len(self._queue) == 1:
            self._push(None)

    def _push(self, _: None) -> None:
        """Put on the wire what waits, in order; try again later while nothing gets through."""
        loop, network = self._loop, self.host.network
        while self._queue:
            transit_us = network.transit_us(self.host.number, self.peer.host.number)
            if transit_us is None:
                self._stalled_us += RETRY_US
                if self._stalled_us > PATIENCE_US:
                    self._closing = True
                    lost = failure(errno.ETIMEDOUT)
                    loop.call_soon(self._lose, lost, context=self._context)
                else:
                    loop.scheduler.at(loop.now_us + RETRY_US, self._push)
                return
            self._stalled_us = 0
            self._arrives_us = max(self._arrives_us, loop.now_us + transit_us)
            kind, data = self._queue.popleft()
            length, gap_us = network.piece(len(data)) if kind == DATA else (0, 0)
            if kind == DATA and length < len(data):
                self._queue.appendleft((DATA, data[length:]))
                data = data[:length]
            loop.scheduler.at(self._arrives_us, self._arrived, (kind, data))
            self._arrives_us += gap_us

    def _arrived(self, segment: tuple[int, bytes]) -> None:
        self._on_the_way -= len(segment[1])
        peer = self.peer
        self._loop.call_soon(peer.take, segment, context=peer._context)
        if self._full and self._on_the_way <= LOW:
            self._full = False
            self._loop.call_soon(self._resume, context=self._context)

    def _resume(self) -> None:
        if not self._lost:
            self._protocol.resume_writing()

    # --- receiving -------------------------------------------------------------------------

    def take(self, segment: tuple[int, bytes]) -> None:
        """What the other end has sent, in order."""
        kind, data = segment
        if self._lost:
            if kind == DATA:  # the other end does not know that this one has gone
                self.reset()
            return
        if kind == RESET:
            self._lose(failure(errno.ECONNRESET))
        elif self._resting:
            self._unread.append(segment)
        elif kind == DATA:
            if self._closing:
                return
            self._protocol.data_received(data)
        elif (kind == EOF or not self._closing) and not self._protocol.eof_received():
            self.close()

    def pause_reading(self) -> None:
        """Keep what arrives until reading resumes."""
        self._resting = True

    def resume_reading(self) -> None:
        """Hand over what has arrived meanwhile."""
        self._resting = False
        unread, self._unread = self._unread, []
        for segment in unread:
            self._loop.call_soon(self.take, segment, context=self._context)

    def is_reading(self) -> bool:
        """Whether what arrives is handed over."""
        return not self._resting and not self._closing

    # --- the end ---------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Whether this end is closed."""
        return self._closing

    def close(self) -> None:
        """What was written still arrives."""
        if not self._closing:
            self._closing = True
            self._ship(FIN)
            self._loop.call_soon(self._lose, None, context=self._context)

    def abort(self) -> None:
        """What was written may be lost."""
        if not self._lost:
            self.reset()
            self._loop.call_soon(self._lose, None, context=self._context)

    def reset(self) -> None:
        """The process has gone: the system tells the other end, in place of what has not left."""
        self._closing = True
        self._queue.clear()
        self._ship(RESET)

    def _lose(self, error: OSError | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            if self in self.host.streams:
                self.host.streams.remove(self)
            if self._protocol is not None:
                self._protocol.connection_lost(error)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another object hears the stream from now on."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The object that hears the stream."""
        found: asyncio.BaseProtocol = self._protocol
        return found


class SimServer(asyncio.AbstractServer):
    """A process that waits for connections."""

    def __init__(self, loop: SimLoop, host: Host, place: Place, make: Callable[[], Any]) -> None:
        self._loop, self.host, self._make = loop, host, make
        self.place = place[0], host.listen(self, place[1])
        self.sockets = (StreamSocket(host, self.place),)
        self._context = copy_context()
        self._closed = asyncio.Event()

    def arrive(self, there: Place) -> Stream:
        """A connection arrives: an end of ours for it."""

        def make() -> Stream:
            stream = Stream(self._loop, self.host, self.place, there)
            self._loop.call_soon(self._begin, stream)
            return stream

        return self._context.copy().run(make)

    def _begin(self, stream: Stream) -> None:
        with suppress(ConnectionResetError):
            stream.begin(self._make())

    def close(self) -> None:
        """Accept no more connections."""
        self.host.unlisten(self)
        self._closed.set()

    async def wait_closed(self) -> None:
        """Until it is closed."""
        await self._closed.wait()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop it belongs to."""
        return self._loop

    def is_serving(self) -> bool:
        """Whether it accepts connections."""
        return not self._closed.is_set()

    async def start_serving(self) -> None:
        """It does from the beginning."""

    async def serve_forever(self) -> None:
        """Until it is closed or cancelled."""
        try:
            await self._closed.wait()
        finally:
            self.close()

    async def __aenter__(self) -> SimServer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()


class SimListener(SimSocket):
    """What ``socket.create_server`` gives: connections wait in it until they are accepted."""

    def __init__(self, host: Host, process: Process, place: Place) -> None:
        super().__init__(host, process)
        self.type = socket.SOCK_STREAM
        self._bound, self._port = place[0] or "0.0.0.0", host.listen(self, place[1])
        self._context = copy_context()

    def arrive(self, there: Place) -> Stream:
        """A connection arrives: an end of ours for it."""
        place = self.getsockname()
        stream = self._context.copy().run(Stream, self._host.loop, self._host, place, there)
        self.inbox.append((stream, there))
        self.wake()
        return stream

    def accept(self) -> tuple[Stream, Place]:
        """The next one, for ``open_connection(sock=...)`` or to be closed."""
        if not self.inbox:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        accepted: tuple[Stream, Place] = self.inbox.popleft()
        return accepted

    def close(self) -> None:
        """Nobody connects any more; those that wait are reset."""
        if not self._closed:
            self._closed = True
            self._host.unlisten(self)
            self.reader = None
            while self.inbox:
                self.inbox.popleft()[0].abort()


async def passage_us(source: Host, target: Host) -> int:
    """How long a segment takes from one host to another, which are asked until one gets through;
    OSError if none does for long."""
    waited_us = 0
    while (transit_us := source.network.transit_us(source.number, target.number)) is None:
        if waited_us > PATIENCE_US:
            raise failure(errno.ETIMEDOUT)
        waited_us += RETRY_US
        await asyncio.sleep(RETRY_US / 1e6)
    return transit_us


async def connect(loop: SimLoop, host: Host, name: str | bytes, port: int) -> Stream:
    """A connection from ``host``; OSError if there is none to be had."""
    target = host.find(text_of(name))
    if target is None:
        raise failure(errno.EHOSTUNREACH)
    await asyncio.sleep(await passage_us(host, target) / 1e6)
    back_us = await passage_us(target, host)
    server = target.servers.get(port)
    if server is None:
        await asyncio.sleep(back_us / 1e6)
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    here = (host.address, host.next_port())
    mine = Stream(loop, host, here, (target.address, port))
    mine.peer = server.arrive(here)
    mine.peer.peer = mine
    await asyncio.sleep(back_us / 1e6)
    return mine
