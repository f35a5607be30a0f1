"""The node's configuration: a TOML file, every setting checked, errors that say what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from ringcast.core.errors import ConfigError
from ringcast.core.explain import explained
from ringcast.core.ids import NodeId
from ringcast.core.registry import Sheet, protocol
from ringcast.core.settings import GroupSettings
from ringcast.journal.writer import LIMITS, Limits
from ringcast.protocols import DEFAULT
from ringcast.wire import address, envelope
from ringcast.wire.address import Address
from ringcast.wire.codec import OVERHEAD

RECEIVE_BUFFER = 8 * 2**20


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node. Only ``id``, ``bind``, ``state_dir`` and a way to find the others are needed."""

    id: NodeId
    """Permanent and unique in the group."""
    bind: str
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
    key_file: str = ""
    """Group keys, made by ``ringcast keygen``."""
    insecure: bool = False
    """Run without keys beyond loopback. Anybody on the network can then join and disturb."""
    state_dir: str
    """Stable storage of this node; each needs its own."""
    trace_dir: str = ""
    """Where to record what happens, for ``verify`` and reports; empty: nowhere."""
    journal: str = ""
    """A folder for the ordered log of everything delivered here; empty: none is kept."""
    journal_limits: Limits = LIMITS
    """When its segments end and when they go."""
    journal_patience_s: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    """After a start, how long to look for others who know what was delivered meanwhile."""
    fault_file: str = ""
    """For tests: a file that says which frames to lose."""
    receive_buffer: Annotated[int, msgspec.Meta(ge=0, le=2**30)] = RECEIVE_BUFFER
    """Socket receive buffer in bytes (the system may grant less)."""
    realtime: bool = False
    """Run ahead of all ordinary processes, as cluster daemons do. Needs the right to (root,
    CAP_SYS_NICE or a limit on rtprio); the whole process is meant, so its other work must be
    little."""
    protocol: str = DEFAULT
    profile: str = ""
    """The protocol's profile; empty is its default one."""
    settings: dict[str, Any] = {}
    """Settings of the protocol that differ from the profile."""

    @property
    def sheet(self) -> Sheet:
        """The protocol."""
        try:
            return protocol(self.protocol)
        except LookupError as error:
            raise ConfigError(f"protocol: {error}") from None

    @property
    def protocol_config(self) -> GroupSettings:
        """The protocol's settings, complete."""
        sheet = self.sheet
        try:
            settings = msgspec.to_builtins(sheet.profile(self.profile)) | self.settings
        except LookupError as error:
            raise ConfigError(f"profile: {error}") from None
        try:
            members = (self.id, *self.peer_addresses)
            config: GroupSettings = sheet.for_group(
                msgspec.convert(settings, sheet.config), members
            )
            return config
        except msgspec.ValidationError as error:
            raise ConfigError(f"settings: {explained(error, sheet.config)}") from None
        except ValueError as error:
            raise ConfigError(f"settings: {error}") from None

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
    def public_address(self) -> Address:
        """Where others find this node, as far as it is known before a socket is open."""
        bind = self.bind_address
        if self.advertise:
            return address.parse(self.advertise, "advertise")
        return self.listed.get(self.id, bind)

    def check(self) -> NodeConfig:
        """Everything that can be wrong without opening a socket; returns self."""
        public = self.public_address
        if not self.state_dir:
            raise ConfigError("state_dir: name a directory of this node's own")
        if len(self.listed) != len(self.peers):
            raise ConfigError("peers: an id is listed twice")
        if len(set(self.listed.values())) != len(self.listed):
            raise ConfigError("peers: an address is listed twice; each node has its own")
        for text in self.seeds:
            address.parse(text, "seeds")
        if not self.peers and not self.seeds and not self.multicast:
            raise ConfigError(
                "no way to find the others: list them in peers, or give seeds or multicast"
            )
        if self.sheet.listed and not self.peers:
            raise ConfigError(f"peers: {self.protocol} must know all who may take part; list them")
        if self.multicast:
            address.parse(self.multicast, "multicast")
        if (self.seeds or self.multicast) and public.unspecified:
            raise ConfigError(
                f"bind = {self.bind!r} says nothing that others could send to; give the address "
                "they should use in advertise"
            )
        if not self.key_file and not self.insecure:
            self._check_closed()
        settings = self.protocol_config
        most = settings.max_message
        if most <= envelope.ROOM:
            raise ConfigError(
                f"settings: max_message = {most} leaves no room for a group's messages; give "
                f"more than {envelope.ROOM}"
            )
        packet = settings.max_packet
        if packet + OVERHEAD > 65507:
            raise ConfigError(f"settings: max_packet = {packet} does not fit a UDP datagram")
        return self

    def _check_closed(self) -> None:
        """Without keys no frame may leave this machine, and none come in."""
        places = [("bind", self.bind_address), *(("peers", at) for at in self.listed.values())]
        places += [("seeds", address.parse(text, "seeds")) for text in self.seeds]
        outside = [f"{setting}: {place}" for setting, place in places if not place.loopback]
        if self.multicast and self.interface != "lo" and not Address(self.interface, 0).loopback:
            outside.append(f"interface: {self.interface or 'any'}")
        if outside:
            raise ConfigError(
                f"{outside[0]} is not loopback and there is no key_file; make one with "
                "'ringcast keygen group.key', or say insecure = true if you mean it"
            )


def from_settings(settings: dict[str, Any]) -> NodeConfig:
    """A configuration from what its file would say, not checked yet."""
    try:
        return msgspec.convert(settings, NodeConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(explained(error, NodeConfig)) from None


def load(path: str | Path) -> NodeConfig:
    """Read a configuration file. Paths in it are relative to the file."""
    path = Path(path)
    try:
        config = from_settings(msgspec.toml.decode(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None
    here = path.resolve().parent
    places = {
        name: str(here / value)
        for name in ("key_file", "state_dir", "trace_dir", "journal", "fault_file")
        if (value := getattr(config, name))
    }
    try:
        return msgspec.structs.replace(config, **places).check()
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
