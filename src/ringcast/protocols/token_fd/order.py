"""Order: what has been decided so far, as far back as anybody may still ask for it.

It is the source's adeliv, in runs (see messages.py). Three parts of it are looked at: what waits
for its bodies to be handed up, what goes into the next token, and what is kept for members that
lag. A frame's place in the order is its position, 1 and up.

A member's sequence always ends where a decision ends: nobody may go on from the middle of one. So
it grows only by whole decisions, and is told to others only up to the end of one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from zlib import crc32

Run = tuple[int, int]
Kept = tuple[int, int, bool]
"""A run, and whether a decision is known to end with it."""
Flat = tuple[int, ...]
"""Runs as they travel: place, count, place, count, …"""


def pairs(runs: Flat) -> Iterator[Run]:
    """The runs one by one."""
    return zip(runs[::2], runs[1::2], strict=True)


class DecidedOrder:
    """The decided sequence at one member. Its length only grows (I3)."""

    __slots__ = (
        "base",
        "counts",
        "crc",
        "delivered",
        "delivered_of",
        "length",
        "old",
        "old_base",
        "pending",
        "tail",
    )

    def __init__(self, n: int) -> None:
        self.counts = [0] * n
        """Frames of each member in it."""
        self.length = 0
        self.crc = 0
        """A checksum of the whole sequence, so that traces can compare it (I6)."""
        self.pending: deque[Run] = deque()
        """Decided and not handed up yet."""
        self.delivered = 0
        """How many frames were handed up, in all …"""
        self.delivered_of = [0] * n
        """… and of each member."""
        self.base = [0] * n
        self.tail: deque[Kept] = deque()
        """TF-37: what tokens tell: the frames after ``base``."""
        self.old_base = [0] * n
        self.old: deque[Kept] = deque()
        """TF-38: what is kept besides: the frames after ``old_base``, up to ``base``."""

    def append(self, runs: Flat) -> None:
        """TF-24: these come next: one decision, or several."""
        for run in pairs(runs):
            place, count = run
            self.counts[place] += count
            self.length += count
            self.crc = crc32(b"%d %d " % run, self.crc)
            self.tail.append((place, count, False))
            self.pending.append(run)
        if runs:
            self.tail[-1] = (*run, True)

    def beyond(self, base: tuple[int, ...], runs: Flat) -> Flat | None:
        """What the sequence ``base`` and ``runs`` has after ours; None if there is a gap between.

        ValueError if neither is a beginning of the other (A10, I6): the counts of our end tell.
        """
        skip = self.length - sum(base)
        if skip < 0:
            return None
        counts = list(base)
        at = 0
        while skip > 0 and at < len(runs):
            place, count = runs[at], runs[at + 1]
            if count > skip:
                raise ValueError("its decisions are other ones")
            counts[place] += count
            skip -= count
            at += 2
        if skip > 0:
            return ()  # it is shorter
        if counts != self.counts:
            raise ValueError("its order is another one")
        return runs[at:]

    def told_from(self, length: int, most: int) -> Flat:
        """TF-37, TF-38: let ``base`` rise to ``length``, and further if more than ``most`` runs
        would remain; the runs that remain."""
        tail, base = self.tail, self.base
        told = sum(base)
        while tail and (told < length or len(tail) > most):
            place, count, end = tail[0]
            part = count if len(tail) > most else min(count, length - told)
            told += part
            base[place] += part
            self.old.append((place, part, end and part == count))
            if part == count:
                tail.popleft()
            else:
                tail[0] = (place, count - part, end)
        return tuple(number for place, count, _ in tail for number in (place, count))

    def forget(self, length: int) -> Iterator[tuple[int, int, int]]:
        """TF-38: drop what is kept of the first ``length`` frames; places, first and last numbers
        of the bodies that nobody will be given any more."""
        kept = sum(self.old_base)
        while self.old and kept + self.old[0][1] <= length:
            place, count, _ = self.old.popleft()
            first = self.old_base[place] + 1
            self.old_base[place] += count
            kept += count
            yield place, first, self.old_base[place]

    def after(self, length: int, most: int) -> tuple[tuple[int, ...], Flat]:
        """TF-38: some ``most`` runs that follow the first ``length`` frames, and the counts of
        these; from a later point on, if the order is not kept that far back."""
        counts = list(self.old_base)
        skip = length - sum(counts)
        found: list[int] = []
        for place, count, end in chain(self.old, self.tail):
            if skip >= count:
                counts[place] += count
                skip -= count
                continue
            if skip > 0:
                counts[place] += skip
            found += (place, count - max(skip, 0))
            skip = 0
            if end and len(found) >= 2 * most:
                break
        return tuple(counts), tuple(found)


def shown(runs: Flat) -> str:
    """Runs in a trace."""
    return "+".join(f"{place}x{count}" for place, count in pairs(runs)) or "-"
