"""iRBP, broken in one place each, and the scenarios that must notice.

What the source says, read literally, is in ``tests/mutants/literal_irbp.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from pytest import MonkeyPatch

from ringcast.blocks.detector import Limit
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.protocols.irbp import proposals
from ringcast.protocols.irbp.following import Following
from ringcast.protocols.irbp.membership import ViewMembership
from ringcast.protocols.irbp.messages import Successor
from ringcast.protocols.irbp.views import Views
from ringcast.protocols.rbp import install
from ringcast.protocols.rbp.epochs import EpochConfig
from ringcast.protocols.rbp.state import Processor

Patch = Callable[[MonkeyPatch], None]

BROKEN: dict[str, tuple[Patch, str]] = {}
"""By name: the patch, and the scenario."""


def shown_by(scenario: str) -> Callable[[Patch], Patch]:
    """Put a patch into the list; its docstring says what goes wrong."""

    def enter(patch: Patch) -> Patch:
        BROKEN[patch.__name__] = (patch, scenario)
        return patch

    return enter


@shown_by("t42_partition_longer_than_the_limit")
def installs_without_the_rest(patch: MonkeyPatch) -> None:
    """A member that is excluded goes at once, with a part of its view undelivered."""
    whole = Following.follow

    def follow(self: Following, env: Env, config: EpochConfig) -> None:
        if config.lives.get(self.p.me) != self.p.life and not self.views.membership.leaving:
            self.views.leave(env, "at once")
        else:
            whole(self, env, config)

    patch.setattr(Following, "follow", follow)


@shown_by("t31_a_crash")
def the_view_begins_with_a_part_of_the_log(patch: MonkeyPatch) -> None:
    """A view begins after what the first contributor has delivered."""
    whole = proposals.next_view

    def next_view(config: EpochConfig, given: Any, *rest: Any) -> Successor | None:
        value = whole(config, given, *rest)
        if value is None:
            return None
        start = min(each.extent.delivered for each in given.values())
        kept = tuple(entry for entry in value.entries if entry.number <= start)
        following_ = replace(value.config, start=start, decided=start)
        return Successor(following_, kept, value.bodies)

    patch.setattr(proposals, "next_view", next_view)


@shown_by("t36_join_and_leave")
def a_joiner_begins_with_nothing(patch: MonkeyPatch) -> None:
    """A new member takes part from number 0 on, not from the start of its first view."""
    whole = install.begin_at

    def begin_at(p: Processor, config: EpochConfig) -> None:
        whole(p, replace(config, start=0))

    patch.setattr(install, "begin_at", begin_at)


@shown_by("t33_isolated_and_back")
def nobody_hears_of_a_later_epoch(patch: MonkeyPatch) -> None:
    """Neither tells one that is behind, nor asks one that is ahead."""
    patch.setattr(Following, "other_epoch", lambda self, env, src, epoch: None)
    patch.setattr(Following, "tell", lambda self, env, src: None)


@shown_by("t36_join_and_leave")
def nobody_takes_anyone_in(patch: MonkeyPatch) -> None:
    """Joiners are not heard."""
    patch.setattr(ViewMembership, "joiners", {})


@shown_by("t31_a_crash")
def waits_for_the_silent(patch: MonkeyPatch) -> None:
    """A change waits for the contributions of all, suspected or not."""
    patch.setattr(Views, "doubted", lambda views, limit: set())


@shown_by("t31_a_crash")
def one_limit_for_both(patch: MonkeyPatch) -> None:
    """I2: a short silence costs a member its place."""
    whole = Views.doubted

    def doubted(self: Views, limit: Limit) -> set[NodeId]:
        return whole(self, Limit.AGGRESSIVE)

    patch.setattr(Views, "doubted", doubted)


@shown_by("t33_isolated_and_back")
def nobody_is_ready(patch: MonkeyPatch) -> None:
    """I23: an external member stays one."""
    patch.setattr(ViewMembership, "settled", lambda self, env: None)


@shown_by("t35_a_gap")
def one_gone_is_enough_to_go_on(patch: MonkeyPatch) -> None:
    """I21, I22: a member that cannot catch up goes on trying for ever."""
    patch.setattr(ViewMembership, "gap", lambda self, env, member: None)
