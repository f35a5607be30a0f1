"""Journals of nodes whose rings are joined by a gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from journals import bodies, caught_up, folder, opened, rows
from loopback import eventually, joined, run
from typer.testing import CliRunner

from ringcast.api.node import Node
from ringcast.cli.app import app
from ringcast.core.ids import Position
from ringcast.journal.merged_reader import whole
from ringcast.runtime.loopback import free_ports

NORTH, SOUTH = (1, 2, 5), (3, 4, 15)
"""Two rings; 5 and 15 are the gateway's ids there."""


def networked(root: Path) -> list[dict[str, Any]]:
    """Settings of nodes 1 to 4, and of gateway 5."""
    at = dict(zip((*NORTH, *SOUTH), free_ports(6), strict=True))

    def port(pid: int) -> dict[str, Any]:
        peers = [f"{q}@127.0.0.1:{at[q]}" for q in (NORTH if pid in NORTH else SOUTH)]
        return {"bind": f"127.0.0.1:{at[pid]}", "peers": peers}

    def node(id: int) -> dict[str, Any]:
        return {
            "id": id,
            "protocol": "totem-multi",
            "state_dir": str(root / f"n{id}"),
            "journal": str(folder(root, id)),
            "settings": {"acyclic": True},
        }

    nodes = [node(id) | port(id) for id in (1, 2, 3, 4)]
    return [*nodes, node(5) | {"ports": [port(5), {"id": 15, **port(15)}]}]


async def all_joined(nodes: list[Node]) -> None:
    await asyncio.gather(*(node.wait_for_ring(len(nodes)) for node in nodes))


def test_journals_of_joined_rings(tmp_path: Path) -> None:
    """The same records in the same order; who was away catches up from its own ring."""
    settings = networked(tmp_path)
    first = [b"first %d" % n for n in range(30)]
    meanwhile = [b"meanwhile %d" % n for n in range(100)]

    async def story() -> None:
        async with opened([each for each in settings if each["id"] != 4]) as nodes:
            async with opened([settings[3]]) as (fourth,):
                await all_joined([*nodes, fourth])
                groups = await joined([*nodes, fourth])
                await eventually(lambda: caught_up([*nodes, fourth]))
                last = Position(0, 0, 0, 0, 0)
                for n, body in enumerate(first):
                    position = await groups[n % 5].send(body, durable=True)
                    assert position > last and position.timestamp
                    last = position
            await asyncio.gather(*(node.wait_for_ring(4) for node in nodes))
            for n, body in enumerate(meanwhile):
                await groups[n % 4].send(body, durable=n % 25 == 0)
            async with opened([settings[3]]) as (fourth,), fourth.join("g") as group:
                await all_joined([*nodes, fourth])
                await fourth.caught_up()
                await group.send(b"after", durable=True)
            for each in groups[:4]:
                await each.send(b"last", durable=True)

    run(story)
    wanted = [*first, *meanwhile, b"after"]
    assert bodies(tmp_path, 4) == wanted
    for id in (1, 2, 3, 5):
        assert bodies(tmp_path, id)[: len(wanted)] == wanted, id
    assert not [row for row in rows(tmp_path, 4) if row["kind"] == "gap"]
    for id in range(1, 6):
        result = CliRunner().invoke(app, ["journal", "check", str(folder(tmp_path, id))])
        assert result.exit_code == 0, result.output
    together = [
        row["body"]
        for batch in whole([folder(tmp_path, id) for id in (1, 3, 4)])
        for row in batch.to_pylist()
        if row["kind"] == "message"
    ]
    assert together[: len(wanted)] == wanted, "each once, from whichever journal"


def test_rows_are_published_once(tmp_path: Path) -> None:
    """A writer's rows count in the topology they were sent in, and a repeated batch is dropped."""
    settings = networked(tmp_path)

    async def story() -> None:
        async with opened(settings) as nodes:
            await all_joined(nodes)
            groups = await joined(nodes)
            one = await nodes[0].publish("g", "writer", 0, 0, (b"a", b"b"))
            again = await nodes[3].publish("g", "writer", 0, 0, (b"a", b"b"))
            assert again >= one
            await groups[1].send(b"end", durable=True)

    run(story)
    assert bodies(tmp_path, 2) == [b"a", b"b", b"end"]
