"""A ring as queueing theory sees it: a server that goes round N queues. No protocol in it.

It tells what the latency of delivery should be with the costs of a network preset, and what it
would be if messages submitted during a visit could still go out in that visit. Our
machine handles a visit in one step, with the queue as it is when the token comes (theory calls
that gated); a program that looks at its queue again after each frame is the other (exhaustive).
"""

from __future__ import annotations

from collections import deque
from random import Random
from statistics import fmean

import msgspec

from ringcast.sim.presets import preset

HEADER_BYTES = 64
MOST_IN_VISIT = 14
"""Frames that a processor may send in one visit, as in the measurements."""

SIZE = 1000 + HEADER_BYTES + 15
"""A frame with a message of 1000 bytes."""


class Polled(msgspec.Struct, frozen=True):
    """Mean latencies over all processors."""

    agreed_ms: float
    safe_ms: float


def poll(rate: float, exhaustive: bool = False, nodes: int = 5, seconds: int = 300) -> Polled:
    """What Poisson arrivals, ``rate`` a second over all processors, should have to wait."""
    model = preset("sun-ipc-ethernet")
    cpu = model.cpu
    assert cpu is not None
    byte_us = 8e6 / model.link.bandwidth_bps
    send_us = cpu.send_us + cpu.send_us_per_byte * SIZE
    reach_us = (SIZE + model.overhead_bytes) * byte_us + cpu.receive_us
    reach_us += cpu.receive_us_per_byte * SIZE
    hop_us = cpu.unicast_send_us + (HEADER_BYTES + model.overhead_bytes) * byte_us

    rng = Random("polling")
    gap_us = nodes * 1e6 / rate
    coming = [rng.expovariate(1 / gap_us) for _ in range(nodes)]
    queues: list[deque[float]] = [deque() for _ in range(nodes)]
    passed: list[float] = []
    """When each visit had passed the token on, after which a processor delivers."""
    sent: list[tuple[float, float, int]] = []
    """Messages: when submitted, when put on the medium, in which visit."""
    now_us, at = 0.0, 0

    def arrive() -> None:
        while coming[at] <= now_us:
            queues[at].append(coming[at])
            coming[at] += rng.expovariate(1 / gap_us)

    while now_us < seconds * 1e6:
        arrive()
        queue = queues[at]
        left = MOST_IN_VISIT if exhaustive else min(MOST_IN_VISIT, len(queue))
        while left and queue:
            sent.append((queue.popleft(), now_us, len(passed)))
            now_us += send_us
            left -= 1
            if exhaustive:
                arrive()
        passed.append(now_us + cpu.unicast_send_us)
        now_us += hop_us
        at = (at + 1) % nodes

    whole = [each for each in sent if each[2] + 2 * nodes <= len(passed)]
    return Polled(
        agreed_ms=fmean(
            ((nodes - 1) * (put_us + reach_us) + passed[visit]) / nodes - submitted_us
            for submitted_us, put_us, visit in whole
        )
        / 1e3,
        # Each processor delivers at its second visit that shows the message held by all.
        safe_ms=fmean(
            fmean(passed[visit + nodes : visit + 2 * nodes]) - submitted_us
            for submitted_us, _, visit in whole
        )
        / 1e3,
    )
