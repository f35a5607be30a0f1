"""Owned: a machine inside another one, which is how layers compose.

The owner gives its part inputs and hears its words; the world sees one machine. What the part
asks of the world (frames, timers, stable storage, notes) goes on as it is, at its place in the
owner's list of effects. What it has for whoever uses it (``Up``, deliveries, views, its end)
goes to the owner's ``hear``, at the same place, so the order of the list is kept.

Parts are told apart by the types of their messages and by their timers, so these are named once
in all of ringcast: a block called ``membership`` has timers ``"membership beat"`` and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar

from ringcast.core.effects import (
    Broadcast,
    CancelTimer,
    Deliver,
    Effect,
    InstallView,
    Note,
    Originate,
    Persist,
    Send,
    SetTimer,
    Stop,
    Uncertain,
    Up,
)
from ringcast.core.env import Env
from ringcast.core.inputs import Input
from ringcast.core.machine import Machine

M = TypeVar("M", bound=Machine)

Heard = Up | Deliver | InstallView | Originate | Uncertain | Stop
"""What a part has for its owner."""

FOR_THE_WORLD = (Send, Broadcast, SetTimer, CancelTimer, Persist, Note)


class Owned(Generic[M]):
    """One part of a machine."""

    __slots__ = ("_env", "_hear", "machine")

    def __init__(self, machine: M, hear: Callable[[Env, Heard], None]) -> None:
        self.machine = machine
        self._hear = hear
        self._env = Env(0, Random(0))  # the owner's, from the first input on

    def handle(self, env: Env, event: Input) -> None:
        """Give the part an input of the owner's."""
        self.call(env, self.machine.handle, event)

    def call(self, env: Env, method: Callable[..., None], *arguments: object) -> None:
        """Call a method of the part that is no input: ``method(its env, *arguments)``.

        ``hear`` may call again: the part has finished what it does, so nothing re-enters it.
        """
        inner = self._env
        inner.me, inner.rng, inner.now_us, inner.dropped = env.me, env.rng, env.now_us, env.dropped
        method(inner, *arguments)
        for effect in inner.take():
            self._pass_on(env, effect)

    def _pass_on(self, env: Env, effect: Effect) -> None:
        if isinstance(effect, FOR_THE_WORLD):
            env.effects.append(effect)
        else:
            self._hear(env, effect)
