"""Several nodes in one process, over real sockets on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from ringcast.api.events import Event, EventsLost, Message, View
from ringcast.api.group import Group
from ringcast.api.node import Node
from ringcast.runtime.loopback import free_ports

DEADLINE_S = 240
"""Far beyond what anything here takes, so that only a hang is caught."""


def configs(root: Path, count: int, **settings: Any) -> list[dict[str, Any]]:
    """Settings of ``count`` nodes that list each other."""
    ports = free_ports(count)
    peers = [f"{node}@127.0.0.1:{port}" for node, port in enumerate(ports, 1)]
    return [
        {
            "id": node,
            "bind": f"127.0.0.1:{port}",
            "peers": peers,
            "state_dir": str(root / f"n{node}"),
            **settings,
        }
        for node, port in enumerate(ports, 1)
    ]


@asynccontextmanager
async def ring(root: Path, count: int, **settings: Any) -> AsyncIterator[list[Node]]:
    """Nodes on one ring."""
    async with AsyncExitStack() as stack:
        nodes = [Node.open(config) for config in configs(root, count, **settings)]
        for node in nodes:
            await stack.enter_async_context(node)
        for node in nodes:
            await node.wait_for_ring(count)
        yield nodes


async def joined(nodes: list[Node], name: str = "g", **bounds: int) -> list[Group]:
    """All nodes in one group, each knowing all."""
    groups = [node.join(name, **bounds) for node in nodes]
    await asyncio.gather(*(group.join() for group in groups))
    for group in groups:
        await eventually(lambda group=group: len(group.members) == len(nodes))  # type: ignore[misc]
    return groups


async def eventually(met: Callable[[], object]) -> None:
    """Wait until ``met()`` is true."""
    async with asyncio.timeout(DEADLINE_S):
        while not met():  # noqa: ASYNC110  # whatever a test asks, no event says it
            await asyncio.sleep(0.005)


async def collect(group: Group, enough: Callable[[list[Event]], object]) -> list[Event]:
    """Read events until there are enough of them."""
    events: list[Event] = []
    async for event in group:
        events.append(event)
        if enough(events):
            break
    return events


async def messages(group: Group, count: int) -> list[Message]:
    """The next ``count`` messages, whatever views come in between."""
    found: list[Message] = []
    async for event in group:
        assert not isinstance(event, EventsLost)
        if isinstance(event, Message):
            found.append(event)
            if len(found) == count:
                break
    return found


def views(events: list[Event]) -> list[tuple[tuple[int, ...], bool]]:
    """Members and kind of the views among events."""
    return [(e.members, e.transitional) for e in events if isinstance(e, View)]


def alike(events: list[Event]) -> list[Event]:
    """Events without why members went, which each member knows in its own way."""
    return [msgspec.structs.replace(e, departures=()) if isinstance(e, View) else e for e in events]


def gist(event: Event) -> object:
    """What matters of an event: the body, or the members, or how much was lost."""
    if isinstance(event, Message):
        return event.body
    return event.members if isinstance(event, View) else event.count


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a story; a hang fails instead of lasting."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * DEADLINE_S):
            await story()

    asyncio.run(bounded())
