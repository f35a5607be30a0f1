"""Several datagrams in one system call: the kernel cuts a run apart, or puts one together.

Linux calls it UDP_SEGMENT and UDP_GRO. On the wire nothing changes, each frame is a datagram of
its own. Where the system or the path cannot do it, datagrams go and come one by one.

Measured over loopback, 1400 B: 15 us to send and receive a datagram alone, 1.1 us in a run of
40, so this is the one thing that decides how many frames a second a ring carries.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence

UDP_SEGMENT, UDP_GRO = 103, 104
MOST_IN_RUN = 64
"""What the kernel takes in one call …"""
MOST_BYTES = 65_000
"""… and how much."""

LARGEST = 2**16
MOST_FORGOTTEN = 2**16
"""Datagrams thrown away at a time; more than a socket's buffer holds."""

ROOM_FOR_SIZE = socket.CMSG_SPACE(4) if hasattr(socket, "CMSG_SPACE") else 0

CANNOT_CUT = {errno.EINVAL, errno.EIO, errno.EMSGSIZE, errno.EOPNOTSUPP}
"""The path's frames are smaller than ours, or the device cannot compute checksums."""


def runs(datagrams: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Datagrams in their order, as lists the kernel can cut: equal sizes, the last may be less."""
    run: list[bytes] = []
    size = last = total = 0
    for datagram in datagrams:
        length = len(datagram)
        total += length
        if run and (length > size or last < size or len(run) == MOST_IN_RUN or total > MOST_BYTES):
            yield run
            run = []
        if not run:
            size = total = length
        run.append(datagram)
        last = length
    if run:
        yield run


class SendSocket:
    """A connected socket to send through."""

    __slots__ = ("_cuts", "host", "socket")

    def __init__(self, connected: socket.socket, host: str = "") -> None:
        self.socket = connected
        self.host = host
        """Of the one processor at the other end, as a number."""
        try:
            self._cuts = connected.getsockopt(socket.IPPROTO_UDP, UDP_SEGMENT) == 0
        except OSError:
            self._cuts = False

    def send(self, run: Sequence[bytes]) -> None:
        """Send a run as datagrams; what the system says against it is raised."""
        if len(run) == 1:
            self.socket.send(run[0])
            return
        if self._cuts:
            size = len(run[0]).to_bytes(2, sys.byteorder)
            try:
                self.socket.sendmsg(run, [(socket.IPPROTO_UDP, UDP_SEGMENT, size)])
                return
            except OSError as error:
                if error.errno not in CANNOT_CUT:
                    raise
                self._cuts = False
        for datagram in run:
            self.socket.send(datagram)


class Intake:
    """A socket to receive from, until it is empty."""

    __slots__ = ("_joins", "_poll", "_view", "socket")

    def __init__(self, listening: socket.socket) -> None:
        self.socket = listening
        self._poll = select.poll()
        self._poll.register(listening, select.POLLIN)
        self._view = memoryview(bytearray(LARGEST))
        self._joins = False
        with contextlib.suppress(OSError):
            listening.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
            self._joins = True

    def waits(self) -> bool:
        """Whether there is something to receive. Asking costs 1 us, and being told by an exception
        5, which every hop of the token would have to wait for."""
        return bool(self._poll.poll(0))

    def receive(self) -> list[memoryview]:
        """The datagrams of one call, in a buffer that the next call overwrites."""
        view = self._view
        if not self._joins:
            return [view[: self.socket.recv_into(view)]]
        length, told, _, _ = self.socket.recvmsg_into((view,), ROOM_FOR_SIZE)
        if not told:
            return [view[:length]]
        size = int.from_bytes(told[0][2], sys.byteorder)
        return [view[at : min(at + size, length)] for at in range(0, length, size)]

    def forget(self) -> int:
        """Throw away what waits to be received; how many datagrams."""
        forgotten = 0
        for _ in range(MOST_FORGOTTEN):
            try:
                self.socket.recv(1)
            except BlockingIOError:
                break
            except OSError:
                continue
            forgotten += 1
        return forgotten
