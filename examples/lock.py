"""A lock with fencing tokens, free again when its holder crashes.

The token is the position in the order at which the lock was given. A holder that was paused, or
cut off, may still believe that it holds the lock; what the lock protects must therefore refuse
any token smaller than the largest it has seen.

    python examples/lock.py 1        (and 2, and 3, in other terminals)

Type ``acquire``, ``release``.
"""

from __future__ import annotations

import msgspec
from local import lines, settings, start

from ringcast import Position
from ringcast.api.events import Message, View
from ringcast.api.node import Node
from ringcast.api.replica import Replica, StateMachine


class Lock(StateMachine[None]):
    """Who holds the lock, since when, and who waits."""

    def __init__(self, me: int) -> None:
        self.me = me
        self.token: Position | None = None
        self.queue: list[int] = []  # the first one holds the lock

    def apply(self, command: Message) -> None:
        if command.body == b"acquire" and command.sender not in self.queue:
            self._change([*self.queue, command.sender], command.position)
        elif command.body == b"release":
            self._change([n for n in self.queue if n != command.sender], command.position)

    def on_view(self, view: View) -> None:
        """Who comes from the other side of a partition may have given out larger tokens."""
        self._change([n for n in self.queue if n in view.members], view.position, anew=True)

    def _change(self, queue: list[int], position: Position, anew: bool = False) -> None:
        """A new first one gets the lock, with a token larger than all before."""
        changed, self.queue = queue[:1] != self.queue[:1], queue
        if changed or (anew and queue):
            self.token = position
            self._show()

    def _show(self) -> None:
        if self.queue:
            who = "me" if self.queue[0] == self.me else self.queue[0]
            print(f"held by {who}, token {self.token}", flush=True)
        else:
            print("free", flush=True)

    def snapshot(self) -> bytes:
        return msgspec.json.encode((self.token, self.queue))

    def restore(self, state: bytes) -> None:
        decoded = msgspec.json.decode(state, type=tuple[Position | None, list[int]])
        self.token, self.queue = decoded
        self._show()


async def main(me: int) -> None:
    """Submit what is typed."""
    lock = Lock(me)
    async with Node.open(settings(me)) as node, Replica(node.join("lock"), lock) as replica:
        print("ready", flush=True)
        async for line in lines():
            await replica.submit(line.encode())


if __name__ == "__main__":
    start(main)
