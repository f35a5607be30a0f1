"""What members of a group say to each other about views, and to the machine that owns them.

A view is a numbered, ordered list of incarnations. Its first member made it and is its
coordinator; survivors keep their order and newcomers come after them (G-7).
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from ringcast.core.effects import Departure
from ringcast.core.ids import NodeId, Seq, ViewId

MAX_MEMBERS = 100
"""Largest view."""

STEP = 4
"""View numbers rise by this: the number two below is the transitional configuration's (M4)."""

LAST = 2**62
"""Largest view number accepted from others: it leaves room for those that follow it."""

Ids = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_MEMBERS)]
Boots = Annotated[tuple[Seq, ...], msgspec.Meta(max_length=MAX_MEMBERS)]
ViewIds = Annotated[tuple[ViewId, ...], msgspec.Meta(max_length=MAX_MEMBERS)]


class RankedView(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A numbered list of members in order of rank, each with its incarnation."""

    id: ViewId
    members: Ids
    boots: Boots

    @property
    def malformed(self) -> bool:
        """Whether no correct processor can have made it."""
        members = self.members
        return (
            not members
            or members[0] != self.id.rep
            or len(set(members)) != len(members)
            or len(self.boots) != len(members)
            or not 0 < self.id.seq <= LAST
        )


class Propose(msgspec.Struct, frozen=True, array_like=True, tag=23, gc=False):
    """The first member of ``view`` wants it installed; ``bases`` is where each comes from."""

    view: RankedView
    bases: ViewIds

    @property
    def malformed(self) -> bool:
        """Whether no correct processor can have made it."""
        return (
            self.view.malformed
            or len(self.bases) != len(self.view.members)
            or any(base >= self.view.id for base in self.bases)
        )

    def coming_from(self, base: ViewId) -> tuple[NodeId, ...]:
        """The members that come from ``base``, in order of rank."""
        pairs = zip(self.view.members, self.bases, strict=True)
        return tuple([member for member, its in pairs if its == base])


class Agree(msgspec.Struct, frozen=True, array_like=True, tag=24, gc=False):
    """The sender is ready for the view proposed."""

    id: ViewId


class Refuse(msgspec.Struct, frozen=True, array_like=True, tag=25, gc=False):
    """The sender will not come along: it is in ``view``, and promised itself to ``promised``."""

    id: ViewId
    view: ViewId
    promised: ViewId


class Install(msgspec.Struct, frozen=True, array_like=True, tag=26, gc=False):
    """All are ready: the view proposed is the view from now on."""

    id: ViewId


class Complain(msgspec.Struct, frozen=True, array_like=True, tag=27, gc=False):
    """In view or proposal ``id``, the sender misses ``members``; none: it waits for a view."""

    id: ViewId
    members: Ids


class Settled(msgspec.Struct, frozen=True, array_like=True, tag=28, gc=False):
    """What the sender carried into the view is done with: others may be taken in."""

    id: ViewId


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag=29, gc=False):
    """The proposal is given up; who waits for it must look for another."""

    id: ViewId


class Announce(msgspec.Struct, frozen=True, array_like=True, tag=30, gc=False):
    """A settled view exists, so that views find each other. Broadcast."""

    view: RankedView


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=31, gc=False):
    """The sender leaves for good. Broadcast."""

    id: ViewId


Word: TypeAlias = Propose | Agree | Refuse | Install | Complain | Settled | Cancel
"""What travels in packets of the channel."""


class Proposed(msgspec.Struct, frozen=True, gc=False):
    """To the owner: a view is proposed; say ``agree`` when ready. A later one takes its place."""

    proposal: Propose


class Installed(msgspec.Struct, frozen=True, gc=False):
    """To the owner: this is the view now; ``together`` came along from the same view as I."""

    view: RankedView
    together: tuple[NodeId, ...]
    departures: tuple[Departure, ...] = ()
    """Why the others of that view did not."""
