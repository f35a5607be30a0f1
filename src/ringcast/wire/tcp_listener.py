"""TcpListener: takes calls at a TCP port, a bounded number of them at a time.

A call that says nothing costs its caller less than it costs the node, and the ring waits in the
same event loop. So calls are taken a few at a time. A host that calls too often is hung up on
before its calls have cost much; what comes faster than that waits in the system, or is lost there.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address

from ringcast.wire.address import Address

PER_TURN = 8
"""Calls taken in one turn of the event loop, at most."""

SLICE_S, PER_SLICE = 0.1, 200
"""Calls taken in a slice of time, at most: about 15 us each, if they go no further."""

HOST_AT_ONCE, HOST_PER_SLICE = 128, 12
"""Calls of one host that are answered, at once and then in each slice: about 220 us each. Its other
calls are hung up on: left to wait, they would keep out those of other hosts."""

OTHERS_AT_ONCE, OTHERS_PER_SLICE = 256, 20
"""The same for all hosts together where no member is: somebody may have a thousand of them, and
calls from there that were answered one by one would slow the ring down a hundred times."""

BACKLOG = 1024
"""Calls that wait in the system until they are taken: for a second about, if it grants as many.
A flood that fills this up has others try again after seconds."""


def host_of(address: str) -> str:
    """Whose address it is: a host has as many of IPv6 as it likes, in a network of 64 bits."""
    if ":" not in address:
        return address
    network = int(IPv6Address(address)) >> 64 << 64
    return f"{IPv6Address(network)}/64"


class TcpListener:
    """Hands each call, with the host that it comes from, to ``answer``; ``members`` are addresses
    of those whose calls must not wait for others."""

    def __init__(
        self,
        answer: Callable[[socket.socket, str], None],
        members: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._answer, self._members = answer, members
        self._known: set[str] = set()
        """The members' hosts, as they were when this slice of time began."""
        self._others = 0
        """How much of what other hosts may call at once is used up."""
        self._socket: socket.socket | None = None
        self._left = PER_SLICE
        self._hosts: Counter[str] = Counter()
        """How much of what a host may call at once is used up."""
        self._slice: asyncio.TimerHandle | None = None
        """The end of this slice; None while nobody calls."""
        self.refused = 0
        """Calls hung up on because their host, or all where no member is, had called too often."""
        self.pauses = 0
        """Slices of time in which not all calls could be taken."""

    def open(self, address: Address) -> int:
        """Listen; the port, which is another one if 0 was asked for."""
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._socket = socket.create_server(tuple(address), family=family, backlog=BACKLOG)
        self._socket.setblocking(False)
        self._watch(True)
        port: int = self._socket.getsockname()[1]
        return port

    def _watch(self, calls: bool) -> None:
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        if calls:
            loop.add_reader(self._socket, self._on_calls)
        else:
            loop.remove_reader(self._socket)

    def _on_calls(self) -> None:
        if self._slice is None:
            self._begin_slice()
        for _ in range(PER_TURN):
            if not self._left:
                self._pause()
                return
            try:
                self._take()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return  # nobody calls any more
            except OSError:  # no file is left, for instance: to try again at once would not help
                self._pause()
                return

    def _take(self) -> None:
        """The next call."""
        assert self._socket is not None
        call, (address, *_) = self._socket.accept()
        self._left -= 1
        host = host_of(address)
        other = host not in self._known
        room = not other or self._others < OTHERS_AT_ONCE
        if room and self._hosts[host] < HOST_AT_ONCE:
            self._hosts[host] += 1
            self._others += other
            self._answer(call, host)
        else:
            self.refused += 1
            call.close()

    def _pause(self) -> None:
        """Until the slice ends; whoever calls meanwhile waits in the system."""
        self.pauses += 1
        self._watch(False)

    def _begin_slice(self) -> None:
        self._left = PER_SLICE
        self._known = set(map(host_of, self._members()))
        self._slice = asyncio.get_running_loop().call_later(SLICE_S, self._end_slice)

    def _end_slice(self) -> None:
        self._hosts = +Counter({host: n - HOST_PER_SLICE for host, n in self._hosts.items()})
        self._others = max(0, self._others - OTHERS_PER_SLICE)
        self._watch(True)
        if self._hosts:
            self._begin_slice()
        else:
            self._slice = None

    def close(self) -> None:
        """Take no more calls."""
        if self._slice is not None:
            self._slice.cancel()
        if self._socket is not None:
            self._watch(False)
            self._socket.close()
            self._socket = None
