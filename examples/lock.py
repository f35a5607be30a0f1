"""A lock with fencing tokens, free again when its holder crashes.

The token is larger than all that were given before. A holder that was paused, or cut off, may
still believe that it holds the lock; what the lock protects must therefore refuse any token
smaller than the largest it has seen.

    python examples/lock.py 1        (and 2, and 3, in other terminals)

Type ``acquire``, ``release``, ``who``.
"""

from __future__ import annotations

import asyncio

from local import PLACE, lasting, lines, settings, start

from ringcast.api.node import Node
from ringcast.api.objects import Lock
from ringcast.api.state_machine import NoQuorum


async def carry_out(lock: Lock, line: str) -> str:
    """The answer to what was typed."""
    try:
        match line:
            case "acquire":
                return f"held by me, token {await lock.acquire()}"
            case "release":
                await lock.release()
                return "released"
            case "who":
                holder = await lock.holder()
                return f"held by {holder.member}, token {holder.token}" if holder else "free"
        return "acquire, release, who"
    except NoQuorum as error:
        return f"error: {error}"


async def answer(lock: Lock, line: str) -> None:
    print(await carry_out(lock, line), flush=True)


async def main(me: int) -> None:
    """Carry out what is typed; ``acquire`` waits, and more may be typed meanwhile."""
    async with (
        Node.open(settings(me)) as node,
        Lock(node.join("lock"), 3, PLACE / f"lock{me}", timeout=5) as lock,
        lasting(lock.replica.wait()),
    ):
        print("ready", flush=True)
        async with asyncio.TaskGroup() as tasks:
            async for line in lines():
                answered = tasks.create_task(answer(lock, line))
                if line != "acquire":
                    await answered


if __name__ == "__main__":
    start(main)
