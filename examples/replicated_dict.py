"""A dict on three nodes that survives crashes of any, and of all.

    python examples/replicated_dict.py 1        (and 2, and 3, in other terminals)

Type ``set KEY VALUE``, ``add KEY NUMBER``, ``get KEY``, ``all``. With two of the three running,
everything works; with one, nothing is promised, and it says so.
"""

from __future__ import annotations

import json

from local import PLACE, lasting, lines, settings, start

from ringcast.api.node import Node
from ringcast.api.objects import ReplicatedDict
from ringcast.api.state_machine import NoQuorum


async def add(table: ReplicatedDict, key: str, amount: int) -> int:
    """Add to a number that others may change meanwhile."""
    while True:
        old = await table.get(key)
        if await table.compare_and_set(key, old, new := (old or 0) + amount):
            return int(new)


async def carry_out(table: ReplicatedDict, line: str) -> str:
    """The answer to what was typed."""
    match line.split():
        case ["set", key, value]:
            await table.set(key, value)
            return f"{key} = {value}"
        case ["add", key, amount]:
            return f"{key} = {await add(table, key, int(amount))}"
        case ["get", key]:
            return f"{key} = {await table.get(key)}"
        case ["all"]:
            return json.dumps(await table.items(), sort_keys=True)
    raise ValueError("set KEY VALUE, add KEY NUMBER, get KEY, all")


async def main(me: int) -> None:
    """Carry out what is typed."""
    async with (
        Node.open(settings(me)) as node,
        ReplicatedDict(node.join("dict"), 3, PLACE / f"dict{me}", timeout=5) as table,
        lasting(table.replica.wait()),
    ):
        print("ready", flush=True)
        async for line in lines():
            try:
                print(await carry_out(table, line), flush=True)
            except (ValueError, NoQuorum) as error:
                print(f"error: {error}", flush=True)


if __name__ == "__main__":
    start(main)
