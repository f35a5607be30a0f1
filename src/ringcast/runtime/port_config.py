"""Settings of one port: a broadcast domain that a node takes part in, and how to find the others.

A node with one port writes these settings at the top of its file; a node with several writes a
``[[ports]]`` table for each.
"""

from __future__ import annotations

import os
from typing import Annotated

import msgspec

from ringcast.core.errors import ConfigError
from ringcast.core.ids import NodeId
from ringcast.wire import address
from ringcast.wire.address import Address

PATHS = ("key_file", "state_dir", "trace_dir", "journal", "fault_file")
"""Settings that name a file or a folder."""


class PortConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One broadcast domain. ``bind`` and a way to find the others are needed."""

    id: NodeId = 0
    """The node's id in this domain; if it is not given, the node's id."""
    bind: str = ""
    """Where to listen: ``host:port``."""
    advertise: str = ""
    """The address others should use, where it differs from ``bind`` (NAT, containers) and from
    what ``peers`` says of this node."""
    peers: tuple[str, ...] = ()
    """The others, as ``id@host:port``; this node itself may be listed too."""
    seeds: tuple[str, ...] = ()
    """Or: addresses or DNS names of some running nodes, ``host:port``; the rest is discovered."""
    multicast: str = ""
    """A multicast group ``host:port`` for broadcasts; without it they go to each peer."""
    interface: str = ""
    """Interface for multicast: its address (IPv4) or name (IPv6)."""
    network: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """A name that all nodes of the group have in common: nodes of another one are not heard, even
    with the same key."""
    key_file: str = ""
    """Group keys, made by ``ringcast keygen``."""

    @property
    def bind_address(self) -> Address:
        """Where to listen."""
        return address.parse(self.bind, "bind", least_port=0)

    @property
    def listed(self) -> dict[NodeId, Address]:
        """Everybody in ``peers``."""
        return dict(address.parse_peer(text, "peers") for text in self.peers)

    @property
    def peer_addresses(self) -> dict[NodeId, Address]:
        """The others that are listed."""
        return {node: place for node, place in self.listed.items() if node != self.id}

    @property
    def seed_addresses(self) -> list[Address]:
        """Whom to ask for the others."""
        return [address.parse(text, "seeds") for text in self.seeds]

    @property
    def public_address(self) -> Address:
        """Where others find this node, as far as it is known before a socket is open."""
        bind = self.bind_address
        if self.advertise:
            return address.parse(self.advertise, "advertise")
        return self.listed.get(self.id, bind)

    def check_text(self) -> None:
        """Refuse text that no file's name and no frame can hold."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str) and not possible(text, name in PATHS):
                    raise ConfigError(
                        f"{name} = {text!r}: it has a character that cannot be written; leave NUL "
                        "and halves of surrogate pairs out"
                    )

    def check_port(self, insecure: bool) -> None:
        """Everything that can be wrong without opening a socket."""
        self.check_text()
        if not self.bind:
            raise ConfigError("bind: say where to listen, as host:port")
        public = self.public_address
        if len(self.listed) != len(self.peers):
            raise ConfigError("peers: an id is listed twice")
        if len(set(self.listed.values())) != len(self.listed):
            raise ConfigError("peers: an address is listed twice; each node has its own")
        for text in self.seeds:
            address.parse(text, "seeds")
        self._check_one_place()
        if not self.peers and not self.seeds and not self.multicast:
            raise ConfigError(
                "no way to find the others: list them in peers, or give seeds or multicast"
            )
        if self.multicast:
            address.parse(self.multicast, "multicast")
        if (self.seeds or self.multicast) and public.unspecified:
            raise ConfigError(
                f"bind = {self.bind!r} says nothing that others could send to; give the address "
                "they should use in advertise"
            )
        if not self.key_file and not insecure:
            self._check_closed()

    @property
    def two_places(self) -> str:
        """What to say of a node that ``peers`` lists elsewhere than at ``bind``; empty: it does
        not, or ``advertise`` says that it is meant so."""
        bind, listed = self.bind_address, self.listed.get(self.id)
        if listed is None or self.advertise or not bind.port or bind == listed:
            return ""
        return (
            f"peers has id {self.id} at {listed}, but bind is {bind}; is the id another node's? "
            "If that address leads here, say so in advertise"
        )

    def _check_one_place(self) -> None:
        """Refuse two places that cannot be one. Addresses of two interfaces, a wildcard and names
        can, by NAT or a proxy."""
        if wrong := self.two_places:
            bind, listed = self.bind_address, self.listed[self.id]
            loopback = bind.loopback and listed.loopback
            numbers = bind.ip is not None and listed.ip is not None
            other_port = bind.port != listed.port and (bind.host == listed.host or loopback)
            if other_port or (loopback and numbers):
                raise ConfigError(wrong)

    def _check_closed(self) -> None:
        """Without keys no frame may leave this machine, and none come in."""
        places = [("bind", self.bind_address), *(("peers", at) for at in self.listed.values())]
        places += [("seeds", at) for at in self.seed_addresses]
        outside = [f"{setting}: {place}" for setting, place in places if not place.loopback]
        if self.multicast and self.interface != "lo" and not Address(self.interface, 0).loopback:
            outside.append(f"interface: {self.interface or 'any'}")
        if outside:
            raise ConfigError(
                f"{outside[0]} is not loopback and there is no key_file; make one with "
                "'ringcast keygen group.key', or say insecure = true if you mean it"
            )


def possible(text: str, path: bool) -> bool:
    """Whether it can be written as bytes; files may have names that are no text (``fsencode``)."""
    try:
        return b"\0" not in (os.fsencode(text) if path else text.encode())
    except UnicodeEncodeError:
        return False


def check_apart(ports: tuple[PortConfig, ...]) -> None:
    """Refuse domains that would run into each other at this node."""
    for at, port in enumerate(ports):
        for before, other in enumerate(ports[:at]):
            bind = port.bind_address
            if bind.port and bind == other.bind_address:
                raise ConfigError(
                    f"ports[{at}]: bind = {port.bind!r} is that of ports[{before}]; each port "
                    "listens at an address of its own"
                )
            if port.multicast and port.multicast == other.multicast:
                raise ConfigError(
                    f"ports[{at}]: multicast = {port.multicast!r} is that of ports[{before}]; "
                    "each broadcast domain has a group of its own"
                )


def check_ids(own: NodeId, ports: tuple[PortConfig, ...]) -> None:
    """Refuse an id that has two meanings, where each has one in all domains together."""
    if ports[0].id != own:
        raise ConfigError(
            f"ports[0]: id: the first port has the node's own id, {own}: leave it out"
        )
    places: dict[NodeId, int] = {}
    for at, port in enumerate(ports):
        if port.id in places:
            raise ConfigError(
                f"ports[{at}]: id: give this port an id of its own, which no other port and no "
                f"node of any ring has; {port.id} is in ports[{places[port.id]}]"
            )
        for id in (port.id, *port.peer_addresses):
            if places.setdefault(id, at) != at:
                raise ConfigError(
                    f"ports[{at}]: peers: {id} is in ports[{places[id]}] as well; an id names one "
                    "node, or one port of a gateway, in all rings together"
                )
