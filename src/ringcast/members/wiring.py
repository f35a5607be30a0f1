"""Live nodes on several rings (``core.rings``): who listens where, and who is whose peer."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ringcast.core.ids import NodeId
from ringcast.core.rings import Rings
from ringcast.sim.rings import attached


class WiredPort(msgspec.Struct, frozen=True):
    """What a node's configuration says of one of its domains."""

    domain: int
    id: NodeId
    bind: str
    peers: list[str]


def wired(rings: Rings, places: Mapping[NodeId, str]) -> dict[NodeId, tuple[WiredPort, ...]]:
    """The ports of each node. ``places`` has an address for each id of ``attached``; a gateway has
    several of them."""
    attachments = attached(rings)
    peers: dict[int, list[str]] = {}
    for ports in attachments.values():
        for domain, pid in ports:
            peers.setdefault(domain, []).append(f"{pid}@{places[pid]}")
    return {
        node: tuple(WiredPort(domain, pid, places[pid], peers[domain]) for domain, pid in ports)
        for node, ports in attachments.items()
    }
