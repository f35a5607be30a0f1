"""Addresses as people write them: ``10.0.0.1:5405``, ``[::1]:5405``, ``node.example:5405``."""

from __future__ import annotations

import socket
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import Thread
from time import monotonic
from typing import NamedTuple

from ringcast.core.errors import ConfigError
from ringcast.core.ids import NodeId


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def ip(self) -> IPv4Address | IPv6Address | None:
        """The host as a number; None if it is a name."""
        return _number(self.host)

    @property
    def loopback(self) -> bool:
        """Whether the host is this machine's loopback interface."""
        return self.host == "localhost" if self.ip is None else self.ip.is_loopback

    @property
    def unspecified(self) -> bool:
        """Whether it stands for all addresses of a machine, so that nobody can send to it."""
        return self.ip is not None and self.ip.is_unspecified


@lru_cache(1024)
def _number(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def parse(text: str, setting: str, least_port: int = 1) -> Address:
    """``host:port`` or ``[v6]:port``; the error names the setting."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    fine = colon and bare and (":" not in host or bare != host)
    if not fine or not port.isdecimal() or len(port) > 5 or not least_port <= int(port) < 65536:
        raise ConfigError(
            f"{setting} = {text!r}: write host:port, such as 127.0.0.1:5405 or [::1]:5405"
        )
    return Address(bare, int(port))


def parse_peer(text: str, setting: str) -> tuple[NodeId, Address]:
    """``id@host:port``."""
    name, at, rest = text.partition("@")
    if not at or not name.isdecimal() or len(name) > 10 or not 1 <= int(name) < 2**32:
        raise ConfigError(f"{setting}: {text!r}: write id@host:port, such as 2@127.0.0.1:5406")
    return int(name), parse(rest, setting)


def resolve(address: Address) -> list[tuple[socket.AddressFamily, Address]]:
    """Every numeric address a name stands for; none while the name is not known.

    May wait for a name server: on the event loop, ask ``Names`` instead.
    """
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)
    except (OSError, ValueError):  # ValueError: not even possible as a name
        return []
    return [(family, Address(str(sa[0]), int(sa[1]))) for family, _, _, _, sa in found]


class Names:
    """What addresses stand for, without ever holding up the event loop for a name server."""

    FIRST_S = 0.05
    """How long first questions may wait, all together: an answer at hand comes at once."""

    MOST = 8
    """Questions under way at once; names may come from others, and each takes a thread."""

    MOST_KNOWN = 4096
    """Names whose answers are remembered. Those asked for last are: a node asks for the names it
    uses once a second, and in that time for some 500 that it has from others."""

    def __init__(self) -> None:
        self._patience_s = self.FIRST_S
        self._known: dict[Address, list[tuple[socket.AddressFamily, Address]]] = {}
        self._asking: dict[Address, Thread] = {}

    def resolve(self, address: Address) -> list[tuple[socket.AddressFamily, Address]]:
        """As far as known; a name is looked up anew in the background with every call."""
        if address.ip is not None:
            return resolve(address)
        self._asking = {at: thread for at, thread in self._asking.items() if thread.is_alive()}
        if address not in self._asking and len(self._asking) < self.MOST:
            thread = Thread(target=self._look_up, args=(address,), daemon=True)
            self._asking[address] = thread
            thread.start()
            if address not in self._known and self._patience_s > 0:
                begin = monotonic()
                thread.join(self._patience_s)
                self._patience_s -= monotonic() - begin
        found = self._known.pop(address, [])
        if found:
            self._known[address] = found  # it was asked for last
        if len(self._known) > self.MOST_KNOWN:
            for oldest in list(self._known)[: -self.MOST_KNOWN]:  # threads add some meanwhile
                del self._known[oldest]
        return found

    def _look_up(self, address: Address) -> None:
        if found := resolve(address):  # a name server that is down does not make us forget
            self._known[address] = found
