"""Measures: the numbers that a study can ask of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from ringcast.sim.meter import Latency, Measures
from ringcast.sim.run import RunResult


class Measure(msgspec.Struct, frozen=True):
    """One number of a run, a column of the results."""

    text: str
    read: Callable[[RunResult], float | int | None]
    """None if the run gave nothing to measure."""
    whole: bool = False
    """Whether it is an integer."""
    timed: bool = False
    """Whether only a run with ``measure_from_us`` has it."""


def _counted(text: str, read: Callable[[RunResult], int]) -> Measure:
    return Measure(text, read, whole=True)


def _timed(text: str, read: Callable[[Measures], float | None]) -> Measure:
    return Measure(text, lambda result: read(result.measures), timed=True)


def _some(found: Latency, time_ms: float) -> float | None:
    return time_ms if found.messages else None


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "messages_per_s": _timed("Messages ordered in a second.", lambda m: m.messages_per_s),
        "agreed_ms": _timed(
            "From submission to agreed delivery, averaged over messages and receivers.",
            lambda m: _some(m.agreed, m.agreed.mean_ms),
        ),
        "safe_ms": _timed(
            "From submission to safe delivery.", lambda m: _some(m.safe, m.safe.mean_ms)
        ),
        "rotation_ms": _timed(
            "Mean rotation time of the token, if the protocol has one.",
            lambda m: m.rotation_ms if m.rotations else None,
        ),
        "bytes_per_s": _timed("Contents of messages ordered in a second.", lambda m: m.bytes_per_s),
        "agreed_last_ms": _timed(
            "From submission to agreed delivery at the last receiver of a message.",
            lambda m: _some(m.agreed, m.agreed.last_ms),
        ),
        "safe_last_ms": _timed(
            "From submission to safe delivery at the last receiver of a message.",
            lambda m: _some(m.safe, m.safe.last_ms),
        ),
        "agreed_first_ms": _timed(
            "From submission to agreed delivery at the first receiver of a message.",
            lambda m: _some(m.agreed, m.agreed.first_ms),
        ),
        "safe_first_ms": _timed(
            "From submission to safe delivery at the first receiver of a message.",
            lambda m: _some(m.safe, m.safe.first_ms),
        ),
        "simulated_s": Measure("How long the run was.", lambda r: r.simulated_us / 1e6),
        "events": _counted("Events of its trace.", lambda r: r.events),
        "submitted": _counted("Messages taken from the application.", lambda r: r.submitted),
        "deliveries": _counted("Messages delivered, once a receiver.", lambda r: r.deliveries),
        "views": _counted("Configurations announced, once a processor.", lambda r: r.views),
        "frames": _counted("Frames sent.", lambda r: r.frames),
        "handled": _counted("Frames handed to machines.", lambda r: r.handled),
        "lost": _counted("Frames lost, once a receiver.", lambda r: sum(r.lost.values())),
        "struck": _counted("Faults that took effect.", lambda r: sum(r.faults.values())),
        "violations": _counted("Violations found.", lambda r: len(r.violations)),
        "valid": _counted("Properties that held.", lambda r: _verdicts(r, "valid")),
        "unknown": _counted("Properties not to be judged.", lambda r: _verdicts(r, "unknown")),
    }
)
"""By name, in the order of the columns. Times and rates are null without such messages."""


def _verdicts(result: RunResult, verdict: str) -> int:
    return list(result.verdicts.values()).count(verdict)
