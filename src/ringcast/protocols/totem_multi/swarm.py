"""What a swarm draws for a network of rings: its shape, and settings of its rings."""

from __future__ import annotations

from random import Random

from ringcast.core.rings import Rings, shaped
from ringcast.core.swarm import Drawn, Stream, SwarmDraw
from ringcast.protocols.totem_single.swarm import settings as ring_settings

TRIES = 200
"""Networks that are drawn to find one of a given size."""


LEAST = {"window_size": 16, "min_window": 16, "each_time": 4, "min_each": 1}
"""A ring carries what all others send, and words of all members for each safe message: with a
window of a few frames that takes longer than any bound on progress."""


WIDE = 1 / 8
"""Share of the networks in which a gateway joins three rings."""


def rings(stream: Stream, n: int | None) -> Rings:
    """Two to eight rings of one to three processors. If none of n processors turns up, one ring of
    them."""
    wide = stream("wide").random() < WIDE
    for at in range(TRIES if n else 1):
        drawn = network(stream(f"rings/{at}" if at else "rings"))
        drawn = widened(drawn) if wide else drawn
        if n is None or n == max(node for ring in drawn for node in ring):
            return drawn
    return (tuple(range(1, (n or 1) + 1)),)


def network(rng: Random) -> Rings:
    """One network: a tree, gateways in pairs, a cycle, or a tree with one or two joins more."""
    count = rng.choice((2, 3, 3, 4, 4, 5, 6, 7, 8))
    each = rng.choice((1, 1, 2, 3)) if count < 5 else 1
    kind = rng.choice(("tree", "tree", "tree", "pair", "cycle", "cycle", "random"))
    if kind == "pair":
        return shaped("tree", min(count, 4), min(each, 2), rng, twice=True)
    return shaped(kind, max(count, 3) if kind == "cycle" else count, each, rng)


def widened(rings: Rings) -> Rings:
    """The same with one gateway less: another one on its ring joins what it joined. The numbers of
    the processors remain without a gap."""
    ends = {
        node: {at for at, ring in enumerate(rings) if node in ring}
        for ring in rings
        for node in ring
    }
    for gone, of_gone in sorted(ends.items()):
        for stays, of_other in sorted(ends.items()):
            if len(of_gone) == len(of_other) == 2 and len(of_gone & of_other) == 1:
                (beyond,) = of_gone - of_other
                found = [[node for node in ring if node != gone] for ring in rings]
                found[beyond].append(stays)
                return tuple(tuple(node - (node > gone) for node in ring) for ring in found)
    return rings


def settings(stream: Stream, n: int, unit_us: int, large: bool) -> Drawn:
    """Those of the rings, and how often a gateway speaks for a silent one."""
    drawn = ring_settings(stream, n, unit_us, large)
    rng = stream("multi")
    joined = rings(stream, n)
    gateways = sum(map(len, joined)) - n
    room = {name: max(drawn.settings[name], least) for name, least in LEAST.items()}
    own = {
        **room,
        "timestamp_interval": rng.choice((2, 100, 1_000_000)),
        "gv_min_us": max(1, unit_us // rng.choice((8, 20, 60))),
        "acyclic": gateways < len(joined) and rng.random() < 0.7,
    }
    return Drawn(drawn.settings | own, drawn.frames)


SWARM = SwarmDraw(settings=settings, rings=rings, groups=lambda settings: settings["acyclic"])
