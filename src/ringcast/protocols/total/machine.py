"""The machine: start, admission of frames, and the table of phases and inputs."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from ringcast.blocks import channel, detector
from ringcast.blocks import view_change as changing
from ringcast.blocks.channel import Ack, Packet
from ringcast.blocks.detector import Heartbeat
from ringcast.blocks.flush import Word
from ringcast.blocks.view_messages import Announce, Leave
from ringcast.core.env import Env
from ringcast.core.inputs import Leaving, Received, Started, Submitted, TimerFired
from ringcast.core.machine import Cell, Discard, Impossible, Key, Table
from ringcast.core.owned import Heard
from ringcast.protocols.total import change, member, messages, repair, sequencer
from ringcast.protocols.total.messages import (
    Bcast,
    CumSeqAck,
    NewView,
    NewViewAck,
    Request,
    Resend,
    SeqAck,
    Status,
    Unicast,
    malformed,
)
from ringcast.protocols.total.state import Phase, Processor, Timer

OURS = frozenset(messages.MESSAGES)
BELOW = (Heartbeat, Packet, Ack, Announce, Leave)
TIMERS_BELOW = (*changing.Timer, *detector.Timer, *channel.Timer)

MESSAGES = (
    *messages.MESSAGES,
    Heartbeat,
    Packet[Word | Bcast],
    Ack,
    Announce,
    Leave,
)
"""Every frame on the wire; packets carry the words of the group and what a flush supplies."""

LEFT = "left"
"""The reason a processor stops with when it leaves."""

MOST_EARLY = 1024
"""Frames of a view to come that are kept until it is installed."""


class Total(Processor):
    """One processor of a group with a sequencer."""

    table: ClassVar[Table]

    def start(self, env: Env, event: Started) -> None:
        """TL-1: who I am is known from the start, so each view finds its sequencer at once."""
        self.boot = event.boot
        self.below.handle(env, event)

    def admit(self, env: Env, event: Received) -> bool:
        """G-4, TL-31: own frames, an impostor's, malformed ones and those of other views go no
        further; frames of the view to come wait for it."""
        src, message = event.src, event.message
        if src == self.me:
            self.refuse_own(env, event, copy="total A2", twin="total A2")
            return False
        if type(message) not in OURS:
            return True
        if malformed(message):
            env.drop("total A2", "malformed frame")
            return False
        view = message.view  # type: ignore[attr-defined]
        if view != self.view:
            if view == self.proposed and len(self.early) < MOST_EARLY:
                self.early.append(event)
            else:
                env.drop("total TL-31", "a frame of another view")
            return False
        if self.group.boots.get(src) != event.boot:
            env.drop("total TL-31", "a frame of another incarnation")
            return False
        self.heard_us[src] = env.now_us
        return True

    def hear(self, env: Env, heard: Heard) -> None:
        """The group below has something to say."""
        change.hear(self, env, heard)

    def to_below(self, env: Env, event: Received | TimerFired) -> None:
        """What belongs to the group below."""
        self.below.handle(env, event)

    def on_leaving(self, env: Env, event: Leaving) -> None:
        """Tell the others, then stop. A sequencer sends once more what some may lack."""
        if self.office is not None and self.office.acked:
            for seq in sorted(self.numbers.store):
                if seq > self.numbers.stable:
                    env.broadcast(self.numbers.store[seq])
        self.below.handle(env, event)
        env.stop(LEFT)


FROZEN = Discard("total FL-1", "a frame of a view that is ending")
NOT_NOW = Discard("total FL-1", "a timer of a view that is ending")
ALONE = Impossible("alone in the view, so nobody else sends a frame of it, and none is awaited")

FLOWING: dict[Key, Cell] = {
    Submitted: member.on_submitted,
    Unicast: member.on_unicast,
    Bcast: member.on_bcast,
    Request: sequencer.on_request,
    NewView: member.on_new_view,
    NewViewAck: sequencer.on_new_view_ack,
    CumSeqAck: sequencer.on_cum_seq_ack,
    SeqAck: sequencer.on_seq_ack,
    Resend: repair.on_resend,
    Status: member.on_status,
    Timer.JOIN: Impossible("the first view change ends the search for others (total TL-8)"),
    Timer.NEW_VIEW: sequencer.on_new_view_timer,
    Timer.STATUS: sequencer.on_status_timer,
    Timer.ACK: member.on_ack_timer,
    Timer.RESEND: repair.on_resend_timer,
    Timer.REQUEST: member.on_request_timer,
}

CELLS: dict[tuple[StrEnum, Key], Cell] = {
    **{(Phase.ACTIVE, key): cell for key, cell in FLOWING.items()},
    **{(Phase.JOINING, key): ALONE for key in (*messages.MESSAGES, *Timer)},
    (Phase.JOINING, Submitted): member.on_submitted_later,
    (Phase.JOINING, Timer.JOIN): member.on_join_timer,
    **{(Phase.BLOCKED, key): FROZEN for key in messages.MESSAGES},
    **{(Phase.BLOCKED, key): NOT_NOW for key in Timer},
    (Phase.BLOCKED, Submitted): member.on_submitted_later,
    (Phase.BLOCKED, Unicast): member.on_unicast,
    **{(phase, Leaving): Total.on_leaving for phase in Phase},
    **{(phase, key): Total.to_below for phase in Phase for key in (*BELOW, *TIMERS_BELOW)},
}

Total.table = Table(Phase, (*messages.MESSAGES, *BELOW), (*Timer, *TIMERS_BELOW), CELLS)
