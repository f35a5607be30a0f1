"""Places as people write them: ``(8,1):23.0`` is ring (8,1), number 23, index 0."""

from __future__ import annotations

import re

from ringcast.journal.format.layout import LAST_INDEX, WORDS, Place

SPELLED = re.compile(r"\(?(\d{1,18}),(\d{1,18})\)?:(\d{1,18})(?:\.(\d{1,10}|end|gap))?")

EXAMPLE = "(8,1):23.0"
"""For errors."""


def parse(text: str) -> Place | None:
    """The place, as ``str`` spells it or without the brackets or the index; None if it is none."""
    found = SPELLED.fullmatch(text.strip())
    if not found:
        return None
    ring_seq, ring_rep, seq, last = found.groups(default="0")
    index = WORDS[last] if last in WORDS else int(last)
    if index > LAST_INDEX:
        return None
    return Place(int(ring_seq), int(ring_rep), int(seq), index)
