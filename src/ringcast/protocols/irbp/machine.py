"""The machine of iRBP: RBP's log and ring, with views chosen by consensus."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, ClassVar

from ringcast.blocks import channel, detector
from ringcast.blocks.channel import Packet
from ringcast.blocks.detector import Heartbeat
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received, Started
from ringcast.core.machine import Cell, Handler, Key, Table
from ringcast.protocols.irbp.config import Config
from ringcast.protocols.irbp.following import Following
from ringcast.protocols.irbp.membership import FIRST, HIGHEST, ViewMembership
from ringcast.protocols.irbp.messages import (
    CHOOSING,
    Catch,
    Caught,
    Join,
    Leave,
    Ready,
    Stranger,
    ViewTimer,
    malformed,
)
from ringcast.protocols.irbp.views import Views
from ringcast.protocols.rbp.epochs import Data
from ringcast.protocols.rbp.machine import EpochMachine, core_cells, too_few
from ringcast.protocols.rbp.messages import ORDERING, Ack, Ask, Fetch, Gone, News, Past
from ringcast.protocols.rbp.reach import furthest
from ringcast.protocols.rbp.state import Phase, Timer

MOST_EARLY = 64
"""ACKs that wait for their epoch to begin here."""

OF_MEMBERS = (Ack, Data, Ask, Packet, Heartbeat, Ready, Leave)
"""Frames with which a site acts as the member it is."""


class Irbp(EpochMachine):
    """One site of iRBP."""

    table: ClassVar[Table]
    chooser: Views

    def __init__(self, me: NodeId, config: Config) -> None:
        super().__init__(me, config)
        self.chooser = Views(self, config)

    @property
    def highest(self) -> int:
        """V1: the number of the last view that this site knows of."""
        return self.chooser.membership.highest

    @property
    def blocked(self) -> str:
        """G46: too few for a change; I17: or nobody is in a view yet, as far as we know."""
        if self.chooser.decided is None:
            listed = ", ".join(map(str, self.members))
            return f"in no view: it begins when a view takes us in, or all of {listed} are here"
        return too_few(self.chooser.lost, "irbp I7") if self.chooser.blocked else ""

    @property
    def external(self) -> tuple[NodeId, ...]:
        """I20: X, members of the view that the newest i-view has left out of the ring."""
        decided = self.chooser.decided
        return decided.external if decided is not None else ()

    def start(self, env: Env, event: Started) -> None:
        """A3: a site that has taken part before comes back as somebody new."""
        self.boot = event.boot
        self.chooser.start(env)
        self.chooser.membership.start(env, event.stable.get(HIGHEST))

    def admit(self, env: Env, event: Received) -> bool:
        """Frames of this group; A3: those of a member, of the incarnation that is one. D1: they are
        signs of life."""
        message, src, chooser = event.message, event.src, self.chooser
        if why := malformed(message, self.members):
            env.drop("irbp R16", why)
            return False
        if not super().admit(env, event):
            return False
        if type(message) is Join and message.highest > furthest(self.highest):
            env.drop("irbp R16", "a view far ahead")
            return False
        if self._forgot(event):
            env.drop("irbp A3", "a founder that has lost its memory")
            env.send(src, Stranger(self.group, event.boot))
            return False
        early = type(message) is Ack and self.current and message.epoch > self.current.epoch
        if early and len(chooser.early_acks) < MOST_EARLY:
            chooser.early_acks.append(event)  # we may be about to begin that epoch
        if type(message) in OF_MEMBERS and chooser.decided is not None:
            if chooser.seated(src, event.boot):
                chooser.alive(env, src)
            elif src in chooser.decided.lives:
                env.drop("irbp A3", "a member that has lost its memory")
                env.send(src, Stranger(self.group, event.boot))
                return False
        return True

    def _forgot(self, event: Received) -> bool:
        """A3 ext: whether a site asks about the first view as its own, and another incarnation of
        it began with the group, as we know: that one may have delivered all of the view."""
        message = event.message
        if not isinstance(message, Catch | Fetch):
            return False
        view = message.epoch.view if isinstance(message, Catch) else message.view
        founder = self.chooser.boots.get(event.src, event.boot)
        return view.seq == FIRST and founder != event.boot


def asked(part: str, method: Callable[..., None]) -> Handler:
    """A cell that the chooser carries out, or a part of it."""
    name = method.__name__

    def act(p: Any, env: Env, event: Any) -> None:
        chooser = p.chooser
        getattr(getattr(chooser, part) if part else chooser, name)(env, event)

    return act


VIEWS: dict[Key, Cell] = {
    News: asked("following", Following.on_news),
    Past: asked("following", Following.on_past),
    Gone: asked("following", Following.on_gone),
    Catch: asked("following", Following.on_catch),
    Caught: asked("following", Following.on_caught),
    ViewTimer.CATCH: asked("following", Following.on_catch_timer),
    Join: asked("membership", ViewMembership.on_join),
    Leave: asked("membership", ViewMembership.on_leave),
    Ready: asked("membership", ViewMembership.on_ready),
    Stranger: asked("membership", ViewMembership.on_stranger),
    ViewTimer.JOIN: asked("membership", ViewMembership.on_join_timer),
    ViewTimer.READY: asked("membership", ViewMembership.on_ready_timer),
    Heartbeat: asked("", Views.on_heartbeat),
    detector.Timer.BEAT: asked("", Views.to_detector),
    Packet: asked("", Views.to_channel),
    channel.Ack: asked("", Views.to_channel),
    channel.Timer.RESEND: asked("", Views.to_channel),
}

CELLS: dict[tuple[StrEnum, Key], Cell] = {
    **core_cells(),
    **{(phase, key): cell for phase in Phase for key, cell in VIEWS.items()},
}

TIMERS = (*Timer, *ViewTimer, *detector.Timer, *channel.Timer)

Irbp.table = Table(Phase, (*ORDERING, *CHOOSING, Packet, channel.Ack), TIMERS, CELLS)
