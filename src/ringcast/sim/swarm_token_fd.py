"""What a swarm draws for a group with fixed members: token-fd.

Nobody comes back, so no more than f processors crash; the network and the pauses may do as they
like for a while. Detectors make mistakes, in many runs so many that nothing gets its votes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from ringcast.blocks.ring_detector import Timer
from ringcast.blocks.token_ring import most_faults
from ringcast.sim.faults import Crash, Expire, Fault, Leave, Restart, Torn
from ringcast.sim.model import NetworkModel
from ringcast.sim.swarm_faults import KINDS, draw_faults, in_order

NODES = (3, 3, 4, 7)
"""Processors of a run, when the number is not fixed; f is 1, 1, 1 or 2."""

ENDING = ("crash", "mass crash", "torn crash", "storage failure")
PASSING = tuple(kind for kind in KINDS if kind not in ENDING)
"""Kinds of episodes after which everybody is still there."""


def settings(stream: Callable[[str], Random], n: int, unit_us: int, large: bool) -> dict[str, Any]:
    """Settings of token-fd, in unusual but legal combinations."""
    rng = stream("config")
    hop_us = unit_us // (8 + 4 * n)
    queue = rng.choice((20, 60))
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
        "max_packet": rng.choice((600, 1460, 1460, 9000)),
        "packing": rng.random() < 0.8,
        "max_queue": queue,
        "min_queue": queue * 3 // 4,
    }
    if large:
        drawn |= {"each_time": 16, "max_packet": 9000}
    elif rng.random() < 0.25:
        drawn |= {"bodies_in_token": True, "each_time": 1, "max_packet": 60_000}
    return drawn


def faults(
    stream: Callable[[str], Random], n: int, model: NetworkModel, duration_us: int, unit_us: int
) -> tuple[Fault, ...]:
    """Episodes that pass, up to f crashes that do not, and mistakes of the detectors."""
    passing = draw_faults(stream("faults"), n, model, duration_us, unit_us, PASSING)
    crashes = draw_crashes(stream("crashes"), n, duration_us)
    return in_order(passing, crashes, draw_mistakes(stream("mistakes"), duration_us, unit_us))


def draw_crashes(rng: Random, n: int, duration_us: int) -> list[Fault]:
    """Up to f processors go for good; some try to come back."""
    plan: list[Fault] = []
    for node in rng.sample(range(1, n + 1), rng.randint(0, most_faults(n))):
        at_us = rng.randrange(duration_us)
        within = rng.choice(("send", "broadcast", "deliver"))
        end = rng.choice((Crash(at_us, node), Torn(at_us, node, within), Leave(at_us, node)))  # type: ignore[arg-type]
        plan.append(end)
        back_us = at_us + rng.randrange(duration_us)
        if rng.random() < 0.3 and back_us < duration_us:
            plan.append(Restart(back_us, node))
    return plan


def draw_mistakes(rng: Random, duration_us: int, unit_us: int) -> list[Fault]:
    """In three runs of four, suspicion out of the blue: now and then, or all the time."""
    if rng.random() < 0.25:
        return []
    begin_us = rng.randrange(duration_us)
    every_us = max(1, unit_us // rng.choice((1, 10, 100, 1_000)))
    return [Expire(begin_us, Timer.WATCH.value, 0, every_us)]
