"""Places as people read and write them: ``(8,1):23.0`` is ring (8,1), number 23, index 0."""

from __future__ import annotations

import re

from ringcast.journal.layout import GAP_INDEX, LAST_INDEX, Place

WORDS = {"end": LAST_INDEX, "gap": GAP_INDEX}
"""Indices that no message has: ``(4,1):0.end`` is where a transitional configuration stands."""

SPELLED = re.compile(r"\(?(\d{1,18}),(\d{1,18})\)?:(\d{1,18})(?:\.(\d{1,10}|end|gap))?")

EXAMPLE = "(8,1):23.0"
"""For errors."""


def parse(text: str) -> Place | None:
    """The place, also without the brackets or the index; None if it is none."""
    found = SPELLED.fullmatch(text.strip())
    if not found:
        return None
    ring_seq, ring_rep, seq, last = found.groups(default="0")
    index = WORDS[last] if last in WORDS else int(last)
    if index > LAST_INDEX:
        return None
    return Place(int(ring_seq), int(ring_rep), int(seq), index)


def spelled(place: Place) -> str:
    """The place as ``parse`` reads it."""
    ring_seq, ring_rep, seq, index = place
    last = next((word for word, at in WORDS.items() if at == index), index)
    return f"({ring_seq},{ring_rep}):{seq}.{last}"
