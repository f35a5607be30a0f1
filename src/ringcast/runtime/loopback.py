"""Ports of this machine that a node, or a process beside it, can be given."""

from __future__ import annotations

import itertools
import os
import socket

LOOPBACK = "127.0.0.1"
FIRST_PORT, PORTS = 10_000, 20_000
"""Below the range from which the system gives ports to sockets that send."""
OWN_PORTS = 128
"""Where a process looks first."""
_LOOKS = itertools.count()


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now, by UDP or TCP. A process looks among its own first, each time
    after the last it found, so that what it found and has not opened yet is found by nobody else.
    """
    found: list[int] = []
    for step in range(PORTS):
        port = FIRST_PORT + (os.getpid() * OWN_PORTS + _look(step)) % PORTS
        if _free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free ports on this machine")


def _look(step: int) -> int:
    return next(_LOOKS) % OWN_PORTS if step < OWN_PORTS else step


def _free(port: int) -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                return False
    return True
