"""A ring as queueing theory sees it: a server that goes round N queues. No protocol in it.

It tells what the latency of agreed delivery should be with the costs of a network preset, and
what it would be if messages submitted during a visit could still go out in that visit. Our
machine handles a visit in one step, with the queue as it is when the token comes (theory calls
that gated); a program that looks at its queue again after each frame is the other (exhaustive).
"""

from __future__ import annotations

from collections import deque
from random import Random
from statistics import fmean

from ringcast.protocols.totem_single.config import MEASURED
from ringcast.protocols.totem_single.messages import HEADER_BYTES
from ringcast.sim.presets import preset

SIZE = 1000 + HEADER_BYTES + 15
"""A frame with a message of 1000 bytes."""


def agreed_ms(rate: float, exhaustive: bool = False, nodes: int = 5, seconds: int = 300) -> float:
    """Mean latency of agreed delivery over all processors, for Poisson arrivals."""
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
    took: list[float] = []
    now_us, at = 0.0, 0

    def arrive() -> None:
        while coming[at] <= now_us:
            queues[at].append(coming[at])
            coming[at] += rng.expovariate(1 / gap_us)

    while now_us < seconds * 1e6:
        arrive()
        queue, sent = queues[at], []
        left = MEASURED.each_time if exhaustive else min(MEASURED.each_time, len(queue))
        while left and queue:
            sent.append((queue.popleft(), now_us))
            now_us += send_us
            left -= 1
            if exhaustive:
                arrive()
        own_us = now_us + cpu.unicast_send_us  # a sender delivers last (totem R21)
        for submitted_us, put_us in sent:
            others_us = (nodes - 1) * (put_us + reach_us)
            took.append((others_us + own_us) / nodes - submitted_us)
        now_us += hop_us
        at = (at + 1) % nodes
    return fmean(took) / 1e3
