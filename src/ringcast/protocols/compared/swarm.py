"""What a swarm draws for the compared protocols: loss and delays of all kinds, and no crash."""

from __future__ import annotations

from typing import Any

from ringcast.core.swarm import Drawn, Stream, SwarmDraw, queue_settings


def common(stream: Stream, n: int, unit_us: int, large: bool) -> Drawn:
    """Unusual but legal combinations."""
    rng = stream("config")
    hop_us = unit_us // (8 + 4 * n)
    queue = queue_settings(rng)
    drawn: dict[str, Any] = {
        "repair_us": hop_us * rng.choice((4, 10, 30)),
        "window": 64 if large else rng.choice((1, 4, 16, 64)),
        "max_packet": 9000 if large else rng.choice((600, 1460, 1460, 9000)),
        "packing": rng.random() < 0.8,
        **queue,
    }
    return Drawn(drawn, n * drawn["window"])


def relayed(stream: Stream, n: int, unit_us: int, large: bool) -> Drawn:
    """Of the centralised protocol: sometimes the site passes bodies on."""
    drawn = common(stream, n, unit_us, large)
    return Drawn(drawn.settings | {"relay": stream("relay").random() < 0.4}, drawn.frames)


def turns(stream: Stream, n: int, unit_us: int, large: bool) -> Drawn:
    """Of those with a token."""
    rng = stream("token")
    drawn = common(stream, n, unit_us, large)
    hop_us = unit_us // (8 + 4 * n)
    each_time = 16 if large else rng.choice((1, 1, 4))
    ring = {"token_us": hop_us * rng.choice((0, 1, 3)), "each_time": each_time}
    return Drawn(drawn.settings | ring, drawn.frames)


NODES = (2, 3, 3, 4, 5, 7)
SWARM = SwarmDraw(nodes=NODES, settings=common)
RELAYED = SwarmDraw(nodes=NODES, settings=relayed)
TURNS = SwarmDraw(nodes=NODES, settings=turns)
