"""Linearizability: whether what clients were told can be explained by operations that take effect
one after the other, each at some moment between its call and its return.

Source    J. Wing and C. Gong, *Testing and verifying concurrent objects*, JPDC 1993 (the search);
          G. Lowe, *Testing for linearizability*, CCPE 2017 (configurations that were visited are
          not visited again); A. Horn and D. Kroening, FORTE 2015 (a history with parts that do
          not touch each other, such as the keys of a dict, is searched part by part).

An operation without a known outcome takes effect at any moment after its call, or never.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from math import inf
from typing import Any, Protocol, TypeVar

import msgspec

from ringcast.testing.errors import NotLinearizable, Undecided

T = TypeVar("T")

MOST = 1_000_000
"""Configurations that are visited before a search is given up."""


class _Unknown:
    """The outcome of an operation whose client was told nothing."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Any = _Unknown()
IMPOSSIBLE: Any = object()
"""What a model says of an operation that cannot have this result in this state."""


class Operation(msgspec.Struct):
    """What a client asked, what it was told, and when."""

    client: str
    name: str
    args: tuple[Any, ...]
    called: float
    returned: float = inf
    result: Any = UNKNOWN

    def __str__(self) -> str:
        asked = f"{self.name}({', '.join(map(repr, self.args))})"
        until = "" if self.returned == inf else f" to {self.returned:.6f}"
        return f"{self.called:.6f}{until} {self.client}: {asked} -> {self.result!r}"


class Model(Protocol):
    """An object as it is when operations come one at a time."""

    def initial(self) -> Hashable:
        """The state before the first operation."""

    def step(self, state: Any, operation: Operation) -> Hashable:
        """The state after an operation, or ``IMPOSSIBLE`` if it cannot have its result here. A
        result that is ``UNKNOWN`` is any."""

    def part(self, operation: Operation) -> Hashable:
        """Which part of the object an operation is about; parts do not touch each other."""


class OperationHistory:
    """Operations as clients see them. ``clock`` is one that all of them share."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.operations: list[Operation] = []
        self._clock = clock

    async def record(self, client: str, name: str, args: Sequence[Any], doing: Awaitable[T]) -> T:
        """Await an operation, and write down how it went. One that raises has no known outcome."""
        operation = self.begin(client, name, *args)
        result = await doing
        self.end(operation, result)
        return result

    def begin(self, client: str, name: str, *args: Any) -> Operation:
        """An operation is called; without ``end`` its outcome stays unknown."""
        operation = Operation(client, name, args, self._clock())
        self.operations.append(operation)
        return operation

    def end(self, operation: Operation, result: Any) -> None:
        """It returned."""
        operation.returned, operation.result = self._clock(), result

    def check(self, model: Model, most: int = MOST) -> None:
        """Raise ``NotLinearizable`` if nothing explains this history, ``Undecided`` if it is too
        long to tell."""
        parts: dict[Hashable, list[Operation]] = {}
        for operation in self.operations:
            parts.setdefault(model.part(operation), []).append(operation)
        for some in parts.values():
            check(some, model, most)


class _Entry:
    """A call or a return in the list of a search; what was given a place is taken out."""

    __slots__ = ("before", "call", "next", "number", "operation")

    def __init__(self, operation: Operation | None, number: int, call: _Entry | None) -> None:
        self.operation, self.number, self.call = operation, number, call
        self.before: _Entry = self
        self.next: _Entry | None = None

    def take_out(self) -> None:
        self.before.next = self.next
        if self.next is not None:
            self.next.before = self.before

    def put_back(self) -> None:
        self.before.next = self
        if self.next is not None:
            self.next.before = self


def check(operations: Iterable[Operation], model: Model, most: int = MOST) -> None:
    """As ``OperationHistory.check``, for the operations on one part."""
    operations = sorted(operations, key=lambda operation: operation.called)
    head, returns = _listed(operations)
    twins = _twins(operations)
    state = model.initial()
    placed, left = 0, sum(operation.returned < inf for operation in operations)
    visited: set[tuple[int, Hashable]] = set()
    order: list[tuple[_Entry, Hashable]] = []
    best: list[Operation] = []
    entry = head.next
    while left:
        if entry is not None and entry.call is None:  # a call: may it take effect here?
            operation = entry.operation
            assert operation is not None
            after = model.step(state, operation)
            spot = (placed | 1 << entry.number, after)
            if returns[entry.number] is None and (after == state or twins[entry.number] & ~placed):
                entry = entry.next  # it would change nothing, or an earlier one like it is left
            elif after is not IMPOSSIBLE and spot not in visited:
                visited.add(spot)
                if len(visited) > most:
                    raise Undecided(f"{len(operations)} operations: gave up after {most} states")
                order.append((entry, state))
                placed, state = spot
                entry.take_out()
                if (end := returns[entry.number]) is not None:
                    end.take_out()
                    left -= 1
                entry = head.next
            else:
                entry = entry.next
            continue
        if len(order) >= len(best):
            best = [each.operation for each, _ in order if each.operation]
        if not order:
            raise NotLinearizable(_told(operations, best))
        entry, state = order.pop()  # something returned before it had a place: take back the last
        placed &= ~(1 << entry.number)
        if (end := returns[entry.number]) is not None:
            end.put_back()
            left += 1
        entry.put_back()
        entry = entry.next


def _listed(operations: list[Operation]) -> tuple[_Entry, list[_Entry | None]]:
    """Calls and returns in the order of time, after a head; and the return of each operation."""
    events: list[tuple[float, int, int, _Entry]] = []
    returns: list[_Entry | None] = []
    for number, operation in enumerate(operations):
        call = _Entry(operation, number, None)
        events.append((operation.called, 0, number, call))
        known = operation.returned < inf
        returns.append(_Entry(operation, number, call) if known else None)
        if (end := returns[-1]) is not None:
            events.append((operation.returned, 1, number, end))
    last = head = _Entry(None, -1, None)
    for *_, entry in sorted(events, key=lambda event: event[:3]):
        last.next, entry.before = entry, last
        last = entry
    return head, returns


def _twins(operations: list[Operation]) -> list[int]:
    """Of operations without an outcome that are alike, each waits for the one before: as a bit."""
    last: dict[str, int] = {}
    found = []
    for number, each in enumerate(operations):
        name = f"{each.client} {each.name} {each.args}" if each.returned == inf else ""
        found.append(last.get(name, 0))
        if name:
            last[name] = 1 << number
    return found


def _told(operations: list[Operation], best: list[Operation]) -> str:
    """How far the best attempt came, and what it could not explain."""
    placed = {id(operation) for operation in best}
    stuck = [each for each in operations if id(each) not in placed and each.returned < inf]
    stuck.sort(key=lambda operation: operation.returned)
    lines = [f"{len(operations)} operations cannot have taken effect one after the other."]
    lines += ["The longest explanation ends with", *(f"  {each}" for each in best[-5:])]
    lines += ["and after that none of these can come:", *(f"  {each}" for each in stuck[:5])]
    return "\n".join(lines)
