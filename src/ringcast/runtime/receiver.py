"""Receiver: drains a port's sockets and hands frames on, broadcasts first.

Measured: a callback a datagram (asyncio's DatagramProtocol) costs 5-7 us, a drained socket
0.9 us. A wake-up therefore reads until the socket is empty, handles broadcasts as they come and
unicasts (tokens) last: protocols rely on it, since a token must not overtake the messages
it speaks of.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received
from ringcast.runtime.fault_injection import FaultInjection
from ringcast.runtime.platform import Transport
from ringcast.wire.codec import Codec
from ringcast.wire.meeting import Hello

MOST_AT_ONCE = 1024
"""Datagrams read in one wake-up, so that a flood cannot keep timers and the application waiting."""


class FrameHandler(Protocol):
    """Whom the frames are for."""

    def woken(self) -> bool:
        """Called after every read. Whether the process slept so long that what it read is no news
        any more."""

    def step(self, event: Received, more: bool = False) -> None:
        """Handle a frame. ``more``: another unicast of this wake-up is handled next."""

    def quiet(self) -> None:
        """The wake-up is over."""


class Receiver:
    """What arrives at one port."""

    def __init__(
        self,
        port: int,
        transport: Transport,
        codec: Codec,
        shim: FaultInjection | None,
        on_hello: Callable[[NodeId, int, Hello], None],
    ) -> None:
        self._port, self._transport, self._codec = port, transport, codec
        self._shim, self._on_hello = shim, on_hello
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain: Callable[[], None]
        self._resting: asyncio.TimerHandle | None = None
        self.received = 0
        self.outdated = 0
        """Datagrams thrown away unread because they had waited too long."""

    async def welcome(self, enough: Callable[[], bool], seconds: float) -> None:
        """Hear Hellos and nothing else, until it is enough or the time is over."""
        heard, sources = asyncio.Event(), self._transport.sources

        def hear() -> None:
            for source in sources:
                with contextlib.suppress(OSError):
                    for datagram in source.receive() if source.waits() else ():
                        frame = self._codec.decode(datagram)
                        lost = frame and self._shim and self._shim.loses(frame[0])
                        if frame and type(frame[3]) is Hello and not lost:
                            self._on_hello(frame[0], frame[1], frame[3])
                            heard.set()

        self._transport.listen(hear)
        try:
            async with asyncio.timeout(seconds):
                while not enough():
                    heard.clear()
                    await heard.wait()
        except TimeoutError:
            pass
        finally:
            self._transport.ignore()

    def start(self, loop: asyncio.AbstractEventLoop, handler: FrameHandler) -> None:
        """Hand frames to ``handler`` from now on."""
        self._loop = loop
        self._drain = self._drainer(handler)
        self._listen()

    def _drainer(self, handler: FrameHandler) -> Callable[[], None]:
        """One wake-up, as a function that has at hand what every datagram needs."""
        port, shim, on_hello = self._port, self._shim, self._on_hello
        handle, woken, quiet = handler.step, handler.woken, handler.quiet
        sources = self._transport.sources
        last = sources[-1]
        # With multicast no broadcast waits behind a token; what else is there wakes us again.
        alone = last if len(sources) > 1 else None
        decode = self._codec.decode

        def drain() -> None:
            tokens: list[Received] = []
            count = 0
            for source in sources:
                # What woke us must be in the last one if nothing was in those before.
                sure = count == 0 and source is last
                while count < MOST_AT_ONCE and (sure or source.waits()):
                    sure = False
                    try:
                        datagrams = source.receive()
                    except BlockingIOError:
                        break  # it was a frame with a wrong checksum
                    except OSError:
                        count += 1  # an ICMP error of an earlier send; that frame is lost anyway
                        continue
                    count += len(datagrams)
                    if woken():  # a pause may fall between any two reads
                        self.outdated += len(datagrams)
                        continue
                    for datagram in datagrams:
                        frame = decode(datagram)
                        if frame is None:
                            continue
                        src, boot, to, message = frame
                        if shim is not None and shim.loses(src):
                            continue
                        if type(message) is Hello:  # of anybody with the key, met or not
                            on_hello(src, boot, message)
                        elif to:
                            tokens.append(Received(src, boot, message, port))
                        else:
                            handle(Received(src, boot, message, port))
                    if source is alone:
                        break
            self.received += count
            if tokens:
                newest = tokens.pop()
                for token in tokens:
                    handle(token, True)
                handle(newest)
            quiet()

        return drain

    def _listen(self) -> None:
        self._resting = None
        self._transport.listen(self._drain)

    def forget(self) -> None:
        """Throw away what waits to be read: a loss, as on a wire."""
        self.outdated += sum(source.forget() for source in self._transport.sources)

    def rest(self, seconds: float) -> None:
        """Leave what arrives in the socket's buffer for a while."""
        if self._loop is not None and self._resting is None:
            self._transport.ignore()
            self._resting = self._loop.call_later(seconds, self._listen)

    def close(self) -> None:
        """Listen no more."""
        if self._resting is not None:
            self._resting.cancel()
        self._loop = None
