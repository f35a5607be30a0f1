"""What a machine asks the world to do: data, in one ordered list per input.

The world carries the list out in order after the handler returns; nothing re-enters a machine.
``Persist`` is durable before any later effect is carried out. Deliveries and views share the
list, so neither can overtake the other.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from ringcast.core.ids import Level, NodeId, Position, ViewId
from ringcast.core.inputs import Message, Timer


class Send(msgspec.Struct, frozen=True, gc=False):
    """Unicast ``message`` to one processor of the broadcast domain at ``port``."""

    to: NodeId
    message: Message
    port: int = 0


class Broadcast(msgspec.Struct, frozen=True, gc=False):
    """Send ``message`` to every other processor of the broadcast domain, members or not."""

    message: Message
    port: int = 0


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """Let ``timer`` fire after ``delay_us``; setting it again replaces the earlier deadline."""

    timer: Timer
    delay_us: int


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    """A cancelled timer never fires. Cancelling one that is not set is fine."""

    timer: Timer


class Persist(msgspec.Struct, frozen=True, gc=False):
    """Write to stable storage; later effects of the list wait until it is durable."""

    key: str
    value: int


class PackedMessages(msgspec.Struct, frozen=True, gc=False):
    """Messages of one sender that take one place in the order together (one frame).

    Message ``i`` has the id ``(ring, seq, i)`` and is number ``first + i`` of all messages the
    sender's incarnation submitted.
    """

    ring: ViewId
    seq: int
    sender: NodeId
    level: Level
    first: int
    bodies: tuple[bytes, ...]
    timestamp: int = 0
    """Where rings are joined by gateways, and ``seq`` orders nothing: the place in that order."""
    to: tuple[NodeId, ...] = ()
    """The only processors that deliver them; empty: all members do."""
    group: int = 0
    """The group they are for, where only its members deliver them (``Submitted.group``)."""

    @property
    def position(self) -> Position:
        """The place of its first message."""
        if self.timestamp:
            return Position.stamped(self.timestamp, self.ring)
        return Position.at(self.ring, self.seq)


class Originate(msgspec.Struct, frozen=True, gc=False):
    """These messages have just got their place in the order from us. The world records it.

    They are ours, or another's where one processor numbers the messages of all.
    """

    batch: PackedMessages


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Hand ``batch`` to the application, in configuration ``view``."""

    view: ViewId
    batch: PackedMessages


class Reason(StrEnum):
    """Why a member is not in a view any more, as far as its protocol knows."""

    LEFT = "left"
    SILENT = "silent"
    FAILED_TO_RECEIVE = "failed to receive"
    BAD_LINK = "bad link"
    EXCLUDED = "excluded by another"
    MOVED = "in another view"
    UNKNOWN = "unknown"


class Departure(msgspec.Struct, frozen=True, gc=False):
    """A member that went, why, and what it was judged by, for people."""

    member: NodeId
    reason: Reason
    judged_by: str = ""

    def __str__(self) -> str:
        return f"{self.member} {self.reason}" + (f" ({self.judged_by})" if self.judged_by else "")


class InstallView(msgspec.Struct, frozen=True, gc=False):
    """Tell the application that the configuration is now ``view``.

    What a protocol owes (ARCHITECTURE.md has the reasons):

    - ``view`` names one configuration for ever, and is larger than those installed here before.
    - A transitional view is optional. Where it exists it stands between two regular ones, its
      members are those that go on together from the first, and its ``rep`` is one of them.
    - A member that restarted may be another member to the protocol. Then it departs, though its
      id is in the next view too.
    - ``departures`` has each member of the regular view before that does not go on, and what it
      was judged by: in the transitional view if there is one, else in the regular one.
    - ``sets`` names further sets of members, such as a core.
    - Without transitional views, ``narrows`` says that members only went: those who stay have
      delivered the same in the view before, and what was sent in that one still counts.

    ``ring``, ``seq`` and ``view`` or ``conf_id`` place the change in the total order:
    a regular view is ``(view, 0, conf_id = the transitional one before it)``, a transitional one
    ``(ring = the regular view before it, seq = last number delivered there, view)``.
    """

    view: ViewId
    members: tuple[NodeId, ...]
    transitional: bool
    ring: ViewId
    seq: int
    conf_id: ViewId | None
    departures: tuple[Departure, ...] = ()
    sets: tuple[tuple[str, tuple[NodeId, ...]], ...] = ()
    at: Position | None = None
    """Its place, where that does not follow from the rest."""
    narrows: bool = False

    @property
    def position(self) -> Position:
        """Where it stands in the order, the same at all members."""
        if self.at is not None:
            return self.at
        if self.transitional:
            return Position.at(self.ring, self.seq).end(self.view.rep)
        return Position.at(self.view, 0)


class Uncertain(msgspec.Struct, frozen=True, gc=False):
    """Our messages ``first .. first + count - 1`` will not be sent again, and whether anybody
    delivers or has delivered them cannot be known here. The application is told."""

    first: int
    count: int


class Stop(msgspec.Struct, frozen=True, gc=False):
    """Program-controlled crash: this processor must not go on, and says why."""

    reason: str


class Note(msgspec.Struct, frozen=True, gc=False):
    """Something worth a line in the trace: a phase change, a frame dropped, a vote cast.

    ``rule`` is the dossier's number after the protocol's name. ``text`` is for
    people; what a check reads is in ``view``, ``members`` and ``data``, numbers whose meaning is
    the note's own.
    """

    rule: str
    what: str
    text: str = ""
    view: ViewId | None = None
    members: tuple[NodeId, ...] = ()
    data: tuple[int, ...] = ()


class Up(msgspec.Struct, frozen=True, gc=False):
    """A word to the machine that owns this one; the world never sees it (``core.owned``)."""

    what: Message


Effect: TypeAlias = (
    Send
    | Broadcast
    | SetTimer
    | CancelTimer
    | Persist
    | Originate
    | Deliver
    | InstallView
    | Uncertain
    | Stop
    | Note
    | Up
)
