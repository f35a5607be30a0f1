"""Nodes that keep journals, and what is in them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from loopback import configs

from ringcast.api.node import Node
from ringcast.journal.merged_reader import whole


def with_journals(tmp_path: Path, count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        each | {"journal": str(tmp_path / f"journal-{each['id']}")} | more
        for each in configs(tmp_path, count)
    ]


def folder(tmp_path: Path, id: int) -> Path:
    return tmp_path / f"journal-{id}"


def rows(tmp_path: Path, id: int) -> list[dict[str, Any]]:
    found = [row for batch in whole([folder(tmp_path, id)]) for row in batch.to_pylist()]
    for row in found:
        del row["time"]  # each node's own
    return found


def bodies(tmp_path: Path, id: int) -> list[bytes]:
    return [row["body"] for row in rows(tmp_path, id) if row["kind"] == "message"]


@contextlib.asynccontextmanager
async def opened(settings: list[dict[str, Any]]) -> AsyncIterator[list[Node]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Node.open(each)) for each in settings]


def caught_up(nodes: list[Node]) -> bool:
    return all(node.metrics()["journal"]["caught_up"] for node in nodes)  # type: ignore[index]
