"""Networks of rings (``core.rings``) as a cluster takes them: ports and ids.

The id of a gateway is its own in the first of its domains, and ``PORT`` more in each further one,
since ids are unique over the whole network.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringcast.core.ids import NodeId
from ringcast.core.rings import Rings
from ringcast.sim.cluster import Attached

PORT = 1000
"""Between the ids of a gateway at two of its ports; processors have smaller ids."""


def attached(rings: Rings) -> dict[NodeId, Attached]:
    """For each processor, its domains and its id in each."""
    places: dict[NodeId, list[tuple[int, NodeId]]] = {}
    for domain, nodes in enumerate(rings):
        for node in nodes:
            ports = places.setdefault(node, [])
            ports.append((domain, node + PORT * len(ports)))
    return {node: tuple(ports) for node, ports in sorted(places.items())}


def unjoined(rings: Rings) -> Rings:
    """The rings to which no gateways lead from the first one."""
    reached, apart = set(rings[0] if rings else ()), list(rings[1:])
    while near := [ring for ring in apart if reached & set(ring)]:
        reached.update(*near)
        apart = [ring for ring in apart if ring not in near]
    return tuple(apart)


def in_domain(rings: Rings, domain: int, nodes: Iterable[NodeId]) -> tuple[NodeId, ...]:
    """The ids that these processors have in a domain, those that are in it."""
    wanted = set(nodes)
    return tuple(
        pid
        for node, ports in attached(rings).items()
        for at, pid in ports
        if at == domain and node in wanted
    )


def connected(rings: Rings, nodes: Iterable[NodeId]) -> bool:
    """Whether these processors reach each other by themselves."""
    left = set(nodes)
    reached = {min(left)}
    while True:
        heard = {n for ring in rings if not reached.isdisjoint(ring) for n in ring} & left
        if heard <= reached:
            return reached == left
        reached |= heard
