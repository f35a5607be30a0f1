"""A toy protocol that lives outside ``ringcast``: one primary part, and no transitional view.

A coordinator asks all members for a promise not to follow older epochs. With the promises of a
majority it makes a view of those who answered, numbers their messages, and commits a number when
all of the view have it. So two parts of a divided group never both go on. What is under way when a
view ends is not carried over: its sender is told that its fate is uncertain. It keeps nothing from
a view to the next but the number of the last promise, in stable storage.

An entry point in the group ``ringcast.protocols`` that names this package makes it known to every
command; nothing in ``ringcast`` knows it.
"""

from __future__ import annotations

from random import Random
from typing import Any

from ringcast.core.registry import MembershipKind, Sheet, register
from ringcast.core.swarm import Drawn, Stream, SwarmDraw
from toy_primary.machine import MESSAGES, Toy
from toy_primary.majority import Majority
from toy_primary.messages import Ack, Knock, Promise, Request
from toy_primary.settings import Config, progress_bound_us

CLAIMS = (
    "M1",
    "M2",
    "D1",
    "D2",
    "D4",
    "D9",
    "integrity",
    "total-order",
    "fifo",
    "causal",
    Majority.tag,
)


def settings(stream: Stream, n: int, unit_us: int, large: bool) -> Drawn:
    """Unusual but legal combinations."""
    rng: Random = stream("config")
    window = 32 if large else rng.choice((1, 4, 32))
    drawn: dict[str, Any] = {
        "beat_us": unit_us // rng.choice((6, 12)),
        "silence_us": 2 * unit_us,
        "form_us": unit_us // rng.choice((1, 2)),
        "window": window,
        "max_packet": 9000 if large else rng.choice((600, 1460)),
    }
    return Drawn(drawn, window * n)


SHEET = register(
    Sheet(
        name="toy-primary",
        source="tests",
        config=Config,
        make=Toy,
        claims=lambda config: CLAIMS,
        profiles={"plain": Config()},
        messages=MESSAGES,
        progress_bound_us=progress_bound_us,
        membership=MembershipKind.PRIMARY,
        unicast=(Promise, Knock, Request, Ack),
        checks=(Majority,),
        swarm=SwarmDraw(nodes=(3, 4, 5, 7), settings=settings),
        patient=lambda us: {"silence_us": us},
        fast=lambda frames, n: {"window": frames},
    )
)

__all__ = ["CLAIMS", "SHEET", "Config", "Toy"]
