"""What a swarm draws for TOTAL: settings in unusual but legal combinations."""

from __future__ import annotations

from typing import Any

from ringcast.core.swarm import Drawn, Stream, SwarmDraw, frame_settings, queue_settings


def settings(stream: Stream, n: int, unit_us: int, large: bool) -> Drawn:
    """The mode is the profile's.

    A frame takes ten hops at most, so nobody is suspected for ever, and in the time for a change
    the four frames of a flush can go there and back.
    """
    rng = stream("config")
    hop_us = unit_us // (8 + 4 * n)
    beat_us = hop_us * rng.choice((4, 8))
    suspect_us = max(2 * beat_us, hop_us * rng.choice((6, 12, 24)))
    queue = queue_settings(rng)
    window = rng.choice((4, 20, 64, 256))
    drawn: dict[str, Any] = {
        "beat_us": beat_us,
        "suspect_us": suspect_us,
        "suspect_max_us": max(suspect_us * rng.choice((1, 4)), beat_us + 24 * hop_us),
        "change_us": hop_us * rng.choice((40, 80)),
        "announce_us": unit_us // rng.choice((2, 4)),
        "merge_us": hop_us * rng.choice((1, 3)),
        "away_us": hop_us * rng.choice((1, 5)),
        "away_max_us": unit_us,
        "join_us": hop_us * rng.choice((1, 10)),
        "retry_us": hop_us * rng.choice((2, 4)),
        "retry_max_us": hop_us * 16,
        "window_size": window,
        "request_window": rng.choice((1, 4, 32)),
        "queue_size": rng.choice((1, 16, 1024)),
        "request_us": hop_us * rng.choice((3, 10)),
        "request_max_us": hop_us * rng.choice((10, 40)),
        "ack_every": rng.choice((1, 4, 16)),
        "ack_us": hop_us * rng.choice((1, 4)),
        "status_us": hop_us * rng.choice((2, 8)),
        "tick_us": hop_us * rng.choice((1, 2)),
        "resend_us": hop_us * rng.choice((2, 6)),
        "resend_max_us": hop_us * rng.choice((6, 30)),
        "resend_window": rng.choice((1, 8, 64)),
        "first_in_bcast": rng.random() < 0.8,
        **frame_settings(rng),
        **queue,
    }
    if stream("quorum").random() < 0.25:
        drawn["quorum"] = n // 2 + 1
    if large:  # through in some hundred round trips at most
        drawn |= {"window_size": 64, "request_window": 32, "queue_size": 1024, "max_packet": 9000}
    return Drawn(drawn, drawn["window_size"])


SWARM = SwarmDraw(settings=settings)
