"""Nodes on simulated hosts: the real ``Node``, with settings that fit the world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringcast.api.node import Node
from ringcast.core.effects import InstallView
from ringcast.runtime.config import NodeConfig, from_settings

if TYPE_CHECKING:
    from ringcast.testing.host import Host

PORT = 5400


class WatchedNode(Node):
    """A node whose views become lines of the story."""

    def __init__(self, config: NodeConfig, host: Host) -> None:
        super().__init__(config)
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
