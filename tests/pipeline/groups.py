"""Journals to read, and live groups with journals, for tests of the source and the sink."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ringcast.api.node import Node
from ringcast.core.ids import Level, Position, ViewId
from ringcast.journal.format import layout
from ringcast.journal.format.layout import Entry, view_entry
from ringcast.journal.merged_reader import whole
from ringcast.journal.writer import Journal, Limits
from ringcast.pipeline.stream.source import RingcastSource, RingcastStreamReader
from ringcast.runtime.loopback import free_ports

RING = ViewId(8, 1)
SMALL = Limits(segment_bytes=20_000)
KEEP_LITTLE = Limits(segment_bytes=SMALL.segment_bytes, keep_bytes=1)


def entries(first: int, last: int) -> list[Entry]:
    return [
        layout.entry(Position(0, 8, 1, seq, 0), RING, layout.MESSAGE, 2, Level.AGREED,
              "orders" if seq % 3 else "other", (), (b"%d" % seq, b"x" * 50), seq)
        for seq in range(first, last + 1)
    ]  # fmt: skip


def write(folder: Path, first: int, last: int, view: bool = False) -> None:
    journal = Journal(folder, SMALL)
    if view:
        journal.append([view_entry(Position.at(RING, 0), RING, (1, 2, 3), False, 0)])
    for at in range(first, last + 1, 40):
        journal.append(entries(at, min(at + 39, last)))
    journal.close()


def wanted(first: int, last: int) -> list[bytes]:
    return [body for each in entries(first, last) for body in msgspec.msgpack.decode(each.data)[2]]


@contextmanager
def group(tmp_path: Path, count: int = 2, **more: Any) -> Iterator[list[dict[str, Any]]]:
    """Members with journals, running in a thread, all in the group ``g``; their settings."""
    ports = free_ports(count)
    peers = [f"{id}@127.0.0.1:{port}" for id, port in enumerate(ports, 1)]
    settings = [
        {
            "id": id,
            "bind": f"127.0.0.1:{port}",
            "peers": peers,
            "state_dir": str(tmp_path / f"state-{id}"),
            "journal": str(tmp_path / f"journal-{id}"),
            "journal_patience_s": 5.0,
            **more,
        }
        for id, port in enumerate(ports, 1)
    ]
    ready, end = threading.Event(), threading.Event()

    async def live() -> None:
        nodes = [Node.open(each) for each in settings]
        for node in nodes:
            await node.start()
        for node in nodes:
            await node.wait_for_ring(count)
        async with nodes[0].join("g") as one:
            await one.send_many([b"%d" % n for n in range(50)], durable=True)
            for node in nodes:
                await node.caught_up()
            ready.set()
            await asyncio.to_thread(end.wait)
        for node in nodes:
            await node.close()

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    try:
        assert ready.wait(60)
        yield settings
    finally:
        end.set()
        thread.join(60)


def texts(folder: str) -> list[bytes]:
    rows = [row for batch in whole([Path(folder)]) for row in batch.to_pylist()]
    return [row["body"] for row in rows if row["kind"] == "message"]


def arrived(folder: str, count: int) -> list[bytes]:
    """The messages in a journal, when so many are there, or when it has taken too long."""
    deadline = time.monotonic() + 30
    while len(found := texts(folder)) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def reader(**options: Any) -> RingcastStreamReader:
    source = RingcastSource({name: str(value) for name, value in options.items()})
    schema: Any = source.schema()
    return source.streamReader(schema)


def read(stream: RingcastStreamReader, start: dict[str, int], end: dict[str, int]) -> list[bytes]:
    return [
        body
        for part in stream.partitions(start, end)
        for batch in stream.read(part)
        for body in batch.column("body").to_pylist()
    ]


def place(offset: dict[str, Any]) -> Position:
    return Position.parse(offset["position"])
