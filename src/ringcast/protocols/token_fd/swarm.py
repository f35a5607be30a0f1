"""What a swarm draws for token-fd.

Nobody comes back, so no more than f members crash; the network and the pauses may do as they like
for a while. Detectors make mistakes, in many runs so many that nothing gets its votes. In one run
of five members keep so little that others fall behind it and stop (TF-38).
"""

from __future__ import annotations

from typing import Any

from ringcast.blocks.ring_detector import Timer
from ringcast.blocks.token_ring import most_faults
from ringcast.core.swarm import Drawn, Mistake, Stream, SwarmDraw, frame_settings, queue_settings

NODES = (3, 3, 4, 7)
"""f is 1, 1, 1 or 2."""


def settings(stream: Stream, n: int, unit_us: int, large: bool) -> Drawn:
    """Unusual but legal combinations."""
    rng = stream("config")
    hop_us = unit_us // (8 + 4 * n)
    queue = queue_settings(rng)
    beat_us = hop_us * rng.choice((2, 5))
    drawn: dict[str, Any] = {
        "beat_us": beat_us,
        "suspect_us": hop_us * rng.choice((1, 4, 10, 20)),
        "suspect_grow_us": hop_us * rng.choice((1, 4)),
        "suspect_most_us": 2 * unit_us + beat_us,
        "hold_us": hop_us * rng.choice((0, 1, 5)),
        "resend_us": unit_us // rng.choice((3, 6)),
        "request_us": hop_us * rng.choice((2, 6)),
        "fetch_us": hop_us * rng.choice((2, 8)),
        "copies": rng.random() < 0.3,
        "lag_limit": rng.choice((0, n, 2)),
        "each_time": rng.choice((1, 4, 16)),
        **frame_settings(rng),
        **queue,
    }
    if large:
        drawn |= {"each_time": 16, "max_packet": 9000}
    elif rng.random() < 0.25:
        drawn |= {"bodies_in_token": True, "each_time": 1, "max_packet": 60_000}
    if not large and stream("history").random() < 0.2:  # the least there may be
        drawn |= {"each_time": 1, "history_bytes": 4 * n * drawn["max_packet"]}
    return Drawn(drawn)


def mistakes(stream: Stream, run_us: int, unit_us: int) -> tuple[Mistake, ...]:
    """In three runs of four, suspicion out of the blue: now and then, or all the time."""
    rng = stream("mistakes")
    if rng.random() < 0.25:
        return ()
    begin_us = rng.randrange(run_us)
    every_us = max(1, unit_us // rng.choice((1, 10, 100, 1_000)))
    return (Mistake(begin_us, Timer.WATCH.value, every_us),)


SWARM = SwarmDraw(nodes=NODES, settings=settings, mistakes=mistakes, crashes=most_faults)
