"""What a swarm draws for a Totem ring: settings in unusual but legal combinations."""

from __future__ import annotations

from typing import Any

from ringcast.core.swarm import Drawn, Stream, SwarmDraw, frame_settings, queue_settings


def settings(stream: Stream, n: int, unit_us: int, large: bool) -> Drawn:
    """Timeouts around the unit, flow control from starved to plenty."""
    rng = stream("config")
    each_time = rng.choice((1, 3, 10, 30))
    consensus_us = rng.choice((unit_us // 2, unit_us))
    queue = queue_settings(rng)
    drawn: dict[str, Any] = {
        "token_loss_us": unit_us,
        "token_retransmit_us": unit_us // rng.choice((3, 5)),
        "join_us": consensus_us // rng.choice((3, 5)),
        "consensus_us": consensus_us,
        "announce_us": 2 * unit_us,
        "hold_us": rng.choice((0, unit_us // (3 * n))),
        "max_fast_rounds": rng.choice((1, 5, 30)),
        "window_size": rng.choice((4, 20, 50, 100)),
        "each_time": each_time,
        "min_each": rng.choice((0, 1, 1, 1)),
        "adaptive": rng.random() < 0.5,
        "min_window": rng.choice((2, 10)),
        "target_rotation_us": unit_us // rng.choice((1, 4)),
        "fail_rcv_const": rng.choice((5, 20, 20, 50)),
        "max_requests": rng.choice((3, 90, 90)),
        "miss_visits": rng.choice((0, 0, 0, 2)),
        **frame_settings(rng),
        **queue,
        "mutual": rng.random() < 0.75,
        "merge_backoff_us": stream("backoff").choice((0, 0, 0, unit_us // 64, unit_us // 16)),
    }
    if large:  # through in some rotations, of which the bound on progress has a hundred
        drawn |= {"each_time": 30, "window_size": 100, "min_window": 10, "max_packet": 9000}
    return Drawn(drawn, drawn["window_size"])


SWARM = SwarmDraw(settings=settings)
