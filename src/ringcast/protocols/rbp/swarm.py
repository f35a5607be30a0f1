"""What a swarm draws for RBP.

Repeats, suspicions and requests come out of the blue in half of the runs; otherwise the network,
the crashes and the pauses do as they like. In one run of five members keep so little that others
fall behind it and stop (F15, GONE).
"""

from __future__ import annotations

from typing import Any

from ringcast.core.swarm import Drawn, Mistake, Stream, SwarmDraw, frame_settings, queue_settings
from ringcast.protocols.rbp.originator import ReformTimer
from ringcast.protocols.rbp.state import Timer

NODES = (2, 3, 3, 4, 5, 5, 6, 7)


def settings(stream: Stream, n: int, unit_us: int, large: bool) -> Drawn:
    """Unusual but legal combinations; a frame takes ten hops at most, so nobody is suspected for
    ever."""
    rng = stream("config")
    hop_us = unit_us // (8 + 4 * n)
    queue = queue_settings(rng)
    idle_us = hop_us * rng.choice((0, 2, 8))
    token_us = hop_us * rng.choice((4, 8, 14))
    drawn: dict[str, Any] = {
        "resiliency": rng.choice(("total", "total", "majority", "number")),
        "tolerated": rng.randrange(1 + (n - 1) // 2),
        "batch": rng.choice((1, 4, 64)),
        "token_us": token_us,
        "retries": rng.choice((3, 5)),
        "data_us": hop_us * rng.choice((8, 30)),
        "nack_us": hop_us * rng.choice((2, 4, 8)),
        "idle_us": idle_us,
        "act_us": idle_us + token_us * rng.choice((5, 10)),
        "vote_us": hop_us * rng.choice((24, 48)),
        "backoff_us": hop_us * rng.choice((10, 30)),
        "join_us": hop_us * rng.choice((20, 60)),
        "window": rng.choice((1, 4, 16, 64)),
        **frame_settings(rng),
        **queue,
    }
    if large:  # through in some rotations
        drawn |= {"window": 64, "batch": 64, "max_packet": 9000}
    if (history := stream("history")).random() < 0.2:
        drawn["history_bytes"] = history.choice((0, 0, 2_000))
    return Drawn(drawn, n * drawn["window"])


def mistakes(stream: Stream, run_us: int, unit_us: int) -> tuple[Mistake, ...]:
    """In half of the runs a timer runs out early, now and then or all the time."""
    rng = stream("mistakes")
    if rng.random() < 0.5:
        return ()
    timers = (Timer.TOKEN, Timer.NACK, Timer.ACT, Timer.DATA, ReformTimer.VOTE, ReformTimer.WAIT)
    timer = rng.choice(timers)
    every_us = max(1, unit_us // rng.choice((1, 4, 20)))
    return (Mistake(rng.randrange(run_us), timer.value, every_us),)


SWARM = SwarmDraw(nodes=NODES, settings=settings, mistakes=mistakes, minority=0.7)
