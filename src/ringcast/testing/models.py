"""Replicated objects when operations come one at a time: models for ``OperationHistory.check``."""

from __future__ import annotations

from typing import Any

from ringcast.testing.linearizable import IMPOSSIBLE, UNKNOWN, Operation


def no_operation(known: str, operation: Operation) -> ValueError:
    """The error for an operation that a model does not have: it names those that it has."""
    asked = f"{operation.name}({', '.join(map(repr, operation.args))})"
    return ValueError(f"{known}, and no {asked}: record operations under these names")


class DictModel:
    """``ReplicatedDict``: set, get, delete, compare_and_set. Values must be hashable."""

    KNOWN = "a DictModel has set(key, value), get(key), delete(key), compare_and_set(key, old, new)"

    def initial(self) -> Any:
        """Nothing under any key."""
        return None

    def part(self, operation: Operation) -> Any:
        """Its key."""
        if not operation.args:
            raise no_operation(self.KNOWN, operation)
        return operation.args[0]

    def step(self, state: Any, operation: Operation) -> Any:
        """The state is the value of the key."""
        match operation.name, *operation.args[1:]:
            case "set", value:
                result, after = None, value
            case ("get",):
                result, after = state, state
            case ("delete",):
                result, after = state is not None, None
            case "compare_and_set", old, new:
                result, after = state == old, new if state == old else state
            case _:
                raise no_operation(self.KNOWN, operation)
        return after if operation.result in (UNKNOWN, result) else IMPOSSIBLE


class QueueModel:
    """``Queue``: put and get. Items must be hashable. What a get without an outcome took, because
    its caller gave up, a later one may give."""

    def initial(self) -> Any:
        """No items, and none that were taken for callers who gave up."""
        return ((), ())

    def part(self, operation: Operation) -> Any:
        """It is one."""
        return None

    def step(self, state: Any, operation: Operation) -> Any:
        """The state is the items; a get waits while there are none."""
        items, kept = state
        match operation.name, *operation.args:
            case "put", item:
                known = operation.result in (UNKNOWN, len(items) + 1)
                return ((*items, item), kept) if known else IMPOSSIBLE
            case ("get",) if operation.result is UNKNOWN:
                taken = tuple(sorted((*kept, *items[:1]), key=hash))  # in whichever order
                return (items[1:], taken) if items else IMPOSSIBLE
            case ("get",) if operation.result in kept:
                at = kept.index(operation.result)
                return (items, kept[:at] + kept[at + 1 :])
            case ("get",):
                return (items[1:], kept) if items[:1] == (operation.result,) else IMPOSSIBLE
        raise no_operation("a QueueModel has put(item), get()", operation)


class LockModel:
    """``Lock``: acquire, which returns the token (again, to who holds it); release; holder, which
    returns who and the token, or None. ``lost`` has a client as its argument and no known outcome:
    from its call on the lock may be taken from that client, which crashed or was cut off."""

    def initial(self) -> Any:
        """Free, and no token was given."""
        return (None, 0, 0)

    def part(self, operation: Operation) -> Any:
        """It is one."""
        return None

    def step(self, state: Any, operation: Operation) -> Any:
        """The state is who holds it, its token (0 if nobody was told) and the largest so far."""
        holder, _, largest = state
        result, who = operation.result, operation.client
        match operation.name:
            case "acquire" if holder == who:
                return self._seen(state, result if result is UNKNOWN else (who, result))
            case "acquire":
                if holder is not None or (result is not UNKNOWN and result <= largest):
                    return IMPOSSIBLE
                return (who, 0, largest) if result is UNKNOWN else (who, result, result)
            case "release":
                return (None, 0, largest) if holder == who else state
            case "lost" if len(operation.args) == 1:
                return (None, 0, largest) if holder == operation.args[0] else IMPOSSIBLE
            case "holder":
                return self._seen(state, result)
        known = "a LockModel has acquire(), release(), holder(), lost(client)"
        raise no_operation(known, operation)

    def _seen(self, state: Any, result: Any) -> Any:
        holder, token, largest = state
        if result is UNKNOWN or (result is None and holder is None):
            return (holder, token, largest)
        if result is None or result[0] != holder:
            return IMPOSSIBLE
        if token:
            return state if result[1] == token else IMPOSSIBLE
        return (holder, result[1], result[1]) if result[1] > largest else IMPOSSIBLE
