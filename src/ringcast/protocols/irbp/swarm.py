"""What a swarm draws for iRBP: the ring's settings as for RBP, and limits of the detector.

In half of the runs timers run out early; a detector whose limits are short makes mistakes by
itself when the network or a processor is slow.
"""

from __future__ import annotations

from ringcast.core.swarm import Drawn, Mistake, Stream, SwarmDraw
from ringcast.protocols.irbp.messages import ViewTimer
from ringcast.protocols.rbp import swarm as ring
from ringcast.protocols.rbp.state import Timer


def settings(stream: Stream, n: int, unit_us: int, large: bool) -> Drawn:
    """Unusual but legal combinations."""
    drawn = ring.settings(stream, n, unit_us, large)
    rng = stream("views")
    hop_us = unit_us // (8 + 4 * n)
    beat_us = hop_us * rng.choice((4, 8))
    suspect_us = beat_us * rng.choice((3, 5))
    exclude_us = suspect_us * rng.choice((10, 20))
    more = {
        "beat_us": beat_us,
        "suspect_us": suspect_us,
        "suspect_max_us": suspect_us * rng.choice((2, 5)),
        "exclude_us": exclude_us,
        "exclude_max_us": exclude_us * rng.choice((1, 3)),
        "dwell_us": hop_us * rng.choice((10, 40)),
        "dwell_max_us": hop_us * 200,
        "resend_us": hop_us * rng.choice((4, 12)),
    }
    return Drawn(drawn.settings | more, drawn.frames)


def mistakes(stream: Stream, run_us: int, unit_us: int) -> tuple[Mistake, ...]:
    """In half of the runs a timer runs out early, now and then or all the time."""
    rng = stream("mistakes")
    if rng.random() < 0.5:
        return ()
    timer = rng.choice((Timer.TOKEN, Timer.NACK, Timer.ACT, Timer.DATA, *ViewTimer))
    every_us = max(1, unit_us // rng.choice((1, 4, 20)))
    return (Mistake(rng.randrange(run_us), timer.value, every_us),)


SWARM = SwarmDraw(nodes=ring.NODES, settings=settings, mistakes=mistakes, minority=0.7)
