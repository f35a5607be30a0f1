"""Ports of this machine that a node, or a process beside it, can be given."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator

LOOPBACK = "127.0.0.1"
FIRST_PORT, PORTS = 10_000, 20_000
"""Below the range from which the system gives ports to sockets that send."""
OWN_PORTS = 128
"""Ports of a block, which one process has for itself; the first says that it has one."""
BLOCKS = PORTS // OWN_PORTS


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, neither by UDP nor by TCP.

    Each process has a block of its own, and goes on where its last search ended: a port that was
    found and is not open yet is not found again soon, by this process or by another.
    """
    found: list[int] = []
    for port in _candidates():
        if _free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free ports on this machine")


class _Block:
    """A process's ports, as long as it lives."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.searched = itertools.count()
        self._mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for step in range(BLOCKS):
            self.first = FIRST_PORT + (self.owner + step) % BLOCKS * OWN_PORTS
            try:
                self._mark.bind((LOOPBACK, self.first))
            except OSError:
                continue  # somebody else's
            return
        self._mark.close()


_OWN: list[_Block] = []


def _candidates() -> Iterator[int]:
    """The block of this process, from where it was left, and then all others."""
    if not _OWN or _OWN[-1].owner != os.getpid():  # the first time, or in a fork
        _OWN[:] = [_Block()]
    own = _OWN[-1]
    for _ in range(OWN_PORTS):
        yield own.first + next(own.searched) % OWN_PORTS
    for step in range(OWN_PORTS, PORTS):
        yield FIRST_PORT + (own.first - FIRST_PORT + step) % PORTS


def _free(port: int) -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                return False
    return True
