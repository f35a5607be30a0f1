"""A second, independent checker of traces: SQL that Spark evaluates, no Python near the rows."""

from ringcast.pipeline.verify.crosscheck.compare import (
    NOT_EXPRESSIBLE,
    CrossResult,
    Culprit,
    cross_check,
    disagreements,
    judge,
)

__all__ = ["NOT_EXPRESSIBLE", "CrossResult", "Culprit", "cross_check", "disagreements", "judge"]
