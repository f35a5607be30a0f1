"""What a protocol tells the swarm: how its runs are drawn. Plain data, since it cannot see the
simulator, which makes faults of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeAlias

import msgspec

from ringcast.core.rings import Rings

Stream: TypeAlias = Callable[[str], Random]
"""The random stream of a topic."""

USUAL_FRAMES = 50


def queue_settings(rng: Random) -> dict[str, Any]:
    """A short queue, with its two marks."""
    most = rng.choice((20, 60))
    return {"max_queue": most, "min_queue": most * 3 // 4}


def frame_settings(rng: Random) -> dict[str, Any]:
    """Frames of a size, packed in most runs."""
    return {"max_packet": rng.choice((600, 1460, 1460, 9000)), "packing": rng.random() < 0.8}


class Drawn(msgspec.Struct, frozen=True):
    """Settings drawn for one run."""

    settings: dict[str, Any] = {}
    """What differs from the profile."""
    frames: int = USUAL_FRAMES
    """Frames that the group may send in one round; a wire of the run carries them in time."""


class Mistake(msgspec.Struct, frozen=True):
    """From ``at_us`` on, ``timer`` runs out early at processors drawn at random, on average every
    ``every_us``: what a detector takes for a silence, for instance."""

    at_us: int
    timer: str
    every_us: int


class SwarmDraw(msgspec.Struct, frozen=True):
    """How the runs of a protocol are drawn from a seed."""

    nodes: tuple[int, ...] = (3, 4, 5, 6, 7, 8, 9)
    """Numbers of processors to choose from."""
    settings: Callable[[Stream, int, int, bool], Drawn] = lambda stream, n, unit_us, large: Drawn()
    """From its streams, the number of processors, the unit of time (a handful of rotations of a
    token) and whether there are large messages: settings in unusual but legal combinations."""
    mistakes: Callable[[Stream, int, int], tuple[Mistake, ...]] = lambda stream, run_us, unit_us: ()
    """From its streams, the length of the run and the unit of time."""
    without: tuple[str, ...] = ()
    """Kinds of faults that the protocol does not claim to bear, by the simulator's names."""
    crashes: Callable[[int], int] = lambda n: 0
    """Of n fixed members, how many may crash for good."""
    minority: float = 0.0
    """Share of the runs in which only a minority, drawn once, ever crashes or leaves: for a
    protocol that goes on only while a majority remembers."""
    rings: Callable[[Stream, int | None], Rings] = lambda stream, n: ()
    """The processors of each broadcast domain, n in all if n is given; empty: there is one."""
    groups: Callable[[Mapping[str, Any]], bool] = lambda settings: False
    """Whether, with these settings, messages to groups differ from messages to all."""
