"""A chat room: everybody sees the same lines, joins and leaves in the same order.

Run in up to three terminals, and type:

    python examples/chat.py 1
    python examples/chat.py 2
    python examples/chat.py 3
"""

from __future__ import annotations

from local import lasting, lines, settings, start

from ringcast.api.events import EventsLost, Message, View
from ringcast.api.group import Group
from ringcast.api.node import Node


async def show(room: Group) -> None:
    """Print what happens in the room, in the order that is the same for everybody."""
    async for event in room:
        match event:
            case Message(sender=who, body=body):
                print(f"<{who}> {body.decode()}", flush=True)
            case View(members=members, transitional=False):
                print(f"* here are: {' '.join(map(str, members))}", flush=True)
            case EventsLost(count=count):
                print(f"* {count} lines missed", flush=True)


async def main(me: int) -> None:
    """Show the room, and send what is typed, until the input ends."""
    async with (
        Node.open(settings(me)) as node,
        node.join("chat") as room,
        lasting(show(room)) as showing,
    ):
        async for line in lines():
            await room.send(line.encode())
        await room.leave()
        await showing


if __name__ == "__main__":
    start(main)
