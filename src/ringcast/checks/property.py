"""Property: what one check looks like.

A property names the events it cares for by defining ``on_<event>`` methods; the suite calls them
after the shared history has taken the event in. It says ``violate`` at the first event at which
the violation is certain, and is not called again afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import ClassVar

from ringcast.checks.history import History
from ringcast.checks.ring import CheckedRing
from ringcast.checks.verdict import Verdict, Violation
from ringcast.core.ids import NodeId


class Reads(IntEnum):
    """What a property must know of frames that every member of a ring delivered alike.

    Each kind includes those before it. It decides what is read of a large trace, and whether a
    stretch may stand for those frames.
    """

    NOTHING = 0
    """It is about configurations."""
    ORDER = 1
    """Which places were delivered, in which order."""
    ORIGINS = 2
    """By whom, when, in which configuration and with which contents, and how originated."""
    SUBMISSIONS = 3
    """And how submitted."""
    PASTS = 4
    """And what their senders had delivered when they submitted them."""
    EVERY_EVENT = 5
    """Nobody has shown that a stretch will do."""


class Property:
    """A property of traces; subclasses are found by their ``tag``."""

    tag: ClassVar[str]
    """The dossier's tag, or one word for a property of every protocol."""
    title: ClassVar[str]
    """Names it for people, in a few words."""
    about_deliveries: ClassVar[bool] = True
    """Without a single delivery (else: configuration) the answer is unknown."""
    needs_storage: ClassVar[bool] = False
    """Lost stable storage leaves it unknown, unless it is broken by what rests on the storage of
    others alone; otherwise only a ring id taken again while the first ring of that name is still in
    use does."""
    reads: ClassVar[Reads] = Reads.EVERY_EVENT
    origin_first: ClassVar[bool] = False
    """It makes a difference whether a frame was originated before others delivered it."""
    notes: ClassVar[tuple[str, ...]] = ()
    """Which notes it looks at, by ``what``."""
    needs_notes: ClassVar[bool] = False
    """Without a single one of them the answer is unknown."""

    in_part: ClassVar[bool] = False
    """It is broken by what is told, whatever a log that is missing or cut could add."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.violation: Violation | None = None
        self.undecided = False
        """An obligation was open when the trace ended, or evidence is missing."""

    def violate(
        self,
        explanation: str,
        nodes: tuple[NodeId, ...],
        messages: tuple[object, ...],
        t_us: int,
        rests_on: tuple[NodeId, ...] = (),
    ) -> None:
        """Report; only the first one counts, and none once the property is void.

        One that rests on the stable storage of some alone, who have it, counts nevertheless."""
        sure = bool(rests_on) and self.history.lost.isdisjoint(rests_on)
        if self.violation is None and (sure or not self.voided):
            names = tuple(str(message) for message in messages)
            self.violation = Violation(self.tag, explanation, nodes, names, t_us)
            self.history.broken = True

    def owed(
        self,
        settled: bool,
        explanation: str,
        nodes: tuple[NodeId, ...],
        messages: tuple[object, ...],
        t_us: int,
    ) -> None:
        """Report an obligation open at the end: a violation only for settled processors."""
        if settled:
            self.violate(explanation, nodes, messages, t_us)
        else:
            self.undecided = True

    @property
    def voided(self) -> bool:
        """Whether the trace can no longer break the property."""
        history = self.history
        return bool(history.lost) if self.needs_storage else history.ids_reused

    @property
    def verdict(self) -> Verdict:
        """The answer after the end of the trace."""
        if self.violation is not None:
            return Verdict.INVALID
        history = self.history
        seen = history.deliveries if self.about_deliveries else history.configurations
        silent = self.needs_notes and history.noted.isdisjoint(self.notes)
        if self.undecided or self.voided or silent or not seen:
            return Verdict.UNKNOWN
        return Verdict.VALID

    def ring_over(self, ring: CheckedRing) -> None:
        """``ring`` has ended and is about to be forgotten."""

    def ring_trimmed(self, ring: CheckedRing) -> None:
        """Frames of ``ring`` up to index ``ring.trimmed`` are forgotten."""


def rings(history: History) -> Iterator[CheckedRing]:
    """The rings that are not over, in order of their ids."""
    for view in sorted(history.rings):
        yield history.rings[view]
