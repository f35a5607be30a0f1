"""Parts: machines inside another one, which is how layers compose.

The owner gives its part inputs and hears its words; the world sees one machine. What the part
asks of the world (frames, timers, stable storage, notes) goes on at its place in the owner's list
of effects. What it has for its owner (``Up``, deliveries, views, its end) goes to the owner's
``hear``, at the same place, so the order of the list is kept.

A part with a *scope* has a name under its owner, such as ``ring-a`` or ``consensus:7``. Its timers,
storage keys and notes carry that name in front of theirs (``ring-a/hold``), its frames travel
as ``Scoped``, and the owner's ``Parts`` lead back what comes for it. So a machine can own any
number of parts of one type, and make and drop them while it runs. A part with a *port* has a
broadcast domain to itself: there its frames need no name, and a processor whose whole machine is
such a part understands them. Domains are the world's, so a part with a scope owns none of its own.

A part without a scope is one of a kind in its whole machine: its effects go on as they are, and
the types of its messages and the names of its timers tell its inputs apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from ringcast.core.effects import (
    Broadcast,
    CancelTimer,
    Effect,
    Note,
    Persist,
    Send,
    SetTimer,
)
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Input, Message, Received, Started, TimerFired
from ringcast.core.machine import Machine
from ringcast.core.port_env import SEPARATOR, Hear, Heard, PortEnv, ScopedTimer

__all__ = ["Heard", "Owned", "Parts", "Scoped", "ScopedTimer", "unscoped"]

M = TypeVar("M", bound=Machine)
T = TypeVar("T")

FOR_THE_WORLD = (Send, Broadcast, SetTimer, CancelTimer, Persist, Note)

Path = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class Scoped(msgspec.Struct, Generic[T], frozen=True, array_like=True, tag=90, gc=False):
    """A frame of the part at ``path``, on a port that it shares with its owner.

    A protocol lists ``Scoped[A | B]`` among its messages, with the types that its parts send.
    """

    path: Path
    message: T


def unscoped(message: Message) -> Message:
    """The message itself, without the path of the part that sent it."""
    return message.message if type(message) is Scoped else message


class Owned(Generic[M]):
    """One part of a machine.

    With a ``port``, ``me`` is the part's id in that domain, if it differs from its owner's. A part
    that several protocols share cites rules by their tags alone; ``book`` names the owner's book.
    ``over`` carries what the part sends to one processor, instead of the bare network: the owner's
    reliable channel, for instance, from which it routes what arrives.
    """

    __slots__ = (
        "_env",
        "_hear",
        "_over",
        "_timers",
        "at_port",
        "book",
        "machine",
        "port",
        "scope",
    )

    def __init__(
        self,
        machine: M,
        hear: Hear,
        scope: str = "",
        port: int | None = None,
        me: NodeId | None = None,
        book: str = "",
        over: Callable[[Env, NodeId, Message], None] | None = None,
    ) -> None:
        if SEPARATOR in scope or (port is not None and not scope):
            raise ValueError(f"scope {scope!r}: a name without {SEPARATOR!r}, needed with a port")
        if scope and isinstance(machine.parts, Parts):
            machine.parts.within(scope)
        self.machine = machine
        self.scope, self.port, self.book = scope, port, book
        self._hear = hear
        self._over = over
        self._timers: dict[str, ScopedTimer] = {}
        """Those that are set."""
        self._env = Env(0, Random(0))  # the owner's, from the first input on
        if port is not None:
            self._env = self.at_port = PortEnv(hear, scope, port, me, self._timers)

    def handle(self, env: Env, event: Input) -> None:
        """Give the part an input of the owner's, or one that ``Parts`` led here."""
        if self.scope and isinstance(event, Started):
            event = self._started(event)
        self.call(env, self.machine.handle, event)

    def call(self, env: Env, method: Callable[..., None], *arguments: object) -> None:
        """Call a method of the part that is no input: ``method(its env, *arguments)``.

        ``hear`` may call again: the part has finished what it does, so nothing re-enters it. With
        a port it has not (``core.port_env``).
        """
        inner = self._env
        if self.port is not None:
            self.at_port.within(env)
            method(inner, *arguments)
            return
        inner.me, inner.rng, inner.now_us, inner.dropped = env.me, env.rng, env.now_us, env.dropped
        method(inner, *arguments)
        for effect in inner.take():
            if not isinstance(effect, FOR_THE_WORLD):
                self._hear(env, effect)
            elif self._over is not None and type(effect) is Send:
                message = self._wrapped(effect.message) if self.scope else effect.message
                self._over(env, effect.to, message)
            else:
                if self.book and type(effect) is Note:
                    effect = self._cited(effect)
                env.effects.append(self._named(effect) if self.scope else effect)

    def receive(self, env: Env, event: Received) -> None:
        """A frame at the port of the part."""
        self.at_port.within(env)
        self.machine.handle(self.at_port, event)

    def fire(self, env: Env, timer: ScopedTimer) -> None:
        """A timer of the part has run out."""
        self._timers.pop(timer.inner, None)
        self.handle(env, TimerFired(timer.inner))

    def disarm(self, env: Env) -> None:
        """Cancel the part's timers: it is dropped."""
        for timer in sorted(self._timers.values()):
            env.cancel_timer(timer)
        self._timers.clear()

    def _started(self, event: Started) -> Started:
        """What the part itself persisted; its only port is its first."""
        prefix = self.scope + SEPARATOR
        own = {k.removeprefix(prefix): v for k, v in event.stable.items() if k.startswith(prefix)}
        return Started(event.boot, own)

    def _cited(self, note: Note) -> Note:
        """With the owner's book in front of a tag, which ends with its number."""
        if " " in note.rule or not note.rule[-1:].isdigit():
            return note
        return msgspec.structs.replace(note, rule=f"{self.book} {note.rule}")

    def _named(self, effect: Effect) -> Effect:
        """An effect of the part, with the part's name where the world or the owner needs it."""
        match effect:
            case Send(to, message):
                return Send(to, self._wrapped(message))
            case Broadcast(message):
                return Broadcast(self._wrapped(message))
            case SetTimer(timer, delay_us):
                named = self._timers.get(timer)
                if named is None:
                    named = self._timers[timer] = ScopedTimer.of(self.scope, timer)
                return SetTimer(named, delay_us)
            case CancelTimer(timer):
                named = self._timers.pop(timer, None)
                return CancelTimer(named or ScopedTimer.of(self.scope, timer))
            case Persist(key, value):
                return Persist(f"{self.scope}{SEPARATOR}{key}", value)
            case Note():
                return msgspec.structs.replace(effect, what=f"{self.scope}{SEPARATOR}{effect.what}")
        return effect

    def _wrapped(self, message: Message) -> Message:
        if type(message) is Scoped:  # a part of the part: one frame, a longer path
            return Scoped(f"{self.scope}{SEPARATOR}{message.path}", message.message)
        return Scoped(self.scope, message)


class Parts:
    """The parts of a machine that have a scope, by name; made and dropped while it runs.

    Assigned to a machine's ``parts``, it gets every frame at a port of a part, and every other
    input that the machine's table does not know.
    """

    def __init__(self) -> None:
        self._parts: dict[str, Owned[Any]] = {}
        self.ports: dict[int, Owned[Any]] = {}
        """The ports that parts have to themselves."""
        self._within = ""

    def within(self, scope: str) -> None:
        """Their owner is itself the part called ``scope``: none of them can have a port."""
        self._within = scope
        for part in self._parts.values():
            self._refuse_port(part)

    def _refuse_port(self, part: Owned[Any]) -> None:
        if self._within and part.port is not None:
            raise ValueError(
                f"part {part.scope!r} of part {self._within!r} has port {part.port}, which would be"
                " lost: give the port to the outer part, or let the outermost machine own this one"
            )

    def add(self, part: Owned[Any]) -> None:
        """Lead inputs to ``part`` from now on."""
        self._refuse_port(part)
        if not part.scope or part.scope in self._parts or part.port in self.ports:
            raise ValueError(f"part {part.scope!r} at port {part.port}: taken, or without a name")
        self._parts[part.scope] = part
        if part.port is not None:
            self.ports[part.port] = part

    def drop(self, env: Env, scope: str) -> None:
        """Forget a part; its timers go with it, and frames for it are no longer known."""
        part = self._parts.pop(scope)
        if part.port is not None:
            del self.ports[part.port]
        part.disarm(env)

    def __getitem__(self, scope: str) -> Owned[Any]:
        return self._parts[scope]

    def __contains__(self, scope: str) -> bool:
        return scope in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def route(self, env: Env, event: Any) -> bool:
        """Give an input to the part it is for; False if there is none (any more)."""
        if type(event) is TimerFired:
            timer: object = event.timer
            if not isinstance(timer, ScopedTimer) or timer.part not in self._parts:
                return False
            self._parts[timer.part].fire(env, timer)
            return True
        if type(event) is not Received:
            return False
        message = event.message
        if type(message) is not Scoped:
            return False
        name, _, rest = message.path.partition(SEPARATOR)
        part = self._parts.get(name)
        if part is None or part.port is not None:
            return False
        message = Scoped(rest, message.message) if rest else message.message
        part.handle(env, Received(event.src, event.boot, message))
        return True
