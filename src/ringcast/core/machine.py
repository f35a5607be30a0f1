"""Machine: a deterministic state machine without I/O, driven through a total table.

A protocol declares a table with one cell for each (phase, input) pair. A cell is a handler, a
``Discard`` (the paper says to ignore it, with the reason) or an ``Impossible`` (only a defect
of ours could lead there, with the reason). A missing cell is an error at import.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Input, Leaving, Received, Started, Submitted, TimerFired

Key: TypeAlias = type | str
"""What a column of the table stands for: a message type, a timer, or an input type."""

Handler: TypeAlias = Callable[[Any, Env, Any], None]
"""Called with the machine, its Env and the input."""


class Discard(msgspec.Struct, frozen=True):
    """A cell whose input is counted and dropped."""

    rule: str
    reason: str


class Impossible(msgspec.Struct, frozen=True):
    """A cell that cannot be reached; reaching it stops the processor."""

    reason: str


Cell: TypeAlias = Handler | Discard | Impossible


class Table:
    """The total dispatch table of a protocol."""

    def __init__(
        self,
        phases: Iterable[StrEnum],
        messages: Iterable[type],
        timers: Iterable[StrEnum],
        cells: Mapping[tuple[StrEnum, Key], Cell],
    ) -> None:
        self.phases = tuple(phases)
        self.keys: tuple[Key, ...] = (Submitted, Leaving, *messages, *timers)
        wanted = {(phase, key) for phase in self.phases for key in self.keys}
        missing = sorted(f"({p}, {name(k)})" for p, k in wanted - cells.keys())
        excess = sorted(f"({p}, {name(k)})" for p, k in cells.keys() - wanted)
        if missing or excess:
            raise TypeError(f"table is not total: missing {missing}, unknown {excess}")
        self.cells = dict(cells)
        self.rows: dict[StrEnum, dict[Key, Handler]] = {
            phase: {key: handler(self.cells[phase, key]) for key in self.keys}
            for phase in self.phases
        }


def name(key: Key) -> str:
    """The column's name for people."""
    if isinstance(key, type):
        return key.__name__
    return key.name.lower() if isinstance(key, StrEnum) else str(key)


def handler(cell: Cell) -> Handler:
    """The function that carries out a cell."""
    match cell:
        case Discard(rule, reason):
            return lambda machine, env, event: env.drop(rule, reason)
        case Impossible(reason):
            return lambda machine, env, event: env.stop(f"impossible input: {reason}")
        case _:
            return cell


class AtPort(Protocol):
    """A part at a port (``core.owned.Owned``)."""

    def receive(self, env: Env, event: Received) -> None:
        """Handle a frame that arrived there."""


class Router(Protocol):
    """Hands inputs on to the parts of a machine (``core.owned.Parts``)."""

    @property
    def ports(self) -> Mapping[int, AtPort]:
        """Ports whose frames are for a part, whatever their type."""

    def route(self, env: Env, event: Any) -> bool:
        """Give ``event`` to the part it is for; False if there is none."""


class Machine(ABC):
    """A protocol instance of one processor. Never blocks, never raises on a peer's message."""

    table: ClassVar[Table]
    phase: StrEnum
    me: NodeId
    boot: int
    parts: Router | None = None
    """Takes frames at ports of the parts this machine owns, and inputs without a column in the
    table, which are theirs."""
    visits: dict[tuple[StrEnum, Key], int]
    """How often each cell was reached, for the coverage table."""

    def __init__(self) -> None:
        self.visits = {}

    def handle(self, env: Env, event: Input) -> None:
        """Handle one input to completion, leaving effects in ``env``."""
        kind = type(event)
        if kind is Received:
            key: Key = type(event.message)  # type: ignore[union-attr]
            if self.parts is not None:
                part = self.parts.ports.get(event.port)  # type: ignore[union-attr]
                if part is not None:
                    part.receive(env, event)  # type: ignore[arg-type]
                    return
            if not self.admit(env, event):  # type: ignore[arg-type]
                return
        elif kind is TimerFired:
            key = event.timer  # type: ignore[union-attr]
        elif kind is Started:
            self.start(env, event)  # type: ignore[arg-type]
            return
        else:
            key = kind
        phase = self.phase
        act = self.table.rows[phase].get(key)
        if act is None:
            if self.parts is None or not self.parts.route(env, event):
                env.drop("kernel", "a message of another protocol")
            return
        cell = (phase, key)
        self.visits[cell] = self.visits.get(cell, 0) + 1
        act(self, env, event)

    @abstractmethod
    def start(self, env: Env, event: Started) -> None:
        """The first input of an incarnation."""

    def refuse_own(self, env: Env, event: Received, copy: str, twin: str) -> None:
        """A frame bears our own id, so it goes no further.

        If it is a copy of what we sent, rule ``copy`` drops it; if another incarnation sent it, two
        processors have one id, and by rule ``twin`` this one stops.
        """
        if event.boot == self.boot:
            env.drop(copy, "own frame")
        else:
            env.stop(f"another processor uses the id {self.me} ({twin})")

    @abstractmethod
    def admit(self, env: Env, event: Received) -> bool:
        """Whether a frame is well-formed and not our own; drops and counts it otherwise."""

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether ``Submitted`` will be accepted now (back-pressure to the application)."""

    @property
    def filters(self) -> bool:
        """Whether a message may be for a group now, so that it need not go where nobody is in it
        (``Submitted.group``)."""
        return False

    @property
    def blocked(self) -> str:
        """Why nothing is ordered here until others come back; empty while it goes on. Where one
        part alone goes on, the others say so."""
        return ""

    @property
    def external(self) -> tuple[NodeId, ...]:
        """Members of the view that hear and send, and do not order for the moment."""
        return ()

    @abstractmethod
    def snapshot(self) -> dict[str, object]:
        """The state a person would ask for: scenarios, monitor and tests read this."""
