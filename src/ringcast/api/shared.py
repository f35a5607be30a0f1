"""What shared objects have in common: a machine whose commands are its methods, and its replica."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from ringcast.api.events import Message
from ringcast.api.group import Group
from ringcast.api.replica import Replica
from ringcast.api.state_machine import StateMachine
from ringcast.core.ids import NodeId
from ringcast.replica.contents import DEEPEST, too_deep

Value = Any
"""None, bool, int, float, str, bytes, and lists and dicts with str keys of these, inside each other
up to ``DEEPEST``."""

Self = TypeVar("Self", bound="Shared")

PIECE = 1_000
"""Values of a large state that are encoded at a time, a fraction of a millisecond."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


TOO_DEEP = f"a value is nested more than {DEEPEST} deep"
DEEP = b"\x91" * (DEEPEST + 1) + b"\xc0"
"""Bytes that are as deep as a command may be."""


def encoded(command: tuple[Value, ...]) -> bytes:
    """The name of a method and its arguments, for ``MethodMachine``."""
    if any(map(too_deep, command)):
        raise ValueError(TOO_DEEP)
    return _encode(command)


def decoded(body: bytes) -> list[Value]:
    """The same from bytes that any member may have made: whether they are too deep must not depend
    on how much of the stack this process has in use."""
    try:
        command: list[Value] = _decode(body)
    except RecursionError:
        _decode(DEEP)  # raises as well if there is no room for any command
        raise ValueError(TOO_DEEP) from None
    if any(map(too_deep, command)):
        raise ValueError(TOO_DEEP)
    return command


def copied(value: Value) -> Value:
    """A value of the state for somebody who may change it; most cannot be changed."""
    return _decode(_encode(value)) if isinstance(value, dict | list) else value


class MethodMachine(StateMachine[Any]):
    """A state that msgpack can hold; a command is the name of a method ``do_...`` and arguments."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def apply(self, command: Message) -> Any:
        """Call the method that the command names."""
        name, *arguments = decoded(command.body)
        return getattr(self, f"do_{name}")(command, *arguments)

    def snapshot(self) -> bytes:
        """The state."""
        return _encode(self.state)

    def pieces(self) -> Iterator[bytes]:
        """In pieces if it is large; values are replaced, and never changed where they are."""
        if isinstance(self.state, dict | list) and len(self.state) > PIECE:
            return encoded_pieces(self.state.copy())
        return super().pieces()

    def restore(self, state: bytes) -> None:
        """Take over a state."""
        self.state = _decode(state)


def encoded_pieces(state: dict[str, Any] | list[Any]) -> Iterator[bytes]:
    """MessagePack says first how many there are, and then come the values: parts that leave out
    how many they are make the whole."""
    table = isinstance(state, dict)
    yield (b"\xdf" if table else b"\xdd") + len(state).to_bytes(4, "big")
    values = iter(state.items() if isinstance(state, dict) else state)
    while some := list(islice(values, PIECE)):
        part = _encode(dict(some) if table else some)
        yield part[1 if len(some) < 16 else 3 :]


class Shared:
    """What the objects have in common."""

    def __init__(
        self,
        group: Group,
        machine: MethodMachine,
        members: int | Iterable[NodeId],
        dir: str | Path,
        timeout: float | None,
    ) -> None:
        self.replica: Replica[Any] = Replica(group, machine, members, dir)
        self._timeout = timeout

    async def __aenter__(self: Self) -> Self:
        """Join the group."""
        await self.replica.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.replica.__aexit__(kind, error, trace)

    async def _do(self, *command: Value) -> Any:
        return await self.replica.submit(encoded(command), timeout=self._timeout)

    async def _state(self, look: Callable[[Any], Any]) -> Any:
        return await self.replica.read(lambda machine: look(machine.state), self._timeout)
