"""Suite: the checks of one run, fed event by event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ringcast.checks.accounted import Accounted
from ringcast.checks.agreed import Agreed
from ringcast.checks.agreement import Agreement
from ringcast.checks.announce import Announce
from ringcast.checks.causal import Causal
from ringcast.checks.causal_in_ring import CausalInRing
from ringcast.checks.consensus import RingConsensus
from ringcast.checks.content import Content
from ringcast.checks.everyone import Everyone
from ringcast.checks.evs_graph import EvsGraph
from ringcast.checks.evs_order import EvsOrder
from ringcast.checks.fifo import Fifo
from ringcast.checks.gap_rule import GapRule
from ringcast.checks.history import History
from ringcast.checks.integrity import Integrity
from ringcast.checks.lamport import Lamport
from ringcast.checks.multicast import Multicast
from ringcast.checks.once import Once
from ringcast.checks.one_at_a_time import OneAtATime
from ringcast.checks.origin import Origin
from ringcast.checks.own_origin import OwnOrigin
from ringcast.checks.place import Place
from ringcast.checks.property import Property
from ringcast.checks.safe_regular import SafeRegular
from ringcast.checks.safe_transitional import SafeTransitional
from ringcast.checks.same_change import SameChange
from ringcast.checks.same_set import SameSet
from ringcast.checks.same_start import SameStart
from ringcast.checks.self_delivery import SelfDelivery
from ringcast.checks.stretch import Stretch
from ringcast.checks.termination import Termination
from ringcast.checks.total_order import TotalOrder
from ringcast.checks.transitional_number import TransitionalNumber
from ringcast.checks.transitional_shape import TransitionalShape
from ringcast.checks.uniform_agreement import UniformAgreement
from ringcast.checks.unique_id import UniqueId
from ringcast.checks.validity import Validity
from ringcast.checks.verdict import Verdict, Violation
from ringcast.core.registry import look_further, protocols
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Faulted,
    Installed,
    Noted,
    Originated,
    ReportedUncertain,
    Restarted,
    Submit,
    TraceEvent,
)

COMMON: dict[str, type[Property]] = {
    kind.tag: kind
    for kind in (
        Announce,
        UniqueId,
        OneAtATime,
        TransitionalShape,
        TransitionalNumber,
        Termination,
        SameStart,
        SameChange,
        RingConsensus,
        Origin,
        OwnOrigin,
        Once,
        SelfDelivery,
        Everyone,
        Place,
        SameSet,
        CausalInRing,
        Lamport,
        Agreed,
        SafeRegular,
        SafeTransitional,
        EvsOrder,
        EvsGraph,
        GapRule,
        Validity,
        Accounted,
        Agreement,
        UniformAgreement,
        Integrity,
        Content,
        TotalOrder,
        Fifo,
        Causal,
        Multicast,
    )
}
"""Properties that any protocol may claim, by tag."""


class Properties(Mapping[str, type[Property]]):
    """The common ones, then those that a protocol brings along (``Sheet.checks``); a tag that is
    not among them is looked for in other packages."""

    def __getitem__(self, tag: str) -> type[Property]:
        if tag in COMMON:
            return COMMON[tag]
        if tag not in self._own():
            look_further()
        return self._own()[tag]

    def __iter__(self) -> Iterator[str]:
        yield from COMMON
        yield from self._own()

    def __len__(self) -> int:
        return len(COMMON) + len(self._own())

    @staticmethod
    def _own() -> dict[str, type[Property]]:
        return {kind.tag: kind for sheet in protocols() for kind in sheet.checks}


PROPERTIES = Properties()
"""Every property there is, by tag."""

METHODS = {
    Submit: "on_submit",
    Originated: "on_originated",
    Delivered: "on_delivered",
    Installed: "on_installed",
    ReportedUncertain: "on_uncertain",
    Crashed: "on_crashed",
    Restarted: "on_restarted",
    Noted: "on_noted",
    Faulted: "on_faulted",
    Ended: "on_ended",
    Stretch: "on_stretch",
}

Handlers = dict[type, list[Callable[[Any], None]]]


class Suite:
    """Feeds one trace to several properties. It never raises on what a trace contains."""

    def __init__(self, properties: Iterable[type[Property]], bound_us: int | None = None) -> None:
        self.history = History(bound_us)
        self.properties = [kind(self.history) for kind in properties]
        self.violations: list[Violation] = []
        self.ended = False
        self._handlers: Handlers = {}
        self._arrange()

    def _arrange(self) -> None:
        """Call only what a property defines, and no property that is already broken."""
        active = [prop for prop in self.properties if prop.violation is None]
        self._active = active
        self._handlers = {
            kind: [getattr(prop, method) for prop in active if hasattr(prop, method)]
            for kind, method in METHODS.items()
        }

    def feed_stretch(self, stretch: Stretch) -> None:
        """Take many events at once, of which only the heads could break anything."""
        for event in stretch.heads:
            self.feed(event)
        if stretch.frames:
            self.feed(stretch)

    def feed(self, event: TraceEvent | Stretch) -> None:
        """Take the next event; what it breaks is added to ``violations``."""
        history = self.history
        if type(event) is Restarted and history.known(event.node).current is not None:
            self.feed(Crashed(event.node, event.n, event.t_us, "not told"))  # it was killed
        history.update(event)
        for handle in self._handlers[type(event)]:
            handle(event)
        if history.over or history.trimmed is not None:
            self._tidy()
        if history.broken:
            self._collect()
        if type(event) is Ended:
            self.ended = True

    def _tidy(self) -> None:
        history = self.history
        for ring in history.over:
            for prop in self._active:
                prop.ring_over(ring)
        history.over.clear()
        if history.trimmed is not None:
            for prop in self._active:
                prop.ring_trimmed(history.trimmed)
            history.trimmed = None

    def _collect(self) -> None:
        self.violations += [p.violation for p in self._active if p.violation is not None]
        self.history.broken = False
        self._arrange()

    def verdicts(self) -> dict[str, Verdict]:
        """The answers, by tag; a trace without its end leaves what is not broken unknown."""
        return {
            prop.tag: prop.verdict if self.ended or prop.violation is not None else Verdict.UNKNOWN
            for prop in self.properties
        }


def in_order(tags: Iterable[str]) -> list[str]:
    """Tags in the order of ``PROPERTIES``; KeyError if one is not there."""
    wanted = {tag for tag in tags if PROPERTIES[tag]}
    return [tag for tag in PROPERTIES if tag in wanted]


def suite(claims: Iterable[str], bound_us: int | None = None) -> Suite:
    """The checks for these claims. A claim is a tag, or a tag with words after it.

    With ``bound_us`` M5 also asks that a ring that has ceased is left within that time.
    """
    tags = dict.fromkeys(claim.split(maxsplit=1)[0] if claim.strip() else "" for claim in claims)
    unknown = [tag for tag in tags if tag not in PROPERTIES]
    if unknown:
        known = ", ".join(f"{kind.tag} ({kind.title})" for kind in PROPERTIES.values())
        raise LookupError(f"no check called {', '.join(map(repr, unknown))}; known: {known}")
    return Suite((PROPERTIES[tag] for tag in tags), bound_us)
