"""Mutants of iRBP: what the source says of its two kinds of view, read literally."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from mutant import mutant
from pytest import MonkeyPatch

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.protocols.irbp import proposals
from ringcast.protocols.irbp.messages import Kind, Successor
from ringcast.protocols.irbp.views import Views
from ringcast.protocols.rbp import install
from ringcast.protocols.rbp.epochs import EpochConfig, Extent
from ringcast.protocols.rbp.state import Processor

LOST = ("uniform-in-view", "one-log", "total-order", "D9", "content", "no-crash", "progress")
"""What comes of an entry that was delivered and is lost."""


@mutant("irbp I5 G31", *LOST)
def a_contribution_binds_nobody(patch: MonkeyPatch) -> None:
    """The source, literally: nothing stops the ring between contribution and decision."""

    def freeze(p: Processor, env: Env) -> Extent:
        return p.extent()

    patch.setattr(install, "freeze", freeze)


@mutant("irbp I6 G35", *LOST)
def figure_34_as_printed(patch: MonkeyPatch) -> None:
    """The source, literally: no state is exchanged for a ring; it begins with its first member."""

    def first(config: EpochConfig, given: Any) -> NodeId:
        return next(node for node in config.members if node in given)

    def next_iview(*arguments: Any) -> Successor:
        with MonkeyPatch.context() as ranking:
            ranking.setattr(proposals, "best", first)
            return whole(*arguments)

    whole = proposals.next_iview
    patch.setattr(proposals, "next_iview", next_iview)


@mutant("irbp I9 G37", *LOST)
def a_majority_of_the_ring_decides(patch: MonkeyPatch) -> None:
    """The source, literally: the ring alone chooses the next one, and all members the next view."""
    scope: Any = Views.scope
    awaited, value = Views.awaited, Views.value

    def regular(views: Views) -> bool:
        return Kind.REGULAR in views.asked

    def participants(views: Views, config: EpochConfig) -> tuple[NodeId, ...]:
        return config.members if regular(views) else config.core

    def two_scopes(views: Views) -> str:
        return f"{scope.fget(views)}{' view' if regular(views) else ''}"

    def least(views: Views, config: EpochConfig) -> int:
        return len(participants(views, config)) // 2 + 1

    def all_awaited(views: Views, kind: Kind) -> list[NodeId]:
        if kind is Kind.IVIEW and regular(views) and views.decided is not None:
            return [views.p.me, *views.decided.members]
        if kind is Kind.IVIEW and views.decided is not None:
            return [node for node in awaited(views, kind) if node in views.decided.core]
        return awaited(views, kind)

    def small(views: Views, config: EpochConfig, kind: Kind, given: Any) -> Successor | None:
        if kind is Kind.REGULAR:
            return value(views, config, kind, given)
        seats = tuple(seat for seat in config.seats if seat.node in config.core)
        ring = {node: each for node, each in given.items() if node in config.core}
        found = value(views, replace(config, seats=seats), kind, ring)
        assert found is not None
        return replace(found, config=replace(found.config, seats=config.seats))

    patch.setattr(Views, "scope", property(two_scopes))
    patch.setattr(Views, "participants", participants)
    patch.setattr(Views, "least", least)
    patch.setattr(Views, "awaited", all_awaited)
    patch.setattr(Views, "value", small)
