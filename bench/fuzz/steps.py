"""What rounds come to: the longest of millions of steps, by the processor's time, and sums."""

from __future__ import annotations

import time
from typing import Any

NOTABLE_NS = 200_000


class Steps:
    """Reading the processor's time costs as much as a step. So a step is timed by the clock on the
    wall, and the processor's time is read before each block of steps: what seems long because
    the computer did something else took no longer than its block so far."""

    def __init__(self) -> None:
        self.longest_ns = 0
        self.slowest = ""
        self._block = 0

    def begin_block(self) -> None:
        """Some steps follow."""
        self._block = time.thread_time_ns()

    def note(self, begun_ns: int, what: object) -> None:
        """A step ended that began at this time of ``perf_counter_ns``."""
        took = time.perf_counter_ns() - begun_ns
        if took > self.longest_ns:
            if took > NOTABLE_NS:
                took = min(took, time.thread_time_ns() - self._block)
            if took > self.longest_ns:
                self.longest_ns, self.slowest = took, str(what)[:300]


def together(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two results as one: counts are added, extremes kept."""
    if not one:
        return other
    found = {name: one[name] + other[name] for name in ("done", "refused", "stops")}
    slower = max(one, other, key=lambda each: int(each["longest_us"]))
    found |= {name: slower[name] for name in ("longest_us", "slowest")}
    return found | {name: max(one[name], other[name]) for name in ("objects", "bytes")}
