"""The node's configuration: a TOML file, every setting checked, errors that say what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from ringcast.core.errors import UNREADABLE_TOML, ConfigError
from ringcast.core.explain import explained
from ringcast.core.ids import NodeId
from ringcast.core.registry import Sheet, live_protocol, protocols
from ringcast.core.settings import FILLED_IN, GroupSettings
from ringcast.journal.writer import LIMITS, Limits
from ringcast.protocols import DEFAULT
from ringcast.runtime.port_config import PATHS, PortConfig, check_apart, check_ids
from ringcast.wire import envelope
from ringcast.wire.codec import OVERHEAD

RECEIVE_BUFFER = 8 * 2**20


class NodeConfig(PortConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node. Only ``id``, ``bind``, ``state_dir`` and a way to find the others are needed.

    It is also the configuration of its port, if there is one port.
    """

    id: NodeId
    """Permanent and unique in the group."""
    ports: tuple[PortConfig, ...] = ()
    """For a node with several ports, a table for each instead of the settings of one."""
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
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings of the protocol that differ from the profile."""

    @property
    def sheet(self) -> Sheet:
        """The protocol."""
        try:
            return live_protocol(self.protocol)
        except LookupError as error:
            raise ConfigError(f"protocol: {error}") from None

    @property
    def protocol_config(self) -> GroupSettings:
        """The protocol's settings, complete."""
        sheet = self.sheet
        for name in FILLED_IN:
            if sheet.listed and name in self.settings:
                raise ConfigError(f"settings: {name} is no setting: list all nodes in peers")
        try:
            settings = msgspec.to_builtins(sheet.profile(self.profile)) | self.settings
        except LookupError as error:
            raise ConfigError(f"profile: {error}") from None
        try:
            first = self.domains[0]
            members = (first.id, *first.peer_addresses)
            config: GroupSettings = sheet.for_group(
                msgspec.convert(settings, sheet.config), members
            )
            return config
        except msgspec.ValidationError as error:
            raise ConfigError(f"settings: {explained(error, sheet.config, FILLED_IN)}") from None
        except ValueError as error:
            raise ConfigError(f"settings: {error}") from None

    @property
    def domains(self) -> tuple[PortConfig, ...]:
        """The ports, each with the node's id in it."""
        if not self.ports:
            return (self,)
        return tuple(msgspec.structs.replace(p, id=p.id or self.id) for p in self.ports)

    def check(self) -> NodeConfig:
        """Everything that can be wrong without opening a socket; returns self."""
        if not self.state_dir:
            raise ConfigError("state_dir: name a directory of this node's own")
        if self.sheet.listed and not all(port.peers for port in self.domains):
            raise ConfigError(f"peers: {self.protocol} must know all who may take part; list them")
        self._check_ports()
        settings = self.protocol_config
        port = self.domains[0]
        all_listed = not port.seeds and not port.multicast
        if all_listed and (why := settings.unfit(len({port.id, *port.listed}))):
            raise ConfigError(f"settings: {why}")
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

    def _check_ports(self) -> None:
        """Settings of the one port, or tables for several, but not both."""
        if not self.ports:
            self.check_port(self.insecure)
            return
        self.check_text()
        most = self.sheet.most_ports
        if len(self.ports) > most:
            raise ConfigError(
                f"ports: {len(self.ports)} broadcast domains are more than the {most} that a node "
                f"of {self.protocol} can be in; {self._instead()}"
            )
        for name in PortConfig.__struct_fields__:
            if name != "id" and getattr(self, name):
                raise ConfigError(
                    f"{name}: a node with [[ports]] says this in each of them, and not above"
                )
        for at, port in enumerate(self.domains):
            try:
                port.check_port(self.insecure)
            except ConfigError as error:
                raise ConfigError(f"ports[{at}]: {error}") from None
        check_apart(self.ports)
        if len(self.ports) == 1 and self.domains[0].id != self.id:
            raise ConfigError("ports[0]: id: a node with one port has one id; leave it out here")
        if self.sheet.ids_everywhere:
            check_ids(self.id, self.domains)

    def _instead(self) -> str:
        """What to do if the protocol does not bear that many ports."""
        wanted = len(self.ports)
        able = [s.name for s in protocols() if s.live and s.most_ports >= wanted]
        fewer = "leave tables out, or start a node for each domain"
        return f"take a protocol that joins them ({', '.join(able)}), or {fewer}" if able else fewer


def check_tables(settings: dict[str, Any]) -> None:
    """In TOML a line belongs to the table above it: name the table that a setting is for."""
    node, port = set(NodeConfig.__struct_fields__), set(PortConfig.__struct_fields__)
    try:
        protocol = str(settings.get("protocol", DEFAULT))
        own = set(live_protocol(protocol).config.__struct_fields__) - set(FILLED_IN)
    except LookupError:  # an error of its own
        own = set()
    for name in settings:
        if name in own - node:
            raise ConfigError(f"{name} is a setting of {protocol}: write it below [settings]")
    ports = found if isinstance(found := settings.get("ports"), list) else []
    tables = [(f"ports[{i}]", each, port) for i, each in enumerate(ports)]
    for place, table, known in (*tables, ("settings", settings.get("settings"), own)):
        for name in table if isinstance(table, dict) else ():
            if name in node - known:
                raise ConfigError(f"{place}: {name} is the node's: write it above all tables")


def from_settings(settings: dict[str, Any]) -> NodeConfig:
    """A configuration from what its file would say, not checked yet."""
    if isinstance(settings.get("ports"), dict):
        raise ConfigError("ports: begin the table of each port with [[ports]], not with [ports]")
    check_tables(settings)
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
    except (*UNREADABLE_TOML, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None
    here = path.resolve().parent

    def beside(value: str) -> str:
        return str(here / value) if value else ""

    places = {name: beside(getattr(config, name)) for name in PATHS}
    ports = tuple(
        msgspec.structs.replace(port, key_file=beside(port.key_file)) for port in config.ports
    )
    try:
        return msgspec.structs.replace(config, ports=ports, **places).check()
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
