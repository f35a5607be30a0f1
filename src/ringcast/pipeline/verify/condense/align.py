"""What two sequences have in common: which places of one stand where in the other.

Members of a ring deliver the same places in the same order but for a few, so the next difference
is looked for by comparing arrays, and behind it the nearest point where both go on alike.
"""

from __future__ import annotations

import numpy as np

from ringcast.pipeline.verify.condense.columns import Ints

FIRST_LOOK = 256
"""Elements compared at first; then twice as many each time."""

REACHES = (64, 4096, 1 << 18)
"""How far behind a difference both may go on alike; tried in turn."""

SURE = 8
"""So many equal elements in a row, or all that are left, are no coincidence."""

CANDIDATES = 64
DIFFERENCES = 10_000
"""After so many nothing more is compared."""


def align(one: Ints, other: Ints) -> Ints:
    """For each element of ``one`` its index in ``other``, ascending, or -1 where it has none."""
    found = np.full(len(one), -1, np.int64)
    i = j = 0
    for _ in range(DIFFERENCES):
        alike = _common(one[i:], other[j:])
        found[i : i + alike] = np.arange(j, j + alike)
        i, j = i + alike, j + alike
        step = _next(one[i:], other[j:])
        if step is None:
            break
        i, j = i + step[0], j + step[1]
    return found


def _common(one: Ints, other: Ints) -> int:
    """How many elements are alike from the start."""
    limit = min(len(one), len(other))
    done, look = 0, FIRST_LOOK
    while done < limit:
        end = min(done + look, limit)
        differs = one[done:end] != other[done:end]
        at = int(np.argmax(differs))
        if differs[at]:
            return done + at
        done, look = end, 2 * look
    return limit


def _next(one: Ints, other: Ints) -> tuple[int, int] | None:
    """The steps to the nearest place where both go on alike."""
    for reach in REACHES:
        _, mine, its = np.intersect1d(one[:reach], other[:reach], return_indices=True)
        for at in np.argsort(mine + its, kind="stable")[:CANDIDATES].tolist():
            i, j = int(mine[at]), int(its[at])
            sure = min(SURE, len(one) - i, len(other) - j)
            if np.array_equal(one[i : i + sure], other[j : j + sure]):
                return i, j
        if reach >= max(len(one), len(other)):
            break
    return None
