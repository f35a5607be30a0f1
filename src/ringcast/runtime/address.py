"""Addresses as people write them: ``10.0.0.1:5405``, ``[::1]:5405``, ``node.example:5405``."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import NamedTuple

from ringcast.core.ids import NodeId
from ringcast.runtime.errors import ConfigError


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether the host is this machine's loopback interface."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse(text: str, setting: str) -> Address:
    """``host:port`` or ``[v6]:port``; the error names the setting."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 <= int(port) < 65536:
        raise ConfigError(f"{setting} = {text!r}: write host:port, such as 127.0.0.1:5405")
    return Address(host, int(port))


def parse_peer(text: str, setting: str) -> tuple[NodeId, Address]:
    """``id@host:port``."""
    name, at, rest = text.partition("@")
    if not at or not name.isdecimal() or not 1 <= int(name) < 2**32:
        raise ConfigError(f"{setting}: {text!r}: write id@host:port, such as 2@127.0.0.1:5406")
    return int(name), parse(rest, setting)


def resolve(address: Address) -> list[tuple[socket.AddressFamily, Address]]:
    """Every numeric address a name stands for; none while the name is not known."""
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)
    except OSError:
        return []
    return [(family, Address(str(sa[0]), int(sa[1]))) for family, _, _, _, sa in found]
