"""A token that everybody hears, and that is sent again until somebody has it.

As in the counter-based protocol: the owner keeps it for T; a hop number tells a new token from an
old one; who hears nothing of the next owner sends the very same token again; and an old token for
one that has passed on a later one is answered with that. Nobody is ever given up.
"""

from __future__ import annotations

from abc import abstractmethod
from enum import StrEnum
from typing import Generic, TypeVar

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received, TimerFired
from ringcast.protocols.compared.config import RingConfig
from ringcast.protocols.compared.member import Member
from ringcast.protocols.compared.messages import BatchToken, FastToken

T = TypeVar("T", FastToken, BatchToken)


class Timer(StrEnum):
    """Every timer of a ring."""

    OWNER = "compared owner"
    """The owner's time is over."""
    REPAIR = "compared repair"
    """Nothing was heard of the token passed on."""


class RingMember(Member, Generic[T]):
    """A member of a ring."""

    def __init__(self, me: NodeId, config: RingConfig) -> None:
        super().__init__(me, config)
        self.config = config
        self.place = self.places[me]
        self.successor = self.ids[(self.place + 1) % len(self.ids)]
        self.newest: T | None = None
        self.held: T | None = None
        self.passed: T | None = None
        self.answered_us = -config.repair_us
        """When an old token was last answered: not each copy of it, which would make copies."""

    @abstractmethod
    def first(self) -> T:
        """The token that the first member begins with."""

    @abstractmethod
    def look(self, env: Env, token: T) -> None:
        """Learn from a token that is newer than all before."""

    @abstractmethod
    def own(self, env: Env, token: T) -> T:
        """The token has come to us: do what only its owner may."""

    @abstractmethod
    def next_token(self, env: Env, token: T) -> T:
        """The token as we pass it on."""

    def begin(self, env: Env) -> None:
        """The first member has the token."""
        if self.place == 0:
            self.hear(env, self.first())

    def on_token(self, env: Env, event: Received) -> None:
        """Newer than all before, or not."""
        token: T = event.message  # type: ignore[assignment]
        if self.newest is None or token.hop > self.newest.hop:
            self.hear(env, token)
            return
        env.drop(self.name, "an old token")
        sent = self.passed
        recent = env.now_us - self.answered_us < self.settings.repair_us // 2
        if sent is not None and token.n == self.me and token.hop == sent.hop - 1 and not recent:
            self.answered_us = env.now_us
            env.broadcast(sent)

    def hear(self, env: Env, token: T) -> None:
        """Learn from it; and own it, if it is for us."""
        self.newest = token
        if self.passed is not None and token.hop > self.passed.hop:
            env.cancel_timer(Timer.REPAIR)
        self.look(env, token)
        if token.n != self.me:
            return
        self.held = self.own(env, token)
        if self.config.token_us or len(self.ids) == 1:
            env.set_timer(Timer.OWNER, max(1, self.config.token_us))
        else:
            self.release(env)

    def on_owner(self, env: Env, event: TimerFired) -> None:
        """The owner's time is over."""
        self.release(env)

    def release(self, env: Env) -> None:
        """Pass it on, and watch over it."""
        assert self.held is not None
        token = self.next_token(env, self.held)
        self.held = None
        self.newest = self.passed = token
        if len(self.ids) == 1:
            self.hear(env, token)
            return
        env.broadcast(token)
        env.set_timer(Timer.REPAIR, self.settings.repair_us + self.config.token_us)
        self.look(env, token)

    def on_repair(self, env: Env, event: TimerFired) -> None:
        """The very same token again."""
        assert self.passed is not None
        env.broadcast(self.passed)
        env.set_timer(Timer.REPAIR, self.settings.repair_us + self.config.token_us)
