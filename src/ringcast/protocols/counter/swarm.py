"""What a swarm draws for the counter-based protocol.

Reissues, suspicions and requests come out of the blue in half of the runs; otherwise the network,
the crashes and the pauses do as they like.
"""

from __future__ import annotations

from typing import Any

from ringcast.core.swarm import Drawn, Mistake, Stream, SwarmDraw, frame_settings, queue_settings
from ringcast.protocols.counter.state import Timer

NODES = (2, 3, 3, 4, 5, 5, 6, 7)


def settings(stream: Stream, n: int, unit_us: int, large: bool) -> Drawn:
    """Unusual but legal combinations; a frame takes ten hops at most, so nobody is suspected for
    ever."""
    rng = stream("config")
    hop_us = unit_us // (8 + 4 * n)
    queue = queue_settings(rng)
    drawn: dict[str, Any] = {
        "order": rng.choice(("fixed", "fixed", "rotating")),
        "first_sender": rng.randrange(n),
        "counting": rng.choice(("set", "set", "counter")),
        "token_us": hop_us * rng.choice((0, 0, 1, 3)),
        "idle_us": hop_us * rng.choice((0, 2, 8)),
        "reissue_us": hop_us * rng.choice((8, 14, 24)),
        "reissues": rng.choice((1, 2, 3)),
        "request_us": hop_us * rng.choice((3, 10)),
        "answer_us": hop_us * rng.choice((1, 3)),
        "grace_us": hop_us * rng.choice((12, 24)),
        "join_us": hop_us * rng.choice((10, 40)),
        "leave_us": hop_us * stream("leave").choice((0, 40, 200)),
        "window": rng.choice((1, 4, 16, 64)),
        "most_held": rng.choice((0, 0, 4)),
        "most_listed": rng.choice((0, 0, 3)),
        "history_bytes": rng.choice((2_000, 1_000_000, 1_000_000)),
        **frame_settings(rng),
        **queue,
    }
    if large:  # through in some rotations
        drawn |= {"window": 64, "max_packet": 9000, "most_held": 0, "most_listed": 0}
    return Drawn(drawn, n * drawn["window"])


def mistakes(stream: Stream, run_us: int, unit_us: int) -> tuple[Mistake, ...]:
    """In half of the runs a timer runs out early, now and then or all the time."""
    rng = stream("mistakes")
    if rng.random() < 0.5:
        return ()
    timer = rng.choice((Timer.MONITOR, Timer.SILENCE, Timer.REQUEST, Timer.REFORM))
    every_us = max(1, unit_us // rng.choice((1, 4, 20)))
    return (Mistake(rng.randrange(run_us), timer.value, every_us),)


SWARM = SwarmDraw(nodes=NODES, settings=settings, mistakes=mistakes)
