"""What the queries of one property look like."""

from __future__ import annotations

import msgspec


class Check(msgspec.Struct, frozen=True):
    """A property as queries; each is over the run, and all that it finds counts."""

    broken: tuple[str, ...] = ()
    """Violations: run, moment, nodes, messages."""
    sure: tuple[str, ...] = ()
    """Those among them that count though somebody has lost its stable storage."""
    owed: tuple[str, ...] = ()
    """What was not done by the end: run, settled (whom that must be promised of), nodes,
    messages. It is a violation if the trace promises it, else the answer is unknown."""
    open: tuple[str, ...] = ()
    """Runs in which evidence is missing."""
    beyond: tuple[str, ...] = ()
    """Runs in which these queries cannot tell."""
    notes: tuple[str, ...] = ()
    """If given, a trace without any of these notes has nothing to find, and is not asked."""
