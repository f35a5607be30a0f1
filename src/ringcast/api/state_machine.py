"""StateMachine: what a replica replicates, and the errors of those who submit to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from ringcast.api.events import Message, View
from ringcast.core.errors import RingcastError

R = TypeVar("R")
T = TypeVar("T")


class Local(NamedTuple, Generic[T]):
    """What a read of the local copy gave."""

    value: T
    age: float
    """Everything confirmed longer ago than this many seconds is in it; inf if nothing is known."""


class ResultLost(RingcastError):
    """The command was applied, but its result went by unseen here; look at the state instead."""


class NoQuorum(RingcastError, TimeoutError):
    """No majority of the members confirmed this in time. A command may still be applied: submit it
    again with the same client and request."""


class StateMachine(ABC, Generic[R]):
    """What is replicated. Everything must depend on the calls alone: no clock, no chance."""

    @abstractmethod
    def apply(self, command: Message) -> R:
        """Carry out a command; the result goes to its submitter, as does an exception.

        The submitter gets the object itself: return a copy of what is part of the state and can be
        changed, or a submitter that changes it has another state than the others.
        """

    def on_view(self, view: View) -> None:
        """The members are others now: the place to free what a lost member held.

        With a quorum this is a command like any other, in order with them: who is connected when
        a majority goes on. Its position is larger than those of all commands before. Of a member
        that was started anew, two views tell, one without it and one with it.
        """

    @abstractmethod
    def snapshot(self) -> bytes:
        """The whole state."""

    def pieces(self) -> Iterator[bytes]:
        """The whole state as it is now, in pieces; ``restore`` takes them put together.

        Commands go on while the pieces are asked for, one at a time, and must not show in them: a
        large machine copies what it needs in this call, and encodes in the iterator. The event
        loop stands still for this call and for one piece at a time. As it is, for ``snapshot()``.
        """
        return iter((self.snapshot(),))

    @abstractmethod
    def restore(self, state: bytes) -> None:
        """Take over a state; what was there before is void."""
