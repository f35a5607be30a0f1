"""Ports for nodes: nobody else is given one that was found and is not open yet."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ringcast.runtime.loopback import (
    FIRST_PORT,
    LOOPBACK,
    OWN_PORTS,
    PORTS,
    _Block,
    free_ports,
)

LAST_OF_ALL = FIRST_PORT + PORTS


def test_two_that_look_one_after_the_other_find_different_ports() -> None:
    """Six tests ask at once, and open what they found a second later."""
    found = [port for _ in range(6) for port in free_ports(6)]
    assert len(set(found)) == len(found)
    command = "from ringcast.runtime.loopback import free_ports; print(*free_ports(6))"
    other = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    assert not set(found) & {int(port) for port in other.stdout.split()}


def test_no_port_that_the_system_gives_away() -> None:
    """A socket that sends, or calls, is given one while a node is about to open it."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("utf-8").split()[0])
    assert all(FIRST_PORT <= port < LAST_OF_ALL <= first for port in free_ports(OWN_PORTS))


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_port_in_use_is_not_found(kind: socket.SocketKind) -> None:
    holding = [socket.socket(socket.AF_INET, kind) for _ in range(3)]
    try:
        for each, port in zip(holding, free_ports(3), strict=True):
            each.bind((LOOPBACK, port))
        taken = {each.getsockname()[1] for each in holding}
        assert not taken & set(free_ports(2 * OWN_PORTS))
    finally:
        for each in holding:
            each.close()


def test_there_may_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    never: Callable[[int], bool] = lambda port: False  # noqa: E731
    monkeypatch.setattr("ringcast.runtime.loopback._free", never)
    with pytest.raises(OSError, match="no free ports"):
        free_ports(1)


def test_a_block_that_another_process_has_marked_is_passed_over() -> None:
    one, other = _Block(), _Block()
    try:
        assert one.first != other.first
    finally:
        for each in (one, other):
            each._mark.close()
