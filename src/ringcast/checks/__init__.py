"""Checks: properties of a trace, one per file, incremental, each with an explanation.

``suite(claims)`` gives the checks for the properties a protocol claims; feed it every event.
"""

from ringcast.checks.stretch import Share, Stretch
from ringcast.checks.suite import PROPERTIES, Suite, in_order, suite
from ringcast.checks.verdict import Verdict, Violation

__all__ = ["PROPERTIES", "Share", "Stretch", "Suite", "Verdict", "Violation", "in_order", "suite"]
