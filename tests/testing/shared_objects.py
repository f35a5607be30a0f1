"""A dict, a lock and a queue at each of three members, and clients that write down what they are
told: what the simulated and the live runs have in common."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import ringcast
from ringcast.api.objects import Lock, Queue, ReplicatedDict
from ringcast.testing import DictModel, LockModel, Model, Operation, OperationHistory, QueueModel

ANSWER_S = 2.0


class Objects:
    """Those of one member."""

    def __init__(self, node: ringcast.Node, folder: Path) -> None:
        def made(kind: Any) -> Any:
            name = kind.__name__
            return kind(node.join(name), (1, 2, 3), folder / name, ANSWER_S)

        self.dict, self.lock, self.queue = map(made, (ReplicatedDict, Lock, Queue))

    async def open(self, stack: AsyncExitStack) -> None:
        for each in (self.dict, self.lock, self.queue):
            await stack.enter_async_context(each)

    async def do(self, kind: str, name: str, args: list[Any]) -> Any:
        """Call a method; TimeoutError if it takes too long, and then nobody knows."""
        return await asyncio.wait_for(getattr(getattr(self, kind), name)(*args), ANSWER_S)


class Clients:
    """What they ask for next, and what they were told."""

    def __init__(self, clock: Any) -> None:
        self.histories = {kind: OperationHistory(clock) for kind in ("dict", "lock", "queue")}
        self._gets: dict[int, list[Operation]] = {}
        """Of the queue, by the member that was asked."""

    def ask(self, rng: Random, number: int) -> tuple[str, str, list[Any]]:
        """Something for the dict or the queue."""
        key = rng.choice("xyz")
        return rng.choice(
            (
                ("dict", "set", [key, number]),
                ("dict", "get", [key]),
                ("dict", "get", [key]),
                ("dict", "delete", [key]),
                ("dict", "compare_and_set", [key, None, number]),
                ("queue", "put", [number]),
                ("queue", "get", []),
            )
        )

    def begin(self, client: str, member: int, kind: str, name: str, args: list[Any]) -> Operation:
        operation = self.histories[kind].begin(client, name, *args)
        if name == "get" and kind == "queue":
            self._gets.setdefault(member, []).append(operation)
        return operation

    def end(self, kind: str, operation: Operation, result: Any) -> None:
        if operation.name == "holder" and result is not None:
            result = (f"m{result[0]}", result[1])
        self.histories[kind].end(operation, result)

    def lost(self, member: int, at: float) -> None:
        """From now on the others may take the lock from a member."""
        lost = Operation("faults", "lost", (f"m{member}",), at)
        self.histories["lock"].operations.append(lost)

    def _loosen(self) -> None:
        """What giving up means: a member's next get may go on with one that was given up, from
        whose beginning on it counts, and a lock may be left as soon as it was got."""
        for gets in self._gets.values():
            given_up = [each.called for each in gets if each.returned == float("inf")]
            for each in gets:
                each.called = min([each.called, *given_up])
        for each in [*self.histories["lock"].operations]:
            if each.name == "acquire" and each.returned == float("inf"):
                self.lost(int(each.client[1:]), each.called)

    def check(self) -> None:
        self._loosen()
        models: dict[str, Model] = {"dict": DictModel(), "lock": LockModel(), "queue": QueueModel()}
        for kind, history in self.histories.items():
            history.check(models[kind])

    def answered(self, kind: str) -> int:
        return sum(each.returned < float("inf") for each in self.histories[kind].operations)
