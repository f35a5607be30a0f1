"""PortEnv: the Env of a part that has a broadcast domain to itself (``core.owned``).

A ring has many frames. So what the part asks for gets its names at once, and goes straight into the
owner's list of effects; and what it has for its owner is heard at that place. ``hear`` may call any
part but this one, which has not finished.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from ringcast.core.effects import (
    Broadcast,
    CancelTimer,
    Deliver,
    InstallView,
    Originate,
    PackedMessages,
    Persist,
    Send,
    SetTimer,
    Stop,
    Uncertain,
    Up,
)
from ringcast.core.env import Env
from ringcast.core.ids import NodeId, ViewId
from ringcast.core.inputs import Message, Timer

SEPARATOR = "/"

Heard: TypeAlias = Up | Deliver | InstallView | Originate | Uncertain | Stop
"""What a part has for its owner."""

Hear: TypeAlias = Callable[[Env, Heard], None]


class ScopedTimer(str):
    """A timer of a part: the part's name, then the timer's own."""

    __slots__ = ("inner", "part")

    inner: str
    part: str

    @classmethod
    def of(cls, part: str, inner: str) -> ScopedTimer:
        """The timer ``inner`` of the part called ``part``."""
        timer = cls(f"{part}{SEPARATOR}{inner}")
        timer.part, timer.inner = part, inner
        return timer


class PortEnv(Env):
    """The part called ``scope`` at ``port`` writes into the list of its owner."""

    __slots__ = ("_hear", "_port", "_scope", "_timers", "owner")

    def __init__(
        self,
        hear: Hear,
        scope: str,
        port: int,
        me: NodeId | None,
        timers: dict[str, ScopedTimer],
    ) -> None:
        super().__init__(me or 0, Random(0))  # the owner's, from the first input on
        self._hear, self._scope, self._port = hear, scope, port
        self._timers = timers
        self.owner: Env = self

    def within(self, env: Env) -> None:
        """The owner handles an input with ``env``."""
        if self.owner is not env:
            self.owner, self.rng, self.dropped = env, env.rng, env.dropped
            self.me = self.me or env.me
        self.now_us = env.now_us
        self.effects = env.effects

    def send(self, to: NodeId, message: Message, port: int = 0) -> None:
        """Unicast in the part's domain."""
        self.effects.append(Send(to, message, self._port))

    def broadcast(self, message: Message, port: int = 0) -> None:
        """Broadcast in the part's domain."""
        self.effects.append(Broadcast(message, self._port))

    def set_timer(self, timer: Timer, delay_us: int) -> None:
        """Arm a timer under the part's name."""
        named = self._timers.get(timer)
        if named is None:
            named = self._timers[timer] = ScopedTimer.of(self._scope, timer)
        self.effects.append(SetTimer(named, delay_us))

    def cancel_timer(self, timer: Timer) -> None:
        """Disarm a timer under the part's name."""
        named = self._timers.pop(timer, None)
        self.effects.append(CancelTimer(named or ScopedTimer.of(self._scope, timer)))

    def persist(self, key: str, value: int) -> None:
        """Make durable under the part's name."""
        self.effects.append(Persist(f"{self._scope}{SEPARATOR}{key}", value))

    def note(
        self,
        rule: str,
        what: str,
        text: str = "",
        view: ViewId | None = None,
        members: tuple[NodeId, ...] = (),
        data: tuple[int, ...] = (),
    ) -> None:
        """Leave a line under the part's name."""
        super().note(rule, f"{self._scope}{SEPARATOR}{what}", text, view, members, data)

    def drop(self, rule: str, reason: str) -> None:
        """Count, and leave a line under the part's name."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self.note(rule, "drop", reason)

    def originate(self, batch: PackedMessages) -> None:
        """Tell the owner."""
        self._hear(self.owner, Originate(batch))

    def deliver(self, view: ViewId, batch: PackedMessages) -> None:
        """Tell the owner."""
        self._hear(self.owner, Deliver(view, batch))

    def install_view(self, change: InstallView) -> None:
        """Tell the owner."""
        self._hear(self.owner, change)

    def uncertain(self, first: int, count: int) -> None:
        """Tell the owner."""
        self._hear(self.owner, Uncertain(first, count))

    def stop(self, reason: str) -> None:
        """Tell the owner."""
        self._hear(self.owner, Stop(reason))

    def up(self, what: Message) -> None:
        """Tell the owner."""
        self._hear(self.owner, Up(what))
