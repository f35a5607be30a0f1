"""A dict with a copy in every process: reads are local, writes are ordered.

A process that starts later, or comes back after a crash, gets the state from the others.

    python examples/replicated_dict.py 1        (and 2, and 3, in other terminals)

Type ``set colour red``, ``get colour``, ``add visits 1``, ``all``.
"""

from __future__ import annotations

import json

from local import lines, settings, start

from ringcast.api.events import Message
from ringcast.api.node import Node
from ringcast.api.replica import Replica, StateMachine


class Dict(StateMachine[str]):
    """The state machine: a dict of strings, changed by commands as they are typed."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def apply(self, command: Message) -> str:
        match command.body.decode().split():
            case ["set", key, value]:
                self.values[key] = value
            case ["add", key, amount]:  # read and write in one step: no update is lost
                self.values[key] = str(int(self.values.get(key, "0")) + int(amount))
            case _:
                raise ValueError("set KEY VALUE, add KEY NUMBER, get KEY, all")
        return f"{key} = {self.values[key]}"

    def snapshot(self) -> bytes:
        return json.dumps(self.values).encode()

    def restore(self, state: bytes) -> None:
        self.values = json.loads(state)


async def main(me: int) -> None:
    """Carry out what is typed."""
    table = Dict()
    async with Node.open(settings(me)) as node, Replica(node.join("dict"), table) as replica:
        print(f"ready with {len(table.values)} entries", flush=True)
        async for line in lines():
            match line.split():
                case ["get", key]:
                    print(f"{key} = {table.values.get(key)}", flush=True)
                case ["all"]:
                    print(json.dumps(table.values, sort_keys=True), flush=True)
                case _:
                    try:
                        print(await replica.submit(line.encode()), flush=True)
                    except ValueError as error:
                        print(f"error: {error}", flush=True)


if __name__ == "__main__":
    start(main)
