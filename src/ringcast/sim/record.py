"""What a simulation leaves behind: trace events for observers, counters, and defects found.

No history is kept here, so a simulated hour needs no more memory than a simulated second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias

from ringcast.checks import Violation
from ringcast.core.trace import TraceEvent

Observer: TypeAlias = Callable[[TraceEvent], None]
"""Called with every trace event, in the order in which things were caused."""


class Counts:
    """Running totals of one simulation."""

    __slots__ = ("deliveries", "events", "faults", "handled", "lost", "sent", "submitted", "views")

    def __init__(self) -> None:
        self.sent = 0
        """Frames put on the wire, a broadcast counting once."""
        self.handled = 0
        """Frames handed to a machine, once for each receiver."""
        self.lost: Counter[str] = Counter()
        """Frames that did not reach a receiver, by reason."""
        self.events = 0
        """Trace events shown to observers."""
        self.submitted = 0
        """Messages accepted from the application."""
        self.deliveries = 0
        """Messages handed to applications, once for each receiver."""
        self.views = 0
        """Configurations announced to applications."""
        self.faults: Counter[str] = Counter()
        """Faults that took effect, by kind. Those that the model of a link has count once for each
        frame that they hit: black hole, duplicate, reorder."""


class Recorder:
    """Hands trace events to the observers and keeps the counts."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self.observers = list(observers)
        self.counts = Counts()
        self.violations: list[Violation] = []
        """Machines that raised or met their own broken invariants (property ``no-crash``)."""

    def emit(self, event: TraceEvent) -> None:
        """Show ``event`` to every observer."""
        self.counts.events += 1
        for observe in self.observers:
            observe(event)
