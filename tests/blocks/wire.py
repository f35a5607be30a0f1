"""A wire between blocks of one kind: real machines, wired by hand, where nothing moves by itself.

A block is owned as its owner would own it; what it says is kept in ``said``. Frames wait in one
queue, first in, first out; timers are only recorded, and fire when a test says so.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from ringcast.core.effects import Broadcast, CancelTimer, Effect, Note, Persist, Send, SetTimer, Up
from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Input, Message, Received, Started, TimerFired
from ringcast.core.machine import Machine
from ringcast.core.owned import Heard, Owned

E = TypeVar("E")


class Wire:
    """Processors ``1 .. n``, each with one block, and the frames between them."""

    def __init__(self, n: int, make: Callable[[NodeId], Machine]) -> None:
        self.ids = tuple(range(1, n + 1))
        self.make = make
        self.parts: dict[NodeId, Owned[Any]] = {}
        self.envs: dict[NodeId, Env] = {}
        self.boots = dict.fromkeys(self.ids, 0)
        self.stable: dict[NodeId, dict[str, int]] = {node: {} for node in self.ids}
        self.timers: dict[NodeId, dict[str, int]] = {node: {} for node in self.ids}
        self.said: dict[NodeId, list[Any]] = {node: [] for node in self.ids}
        self.answer: Callable[[NodeId, Env, Any], None] = lambda node, env, word: None
        """What the owner does when it hears a word."""
        self.frames: list[tuple[NodeId, Received]] = []
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.now_us = 0

    def __getitem__(self, node: NodeId) -> Any:
        return self.parts[node].machine

    def start(self, *nodes: NodeId) -> None:
        """Start or restart processors with what they have in stable storage."""
        for node in nodes or self.ids:
            self.boots[node] += 1
            self.parts[node] = Owned(self.make(node), self._hearer(node))
            self.envs[node] = Env(node, Random(f"wire/{node}"))
            self.timers[node] = {}
            boot = 100 * node + self.boots[node]
            self.handle(node, Started(boot, dict(self.stable[node])))

    def _hearer(self, node: NodeId) -> Callable[[Env, Heard], None]:
        def hear(env: Env, heard: Heard) -> None:
            assert isinstance(heard, Up)
            self.said[node].append(heard.what)
            self.answer(node, env, heard.what)

        return hear

    def boot(self, node: NodeId) -> int:
        return 100 * node + self.boots[node]

    def crash(self, node: NodeId) -> None:
        """The processor is gone; its storage stays."""
        del self.parts[node]
        self.timers[node] = {}

    # --- inputs: each returns the effects, which have been carried out ------------------------

    def handle(self, node: NodeId, event: Input) -> list[Effect]:
        return self.do(node, lambda env: self.parts[node].handle(env, event))

    def call(self, node: NodeId, method: Callable[..., None], *arguments: object) -> list[Effect]:
        return self.do(node, lambda env: self.parts[node].call(env, method, *arguments))

    def do(self, node: NodeId, step: Callable[[Env], None]) -> list[Effect]:
        env = self.envs[node]
        env.now_us = self.now_us
        step(env)
        effects = env.take()
        for effect in effects:
            match effect:
                case Send(to, message):
                    self.put(node, to, message)
                case Broadcast(message):
                    for other in self.ids:
                        if other != node:
                            self.put(node, other, message)
                case SetTimer(timer, delay_us):
                    self.timers[node][timer] = self.now_us + delay_us
                case CancelTimer(timer):
                    self.timers[node].pop(timer, None)
                case Persist(key, value):
                    self.stable[node][key] = value
        return effects

    def put(self, src: NodeId, dst: NodeId, message: Message) -> None:
        if (src, dst) not in self.cut:
            self.frames.append((dst, Received(src, self.boot(src), message)))

    def receive(self, node: NodeId, src: NodeId, message: Message, boot: int = 0) -> list[Effect]:
        """Let a frame from ``src`` arrive at ``node``, whatever else is on its way."""
        return self.handle(node, Received(src, boot or self.boot(src), message))

    def fire(self, node: NodeId, timer: Any) -> list[Effect]:
        """Let a timer that is set run out."""
        self.now_us = max(self.now_us, self.timers[node].pop(timer))
        return self.handle(node, TimerFired(timer))

    # --- frames on their way ------------------------------------------------------------------

    def step(self, at: int = 0) -> list[Effect]:
        node, frame = self.frames.pop(at)
        return self.handle(node, frame) if node in self.parts else []

    def run(self) -> None:
        """Let all frames arrive, and what they lead to."""
        for _ in range(10_000):
            if not self.frames:
                return
            self.step()
        raise AssertionError("there is no end to it")

    def pass_us(self, us: int) -> None:
        """Let time pass: frames arrive at once, timers fire in order."""
        end_us = self.now_us + us
        while True:
            self.run()
            due = [
                (at_us, node, timer)
                for node, timers in self.timers.items()
                for timer, at_us in timers.items()
                if node in self.parts and at_us <= end_us
            ]
            if not due:
                break
            _, node, timer = min(due)
            self.fire(node, timer)
        self.now_us = end_us


def words(said: list[Any], kind: type[E]) -> list[E]:
    """The words of one kind."""
    return [word for word in said if isinstance(word, kind)]


def sent(effects: list[Effect], kind: type[E]) -> list[E]:
    """The messages of one kind that were sent or broadcast."""
    frames = (e.message for e in effects if isinstance(e, Send | Broadcast))
    return [message for message in frames if isinstance(message, kind)]


def drops(effects: list[Effect]) -> list[str]:
    """Why inputs were dropped."""
    return [e.text for e in effects if isinstance(e, Note) and e.what == "drop"]
