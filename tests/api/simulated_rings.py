"""Nodes on three rings in a simulated world, joined by gateways. A world has none of its own, but a
node that a program opens may have several ports."""

from __future__ import annotations

from typing import Any

from ringcast.testing import Host
from ringcast.testing.nodes import PORT

RINGS = (("a1", "a2", "g"), ("b1", "b2", "g", "h"), ("c1", "h"))
NAMES = sorted({name for ring in RINGS for name in ring})
SECOND_PORT = 100
"""Between the ids of a gateway at its two ports."""


def settings(host: Host) -> dict[str, Any]:
    """Of a node in the rings that name it."""

    def port(at: int) -> dict[str, Any]:
        def place(name: str) -> tuple[int, str]:
            number, before = host.world[name].number, sum(name in each for each in RINGS[:at])
            return number + SECOND_PORT * before, f"{host.world[name].address}:{PORT + before}"

        id, bind = place(host.name)
        peers = ["{}@{}".format(*place(each)) for each in RINGS[at]]
        return {"id": id, "bind": bind, "peers": peers}

    ports = [port(at) for at, ring in enumerate(RINGS) if host.name in ring]
    where = {"ports": ports} if len(ports) > 1 else ports[0]
    own = {"id": host.number, "state_dir": str(host.folder / "state"), "insecure": True}
    return {**where, **own, "protocol": "totem-multi", "settings": {"acyclic": True}}
