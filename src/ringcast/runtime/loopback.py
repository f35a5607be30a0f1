"""Ports of this machine that a node, or a process beside it, can be given."""

from __future__ import annotations

import itertools
import os
import socket

LOOPBACK = "127.0.0.1"
FIRST_PORT, PORTS = 10_000, 20_000
"""Below the range from which the system gives ports to sockets that send."""
OWN_PORTS = 128
"""Ports that a process searches before those of others."""
_SEARCHED = itertools.count()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, neither by UDP nor by TCP.

    Each process searches a block of its own first, and goes on where its last search ended: a port
    that was found and is not open yet is not found again, by this process or by another.
    """
    found: list[int] = []
    own = (next(_SEARCHED) % OWN_PORTS for _ in range(OWN_PORTS))
    for step in itertools.chain(own, range(OWN_PORTS, PORTS)):
        port = FIRST_PORT + (os.getpid() * OWN_PORTS + step) % PORTS
        if _free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free ports on this machine")


def _free(port: int) -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                return False
    return True
