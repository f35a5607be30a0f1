"""What a swarm draws for a network of rings: its shape, and settings of its rings."""

from __future__ import annotations

from random import Random

from ringcast.core.rings import Rings, shaped
from ringcast.core.swarm import Drawn, Stream, SwarmDraw
from ringcast.protocols.totem_single.swarm import settings as ring_settings

TRIES = 200
"""Networks that are drawn to find one of a given size."""


def rings(stream: Stream, n: int | None) -> Rings:
    """Two to four rings of one to three processors: trees, and sometimes gateways in pairs or a
    cycle of three. If none of n processors turns up, one ring of them."""
    for at in range(TRIES if n else 1):
        drawn = network(stream(f"rings/{at}" if at else "rings"))
        if n is None or n == max(node for ring in drawn for node in ring):
            return drawn
    return (tuple(range(1, (n or 1) + 1)),)


def network(rng: Random) -> Rings:
    """One network."""
    each = rng.choice((1, 1, 2, 3))
    kind = rng.choice(("tree", "tree", "tree", "tree", "pair", "cycle"))
    if kind == "pair":
        return shaped("tree", rng.choice((2, 2, 3)), min(each, 2), rng, twice=True)
    if kind == "cycle":
        return shaped("cycle", 3, min(each, 2), rng)
    return shaped("tree", rng.choice((2, 2, 3, 3, 4)), each, rng)


def settings(stream: Stream, n: int, unit_us: int, large: bool) -> Drawn:
    """Those of the rings, and how often a gateway speaks for a silent one."""
    drawn = ring_settings(stream, n, unit_us, large)
    rng = stream("multi")
    joined = rings(stream, n)
    gateways = sum(map(len, joined)) - n
    own = {
        "timestamp_interval": rng.choice((2, 100, 1_000_000)),
        "gv_min_us": max(1, unit_us // rng.choice((8, 20, 60))),
        "acyclic": gateways < len(joined) and rng.random() < 0.7,
    }
    return Drawn(drawn.settings | own, drawn.frames)


SWARM = SwarmDraw(settings=settings, rings=rings)
