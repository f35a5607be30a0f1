"""A member with a dict, a lock and a queue, and an HTTP face: what ``object_run.py`` starts."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "testing"))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from local import PLACE, PORT, lines, settings, start
from shared_objects import Objects

from ringcast.api.events import View
from ringcast.api.node import Node
from ringcast.core.errors import RingcastError


async def watch(node: Node, me: int) -> None:
    """Write down who is in each view, and when: a lock is taken from who is not."""
    async with node.join("watch") as group:
        with (PLACE / f"views{me}").open("a") as views:
            async for event in group:
                if isinstance(event, View):
                    print(json.dumps([time.monotonic(), event.members]), file=views, flush=True)


async def main(me: int) -> None:
    config = settings(me) | {"fault_file": str(PLACE / f"faults{me}.json")}
    async with Node.open(config) as node, AsyncExitStack() as stack:
        objects = Objects(node, PLACE / f"objects{me}")
        await objects.open(stack)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.IncompleteReadError):
                target = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ", 2)[1]
                asked = {
                    name: values[0] for name, values in parse_qs(urlsplit(target).query).items()
                }
                try:
                    args = json.loads(asked["args"])
                    result = await objects.do(asked["kind"], asked["name"], args)
                    status, body = b"200 OK", json.dumps(result).encode()
                except (RingcastError, TimeoutError) as error:
                    status, body = b"503 Service Unavailable", json.dumps(str(error)).encode()
                head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                writer.write(head % (status, len(body)) + body)
                await writer.drain()
            writer.close()

        watching = asyncio.ensure_future(watch(node, me))
        async with await asyncio.start_server(serve, "127.0.0.1", PORT + 10 + me):
            async for _ in lines():
                pass
        watching.cancel()


if __name__ == "__main__":
    start(main)
