"""Caches in front of a shared store: who writes tells everybody to forget the key.

The write is done when the message has its place in the order, so a member that reads after it
in the order reads the new value. Whoever may have missed a message forgets everything: after
EventsLost, and on every view, since the other members may have written while they were apart.

    python examples/cache_invalidation.py 1        (and 2, and 3, in other terminals)

Type ``put colour red``, ``get colour``.
"""

from __future__ import annotations

from pathlib import Path

from local import PLACE, lasting, lines, settings, start

from ringcast.api.events import Message
from ringcast.api.group import Group
from ringcast.api.node import Node
from ringcast.core.ids import Level

STORE = PLACE / "store"
"""Stands for a database that all processes share, and that is slow to read."""


class Cache:
    """Values read before, until somebody writes them."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.values: dict[str, str] = {}

    def get(self, key: str) -> tuple[str, str]:
        """The value and where it came from."""
        if key in self.values:
            return self.values[key], "cache"
        path: Path = STORE / key
        self.values[key] = path.read_text() if path.exists() else "nothing"
        return self.values[key], "store"

    async def put(self, key: str, value: str) -> None:
        """Write, then have it forgotten everywhere: safe, so every member will."""
        (STORE / key).write_text(value)
        await self.group.send(key.encode(), Level.SAFE)

    async def follow(self) -> None:
        """Forget what others have written."""
        async for event in self.group:
            if isinstance(event, Message):
                self.values.pop(event.body.decode(), None)
                print(f"forgot {event.body.decode()}", flush=True)
            else:
                self.values.clear()
                print("forgot everything", flush=True)


async def main(me: int) -> None:
    """Carry out what is typed."""
    STORE.mkdir(parents=True, exist_ok=True)
    async with Node.open(settings(me)) as node, node.join("cache") as group:
        cache = Cache(group)
        async with lasting(cache.follow()):
            async for line in lines():
                match line.split():
                    case ["put", key, value]:
                        await cache.put(key, value)
                        print(f"wrote {key}", flush=True)
                    case ["get", key]:
                        print("{} = {} (from {})".format(key, *cache.get(key)), flush=True)


if __name__ == "__main__":
    start(main)
