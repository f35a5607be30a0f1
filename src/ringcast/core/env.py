"""Env: the only window a machine has to the world.

A handler reads the time and its random stream here and writes effects here. The world sets
``now_us`` before each input and takes the list of effects after it.
"""

from __future__ import annotations

from random import Random

from ringcast.core.effects import (
    Broadcast,
    CancelTimer,
    Deliver,
    Effect,
    InstallView,
    Note,
    Originate,
    PackedMessages,
    Persist,
    Send,
    SetTimer,
    Stop,
    Uncertain,
    Up,
)
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Message, Timer


class Env:
    """Time, randomness and the ordered effect log of one processor."""

    __slots__ = ("dropped", "effects", "me", "now_us", "rng")

    def __init__(self, me: NodeId, rng: Random) -> None:
        self.me = me
        self.rng = rng
        self.now_us = 0
        self.effects: list[Effect] = []
        self.dropped: dict[str, int] = {}

    def take(self) -> list[Effect]:
        """What the handler asked for, in order; the log is empty afterwards."""
        effects, self.effects = self.effects, []
        return effects

    def send(self, to: NodeId, message: Message, port: int = 0) -> None:
        """Unicast ``message``. Only a machine with several ports names one."""
        self.effects.append(Send(to, message, port))

    def broadcast(self, message: Message, port: int = 0) -> None:
        """Send ``message`` to all others; what we need of it ourselves we keep when sending."""
        self.effects.append(Broadcast(message, port))

    def set_timer(self, timer: Timer, delay_us: int) -> None:
        """Arm ``timer``; arming replaces."""
        self.effects.append(SetTimer(timer, delay_us))

    def cancel_timer(self, timer: Timer) -> None:
        """Disarm ``timer``."""
        self.effects.append(CancelTimer(timer))

    def persist(self, key: str, value: int) -> None:
        """Make ``value`` durable before anything later in the log happens."""
        self.effects.append(Persist(key, value))

    def originate(self, batch: PackedMessages) -> None:
        """Record that messages, ours or another's, got their place in the order from us."""
        self.effects.append(Originate(batch))

    def deliver(self, view: ViewId, batch: PackedMessages) -> None:
        """Hand messages to the application."""
        self.effects.append(Deliver(view, batch))

    def install_view(self, change: InstallView) -> None:
        """Tell the application about a configuration."""
        self.effects.append(change)

    def uncertain(self, first: int, count: int) -> None:
        """Tell the application that some of its messages may or may not be delivered."""
        self.effects.append(Uncertain(first, count))

    def stop(self, reason: str) -> None:
        """End this processor."""
        self.effects.append(Stop(reason))

    def up(self, what: Message) -> None:
        """Tell the machine that owns this one."""
        self.effects.append(Up(what))

    def note(
        self,
        rule: str,
        what: str,
        text: str = "",
        view: ViewId | None = None,
        members: tuple[NodeId, ...] = (),
        data: tuple[int, ...] = (),
    ) -> None:
        """Leave a line in the trace."""
        self.effects.append(Note(rule, what, text, view, members, data))

    def drop(self, rule: str, reason: str) -> None:
        """Count and note an input that is not acted upon. ``reason`` is a fixed phrase."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self.effects.append(Note(rule, "drop", reason))
