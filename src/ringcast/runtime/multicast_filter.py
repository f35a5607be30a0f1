"""A multicast comes back to who sent it; a filter in the kernel keeps these copies from us.

Without it every member reads its own frames too, only to find that they are its own: with three
members a third of all it reads; at light load a wake-up for each, and a fifth of the processor
time. Switching the copies off where they are sent (IP_MULTICAST_LOOP) would hide them from other
nodes of this machine as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import sys

SO_ATTACH_FILTER = 26
LOAD_HALF, LOAD_WORD, JUMP_EQUAL, RETURN = 0x28, 0x20, 0x15, 0x06
"""Instructions of the classic packet filter (Linux); loads count from the UDP header, …"""
NETWORK = 2**32 - 2**20
"""… or, from here on, from the IP header."""
SOURCE = {socket.AF_INET: 12, socket.AF_INET6: 8}
"""Where that has the sender's address."""


def ignore_own(receiving: socket.socket, sending: socket.socket) -> None:
    """Leave out what ``sending`` sends; on other systems the copies are read, and dropped."""
    if sys.platform != "linux":
        return
    host, port = sending.getsockname()[:2]
    address = socket.inet_pton(sending.family, host.partition("%")[0])
    wanted = [(LOAD_HALF, 0, port)]
    for at, (word,) in enumerate(struct.iter_unpack("!I", address)):
        wanted.append((LOAD_WORD, NETWORK + SOURCE[sending.family] + 4 * at, word))
    program = b""
    for left, (load, at, value) in zip(range(len(wanted) - 1, -1, -1), wanted, strict=True):
        program += struct.pack("HBBI", load, 0, 0, at)
        program += struct.pack("HBBI", JUMP_EQUAL, 0, 2 * left + 1, value)  # else: keep it
    program += struct.pack("HBBI", RETURN, 0, 0, 0)
    program += struct.pack("HBBI", RETURN, 0, 0, 2**32 - 1)
    kept = ctypes.create_string_buffer(program)
    told = struct.pack("@HP", len(program) // 8, ctypes.addressof(kept))
    with contextlib.suppress(OSError):
        receiving.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, told)
