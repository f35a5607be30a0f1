"""ScenarioLog: what a scenario sees of a running group, line by line.

Trace events become short lines; frames, which are not in a trace, are noted by a machine that
wraps the real one. Nothing here changes what the group does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol
from zlib import crc32

from ringcast.core.effects import Broadcast, Effect, Note, Send
from ringcast.core.env import Env
from ringcast.core.ids import Level, NodeId, ViewId
from ringcast.core.inputs import Input, Message, Received, Started
from ringcast.core.machine import Machine
from ringcast.core.to_some import DeliveredTo
from ringcast.core.trace import Crashed, Delivered, Installed, Noted, TraceEvent

KINDS = ("views", "positions", "deliveries", "phases", "drops", "notes", "times")
"""What ``log`` can be asked for."""

MOST_LINES = 5_000
"""A block that shows more than this was asked for too much; the rest is left out."""

FRAME = "frame"
"""Kind of the notes by which frames come into the trace of a scenario."""


class ScenarioLog:
    """Lines for people, and the few counts that scenarios wait for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.kinds: frozenset[str] = frozenset()
        self.nodes: frozenset[NodeId] = frozenset()
        """Whose lines are wanted; empty is everybody's."""
        self.frames: dict[str, tuple[str, ...]] = {}
        """Message types wanted, each with the fields to show."""
        self.token_visits: Counter[NodeId] = Counter()
        """Tokens passed on since the mark, copies sent again not counted."""
        self.token_to: NodeId | None = None
        """Where the token is, or is on its way to."""
        self.views: dict[NodeId, Installed] = {}
        self.delivered: dict[NodeId, list[tuple[NodeId, int]]] = {}
        """Messages delivered since the mark, as sender and number."""
        self.noted: Counter[tuple[NodeId, str]] = Counter()
        """Notes of each kind since the mark."""
        self._now_us: Callable[[], int] = lambda: 0
        self._turn: tuple[type[Message], ...] = ()
        """What a scenario calls the token."""
        self._mark_us = 0
        self._bodies: dict[int, bytes] = {}
        self._last_token: dict[NodeId, Message] = {}

    def watch(self, now_us: Callable[[], int], turn: tuple[type[Message], ...]) -> None:
        """Learn where to look for the time, and which messages end a turn."""
        self._now_us, self._turn = now_us, turn

    def mark(self) -> None:
        """Count from here."""
        self.token_visits.clear()
        self.delivered.clear()
        self.noted.clear()
        self._mark_us = self._now_us()

    def know(self, body: bytes) -> None:
        """Remember what was submitted, so that a delivery can be shown by name."""
        self._bodies[crc32(body)] = body

    # Effects, before the world carries them out.

    def see(self, node: NodeId, effects: list[Effect], now_us: int) -> list[Effect]:
        """Count tokens, and put a note before each frame that is wanted."""
        seen: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send | Broadcast):
                to = effect.to if isinstance(effect, Send) else None
                self._see_token(node, to, effect.message)
                fields = self.frames.get(type(effect.message).__name__)
                if fields is not None and self._wanted(node):
                    seen.append(Note("", FRAME, self._frame(node, to, effect.message, fields)))
            seen.append(effect)
        return seen

    def _see_token(self, node: NodeId, to: NodeId | None, message: Message) -> None:
        if type(message) in self._turn and self._last_token.get(node) is not message:
            self._last_token[node] = message
            self.token_visits[node] += 1
            self.token_to = to

    def _frame(
        self, node: NodeId, to: NodeId | None, message: Message, fields: Iterable[str]
    ) -> str:
        shown = [f"p{node} -> {'*' if to is None else f'p{to}'} {type(message).__name__}"]
        for field in fields:
            if field == "visit":
                shown.append(f"visit={self.token_visits[node] - 1}")
            else:
                shown.append(f"{field}={plain(look(message, field))}")
        return " ".join(shown)

    # Trace events.

    def observe(self, event: TraceEvent) -> None:
        """Turn one event into lines, if they are wanted."""
        match event:
            case Installed():
                self.views[event.node] = event
                self._say(event.node, "views", self._view(event))
            case Delivered():
                numbers = range(event.first, event.first + len(event.digests))
                self.delivered.setdefault(event.node, []).extend((event.sender, k) for k in numbers)
                for number, digest in zip(numbers, event.digests, strict=True):
                    what = f"p{event.sender}:{number} {self._body(digest)}"
                    text = f"deliver {what} {Level(event.level).name.lower()} in {event.view}"
                    self._say(event.node, "deliveries", text)
            case Noted() if (some := DeliveredTo.read(event)) is not None:
                to = plain_set(some.to) if some.to else f"group {some.group}"
                for number, digest in enumerate(some.digests, some.first):
                    what = f"p{some.sender}:{number} {self._body(digest)} to {to}"
                    text = f"deliver {what} {some.level.name.lower()} in {some.view}"
                    self._say(event.node, "deliveries", text)
            case Noted(what="frame", text=text):
                self._line(text)
            case Noted():
                self.noted[event.node, event.what] += 1
                self._note(event)
            case Crashed(node=node, reason=reason):
                self.views.pop(node, None)
                if reason:
                    self._line(f"p{node} stopped: {reason}")

    def _view(self, event: Installed) -> str:
        kind = "tr" if event.transitional else "reg"
        text = f"{kind} {event.view}{plain_set(event.members)}"
        if "positions" in self.kinds and event.transitional:
            text += f" after {event.ring}:{event.seq}"
        return text

    def _body(self, digest: int) -> str:
        body = self._bodies.get(digest)
        if body is None:
            return f"#{digest:08x}"
        return f'"{body.decode()}"' if len(body) <= 20 else f"{len(body)}B"

    def _note(self, event: Noted) -> None:
        match event.what:
            case "phase":
                self._say(event.node, "phases", event.text)
            case "drop":
                self._say(event.node, "drops", f"drop: {event.text}")
            case what if event.text:
                self._say(event.node, "notes", f"{what}: {event.text}")

    def _wanted(self, node: NodeId) -> bool:
        return not self.nodes or node in self.nodes

    def _say(self, node: NodeId, kind: str, text: str) -> None:
        if kind in self.kinds and self._wanted(node):
            self._line(f"p{node} {text}")

    def _line(self, text: str) -> None:
        if "times" in self.kinds:
            text = f"{(self._now_us() - self._mark_us) / 1000:.1f}ms {text}"
        if len(self.lines) < MOST_LINES:
            self.lines.append(text.rstrip())
        elif len(self.lines) == MOST_LINES:
            self.lines.append("... and more")


class Seer(Protocol):
    """Sees the effects of machines before the world carries them out."""

    def see(self, node: NodeId, effects: list[Effect], now_us: int) -> list[Effect]:
        """The effects to carry out."""


Maker = Callable[[NodeId, Any], Machine]


def tapped(make: Maker, tap: Seer) -> Maker:
    """Makes machines whose effects are seen by ``tap``."""
    return lambda node, config: TappedMachine(make(node, config), node, tap)


class TappedMachine(Machine):
    """A machine that shows its effects to a tap before the world sees them."""

    def __init__(self, inner: Machine, node: NodeId, tap: Seer) -> None:
        super().__init__()
        self.inner = inner
        self.phase = inner.phase
        self.visits = inner.visits
        self._node = node
        self._tap = tap

    def handle(self, env: Env, event: Input) -> None:
        """Let the real machine act."""
        self.inner.handle(env, event)
        self.phase = self.inner.phase
        if env.effects:
            env.effects = self._tap.see(self._node, env.effects, env.now_us)

    def start(self, env: Env, event: Started) -> None:
        """As the real machine."""
        self.inner.start(env, event)

    def admit(self, env: Env, event: Received) -> bool:
        """As the real machine."""
        return self.inner.admit(env, event)

    @property
    def ready(self) -> bool:
        """As the real machine."""
        return self.inner.ready

    def snapshot(self) -> dict[str, object]:
        """As the real machine."""
        return self.inner.snapshot()


def look(message: object, path: str) -> object:
    """A field of a message, or of a field, such as ``inner.seq``."""
    for name in path.split("."):
        message = getattr(message, name)
    return message


def plain(value: object) -> str:
    """A value as scenarios show it."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case Level():
            return value.name.lower()
        case ViewId():
            return str(value)
        case tuple() | list():
            return f"[{','.join(map(plain, value))}]"
        case _:
            return str(value)


def plain_set(nodes: Iterable[NodeId]) -> str:
    """A membership as scenarios show it."""
    return "{" + ",".join(map(str, nodes)) + "}"
