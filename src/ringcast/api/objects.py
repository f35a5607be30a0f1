"""Objects to share: a dict, a counter, a queue, a lock and an election, each a replica of its own.

Use ``async with Counter(node.join("visits"), members=3, dir="state/visits") as visits``. All of a
replica's promises hold (docs/api.md). Values are what JSON knows, and bytes. Every method may raise
``NoQuorum`` after the ``timeout`` that was given to the object; without one they wait.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from ringcast.api.events import Message, View
from ringcast.api.group import Group
from ringcast.api.replica import Local
from ringcast.api.shared import MethodMachine, Shared, Value, copied, encoded
from ringcast.api.state_machine import NoQuorum
from ringcast.core.errors import RingcastError
from ringcast.core.ids import NodeId

# --- dict ----------------------------------------------------------------------------------


class _Dict(MethodMachine):
    def do_set(self, _: Message, key: str, value: Value) -> None:
        self.state[key] = value

    def do_delete(self, _: Message, key: str) -> bool:
        return self.state.pop(key, self) is not self

    def do_swap(self, _: Message, key: str, old: Value, new: Value) -> bool:
        if self.state.get(key) != old:
            return False
        self.state[key] = new
        return True


def copied_items(state: dict[str, Value]) -> dict[str, Value]:
    """By value: what cannot be changed is not copied."""
    return {key: copied(value) for key, value in state.items()}


class ReplicatedDict(Shared):
    """Values by key."""

    def __init__(
        self,
        group: Group,
        members: int | Iterable[NodeId],
        dir: str | Path,
        timeout: float | None = None,
    ) -> None:
        super().__init__(group, _Dict({}), members, dir, timeout)

    async def set(self, key: str, value: Value) -> None:
        """Set a key."""
        await self._do("set", key, value)

    async def delete(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return bool(await self._do("delete", key))

    async def compare_and_set(self, key: str, old: Value, new: Value) -> bool:
        """Set a key if its value is ``old``, None standing for no value; whether it was."""
        return bool(await self._do("swap", key, old, new))

    async def get(self, key: str) -> Value:
        """The value, with everything in it that was confirmed before; None if there is none."""
        return await self._state(lambda state: copied(state.get(key)))

    async def items(self) -> dict[str, Value]:
        """A copy of everything."""
        return await self._state(copied_items)  # type: ignore[no-any-return]

    def local(self, key: str) -> Local[Value]:
        """The value here and now, with its age."""
        return self.replica.local(lambda machine: copied(machine.state.get(key)))


# --- counter -------------------------------------------------------------------------------


class _Counter(MethodMachine):
    def do_add(self, _: Message, amount: int) -> int:
        if not isinstance(amount, int):
            raise TypeError(f"a counter takes whole numbers, not {amount!r}")
        if not -(2**63) <= self.state + amount < 2**63:  # a snapshot could not hold it
            raise OverflowError(f"{self.state} + {amount} has more than 64 bits; nothing was added")
        self.state += amount
        return int(self.state)


class Counter(Shared):
    """A whole number of 64 bits, with its sign."""

    def __init__(
        self,
        group: Group,
        members: int | Iterable[NodeId],
        dir: str | Path,
        timeout: float | None = None,
    ) -> None:
        super().__init__(group, _Counter(0), members, dir, timeout)

    async def add(self, amount: int = 1) -> int:
        """Add to it; the number after that. OverflowError if it would have more than 64 bits."""
        return int(await self._do("add", amount))

    async def value(self) -> int:
        """The number, with everything in it that was confirmed before."""
        return int(await self._state(int))


# --- queue ---------------------------------------------------------------------------------


class _Queue(MethodMachine):
    def do_put(self, _: Message, item: Value) -> int:
        self.state.append(item)
        return len(self.state)

    def do_get(self, _: Message) -> list[bytes]:
        """Encoded: in a list, an item that is as deep as it may be would be no result."""
        return [msgspec.msgpack.encode(self.state.pop(0))] if self.state else []


class Queue(Shared):
    """First in, first out. An item is given to one caller; if that one crashes, it is gone.

    A ``get`` that was cancelled, or raised ``NoQuorum``, may have taken an item all the same: the
    next ``get`` of this object gives it.
    """

    def __init__(
        self,
        group: Group,
        members: int | Iterable[NodeId],
        dir: str | Path,
        timeout: float | None = None,
    ) -> None:
        super().__init__(group, _Queue([]), members, dir, timeout)
        self._requests: list[tuple[str, int]] = []
        """A client's name and the number of its next request, for as many gets as were ever under
        way at once; those that were given up are last."""

    async def put(self, item: Value) -> int:
        """Append an item; how many there are then."""
        return int(await self._do("put", item))

    async def get(self) -> Value:
        """Take the first item, or the one of a ``get`` given up; waits while there is none."""
        while True:
            client, number = self._requests.pop() if self._requests else (secrets.token_hex(8), 0)
            try:
                found = await self.replica.submit(
                    encoded(("get",)), client=client, request=number, timeout=self._timeout
                )
            except BaseException:  # nobody knows what it gave: the next one repeats it
                self._requests.append((client, number))
                raise
            self._requests.insert(0, (client, number + 1))
            if found:
                return msgspec.msgpack.decode(found[0])
            await self.replica.until(lambda machine: bool(machine.state))


# --- lock and election ---------------------------------------------------------------------


class Holder(NamedTuple):
    """Who holds a lock or leads, by member, and the fencing token or term."""

    member: NodeId
    token: int


class _Line(MethodMachine):
    """Those who want something that one has at a time: ``[member, name, token]``, token 0 while
    waiting. The first one has it."""

    def do_enter(self, command: Message, name: str) -> None:
        # A member that restarted is another one: what its former life had is free.
        same = [each for each in self.state if each[0] == command.sender]
        line = [each for each in self.state if each[0] != command.sender or each[1] == name]
        if not any(each[1] == name for each in same):
            line.append([command.sender, name, 0])
        self._change(line, command.position.seq)

    def do_exit(self, command: Message, name: str) -> None:
        self._change([each for each in self.state if each[1] != name], command.position.seq)

    def do_give_up(self, command: Message, name: str, held: int) -> None:
        """Leave the line, unless it is held under a token that somebody was given."""
        line = [each for each in self.state if each[1] != name or each[2] == held > 0]
        self._change(line, command.position.seq)

    def on_view(self, view: View) -> None:
        """Free what a lost member had."""
        present = [each for each in self.state if each[0] in view.members]
        self._change(present, view.position.seq)

    def _change(self, line: list[Any], token: int) -> None:
        """The place in the log is the token: it is larger than all before."""
        self.state = line
        if line and not line[0][2]:
            line[0] = [*line[0][:2], token]


class _Waiting(Shared):
    def __init__(
        self,
        group: Group,
        members: int | Iterable[NodeId],
        dir: str | Path,
        timeout: float | None = None,
    ) -> None:
        self._line = _Line([])
        super().__init__(group, self._line, members, dir, timeout)
        self._name = secrets.token_hex(8)
        self._token = 0
        """The last one that a caller was given."""
        self._entering = 0
        """Callers that wait."""
        self._given_up = False
        """Whether one of them went, and nobody left the line for it."""
        self._leaving: asyncio.Task[None] | None = None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._leaving is not None:  # the others see that this member goes
            self._leaving.cancel()
        await super().__aexit__(kind, error, trace)

    async def _enter(self) -> int:
        """A member that was lost for a moment is no longer in the line: it enters again."""
        self._entering += 1
        try:
            while True:
                await self._do("enter", self._name)
                await self.replica.until(lambda _: self._mine() is not None or not self._waits())
                if (token := self._mine()) is not None:
                    self._token, self._given_up = token, False
                    return token
        except (asyncio.CancelledError, NoQuorum):
            self._given_up = True
            if self._leaving is None or self._leaving.done():
                self._leaving = asyncio.create_task(self._leave())
            raise
        finally:
            self._entering -= 1

    async def _leave(self) -> None:
        """For callers that gave up: or this member would get what nobody here waits for. One
        command at a time, however often that happens, and none while somebody waits."""
        with suppress(RingcastError):  # the replica has ended, and so has its place in the line
            while self._given_up and not self._entering:
                self._given_up = False
                await self.replica.submit(encoded(("give_up", self._name, self._token)))

    def _waits(self) -> bool:
        return any(name == self._name for _, name, _ in self._line.state)

    def _mine(self) -> int | None:
        line = self._line.state
        return int(line[0][2]) if line and line[0][1] == self._name else None

    async def lost(self, token: int) -> None:
        """Wait until this member does not have it any more, under ``token``, or cannot know: no
        majority answers within the object's ``timeout``."""
        while self._mine() == token:
            await self.replica.until(lambda _: self._mine() != token or not self.replica.primary)
            try:
                await self.replica.ready(self._timeout)
            except NoQuorum:
                return

    async def _first(self) -> Holder | None:
        first = await self._state(lambda line: line[:1])
        return Holder(first[0][0], first[0][2]) if first else None


class Lock(_Waiting):
    """Held by one member at a time, and free again when its holder is lost.

    A holder that was paused or cut off may believe that it holds the lock. What the lock protects
    must therefore refuse a token smaller than the largest it has seen.
    """

    async def acquire(self) -> int:
        """Wait for the lock; the fencing token, larger than all before. When this is cancelled, or
        raises ``NoQuorum``, the member leaves the line, as soon as a majority answers."""
        return await self._enter()

    async def release(self) -> None:
        """Give it back, or stop waiting for it."""
        await self._do("exit", self._name)

    async def holder(self) -> Holder | None:
        """Who holds it."""
        return await self._first()


class Election(_Waiting):
    """One leader at a time among those who campaign; another one when it is lost."""

    async def campaign(self) -> int:
        """Wait until this member leads; the term, larger than all before. When this is cancelled,
        or raises ``NoQuorum``, it is no candidate, as soon as a majority answers."""
        return await self._enter()

    async def resign(self) -> None:
        """Lead no longer, or stop campaigning."""
        await self._do("exit", self._name)

    async def leader(self) -> Holder | None:
        """Who leads."""
        return await self._first()
