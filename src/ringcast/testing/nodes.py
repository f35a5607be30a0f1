"""Nodes on simulated hosts: the real ``Node``, with settings that fit the world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringcast.api.node import Node
from ringcast.core.effects import InstallView
from ringcast.runtime.config import NodeConfig, from_settings
from ringcast.runtime.platform import LivePlatform, Transport
from ringcast.runtime.port_config import PortConfig
from ringcast.runtime.udp import Udp
from ringcast.runtime.udp_offload import Intake
from ringcast.wire.address import Address

if TYPE_CHECKING:
    from ringcast.testing.host import Host

PORT = 5400


class HostIntake(Intake):
    """What waits in a simulated socket, as it is: nothing to poll, and no buffer to copy it to."""

    __slots__ = ()
    socket: Any

    def waits(self) -> bool:
        """Whether there is something."""
        return bool(self.socket.inbox)

    def receive(self) -> list[bytes]:  # type: ignore[override]
        """All of it."""
        found: list[bytes] = self.socket.recv_all()
        return found


class HostUdp(Udp):
    """UDP as it is, but for the way of a frame from a socket to the node."""

    def __init__(self, bind: Address, receive_buffer: int) -> None:
        super().__init__(bind, receive_buffer)
        self._intakes = [HostIntake(self._socket)]


class HostPlatform(LivePlatform):
    """A simulated host as a node sees it. A node would run on what replaces sockets and clocks
    anyway; this is shorter, since it need not find out whose they are."""

    def __init__(self, host: Host) -> None:
        self._clock, self._scheduler = host.clock, host.loop.scheduler

    def monotonic_ns(self) -> int:
        """The host's clock."""
        clock, now_us = self._clock, self._scheduler.now_us
        return (clock.local_us(now_us) if clock.ppm else now_us + clock.ahead_us) * 1000

    def transport(self, config: PortConfig, receive_buffer: int) -> Transport:
        """UDP sockets."""
        if config.multicast:
            return super().transport(config, receive_buffer)
        return HostUdp(config.bind_address, receive_buffer)


class WatchedNode(Node):
    """A node whose views become lines of the story."""

    def __init__(self, config: NodeConfig, host: Host) -> None:
        super().__init__(config, HostPlatform(host))
        self._watched = host

    def on_view(self, change: InstallView) -> None:
        """As the node does."""
        if not change.transitional:
            named = ", ".join(self._watched.world.by_number(each).name for each in change.members)
            self._watched.note(f"sees the ring {named}")
        super().on_view(change)


def settings_of(host: Host, changes: dict[str, Any]) -> dict[str, Any]:
    """For a node of ``host``; its group are the hosts whose programs are given a node, else all."""
    world = host.world
    members = [each for each in world.hosts if each.member] or world.hosts
    if host not in members:
        members = [*members, host]
    usual: dict[str, Any] = {
        "id": host.number,
        "bind": f"{host.address}:{PORT}",
        "peers": [f"{each.number}@{each.address}:{PORT}" for each in members],
        "insecure": True,
        "state_dir": str(host.folder / "state"),
    }
    chosen = usual | world.settings | changes
    if chosen.get("journal") is True:
        chosen["journal"] = str(host.folder / "journal")
    return chosen


def open_node(host: Host, settings: dict[str, Any]) -> Node:
    """A node with these settings, watched."""
    return WatchedNode(from_settings(settings), host)
