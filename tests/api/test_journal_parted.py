"""A node with a journal that was away while the others parted and merged."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from journals import bodies, caught_up, folder, opened, rows, with_journals
from loopback import eventually, joined, run
from typer.testing import CliRunner

from ringcast.cli.app import app


@pytest.mark.parametrize("protocol", ["totem", "total"])
def test_both_sides_of_a_partition_are_caught_up_with(tmp_path: Path, protocol: str) -> None:
    """Each side left the ring in a transitional view of its own, at one and the same number."""
    settings = with_journals(tmp_path, 3, protocol=protocol)
    for each in settings:
        each["fault_file"] = str(tmp_path / f"{each['id']}.faults")

    def deaf(node: int, *to: int) -> None:
        Path(settings[node - 1]["fault_file"]).write_text(json.dumps({"deaf_to": to}))

    async def story() -> None:
        async with opened(settings[:2]) as nodes:
            async with opened(settings[2:]) as (third,):
                groups = await joined([*nodes, third])
                await eventually(lambda: caught_up([*nodes, third]))
                await groups[2].send(b"before", durable=True)
            await eventually(lambda: [node.ring for node in nodes] == [(1, 2)] * 2)
            await groups[0].send(b"two of us", durable=True)
            deaf(1, 2)
            deaf(2, 1)
            await eventually(lambda: [node.ring for node in nodes] == [(1,), (2,)])
            sends = [group.send(b"side %d" % group.me, durable=True) for group in groups[:2]]
            await asyncio.gather(*sends)
            deaf(1)
            deaf(2)
            await eventually(lambda: [node.ring for node in nodes] == [(1, 2)] * 2)
            await groups[1].send(b"merged", durable=True)
            async with opened(settings[2:]) as (third,), third.join("g") as group:
                await eventually(lambda: caught_up([third]) or not third.running)
                assert third.running, third.metrics()["journal"]
                await group.send(b"after", durable=True)

    run(story)
    sides = [b"side 1", b"side 2"]
    assert bodies(tmp_path, 3) == [b"before", b"two of us", *sides, b"merged", b"after"]
    parted = [row for row in rows(tmp_path, 3) if row["kind"] == "transitional"]
    for member in (1, 2):
        assert any(row["members"] == [member] for row in parted)
    journals = [str(folder(tmp_path, member)) for member in (1, 2, 3)]
    done = CliRunner().invoke(app, ["journal", "check", *journals])
    assert done.exit_code == 0, done.output
