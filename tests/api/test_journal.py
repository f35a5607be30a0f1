"""Nodes with journals: durable sends, identical records, catching up, a full disk."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from journals import bodies, caught_up, folder, opened, rows, with_journals
from loopback import configs, eventually, joined, run

from ringcast.api.node import Node
from ringcast.journal.layout import Place
from ringcast.journal.log import Journal, segment_names
from ringcast.journal.segment import SegmentFile
from ringcast.runtime.errors import ConfigError, NodeStopped


def test_journals_of_the_same_configurations_are_identical(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(with_journals(tmp_path, 3)) as nodes:
            groups = await joined(nodes)
            await eventually(lambda: caught_up(nodes))
            for n in range(30):
                position = await groups[n % 3].send(b"%d" % n, durable=True)
                last = on_disk(folder(tmp_path, 1 + n % 3))
                assert last >= Place(position.ring.seq, position.ring.rep, position.seq, 0)
            await asyncio.gather(*(g.send_many([b"x" * 100] * 500, durable=True) for g in groups))

    run(story)
    one, two, three = (shared(tmp_path, id) for id in (1, 2, 3))
    assert one == two == three
    assert len(bodies(tmp_path, 1)) == 1530


def on_disk(path: Path) -> Place:
    """What is on disk now, for somebody else."""
    files = [SegmentFile(name) for name in segment_names(path)]
    return max(head.last for file in files for head in file.heads())


def shared(tmp_path: Path, id: int) -> list[dict[str, Any]]:
    """The records of configurations with everybody."""
    found = rows(tmp_path, id)
    full = [row["view"] for row in found if row["kind"] == "view" and len(row["members"]) > 2]
    return [row for row in found if row["view"] in full]


def test_who_was_away_catches_up(tmp_path: Path) -> None:
    settings = with_journals(tmp_path, 3)

    async def story() -> None:
        async with opened(settings[:2]) as nodes:
            async with opened(settings[2:]) as (third,):
                groups = await joined([*nodes, third])
                await groups[2].send(b"before", durable=True)
            for n in range(200):
                await groups[n % 2].send(b"meanwhile %d" % n, durable=n % 50 == 0)
            async with opened(settings[2:]) as (third,), third.join("g") as group:
                await eventually(lambda: caught_up([third]))
                await group.send(b"after", durable=True)
            await groups[0].send(b"last", durable=True)
            await groups[1].send(b"", durable=True)
            await eventually(lambda: caught_up(nodes))

    run(story)
    wanted = [b"before", *(b"meanwhile %d" % n for n in range(200)), b"after"]
    assert bodies(tmp_path, 3) == wanted
    assert bodies(tmp_path, 1) == bodies(tmp_path, 2) == [*wanted, b"last", b""]


def test_a_late_member_gets_the_whole_history(tmp_path: Path) -> None:
    settings = with_journals(tmp_path, 3)

    async def story() -> None:
        async with opened(settings[:2]) as nodes:
            groups = await joined(nodes)
            await groups[0].send_many([b"%d" % n for n in range(1000)], durable=True)
            async with opened(settings[2:]) as (third,):
                await eventually(lambda: caught_up([third]))

    run(story)
    assert bodies(tmp_path, 3) == [b"%d" % n for n in range(1000)]


def test_what_only_one_had_on_disk_is_in_all_journals_after_all_died(tmp_path: Path) -> None:
    settings = with_journals(tmp_path, 3)

    async def before() -> None:
        nodes = [Node.open(each) for each in settings]
        for node in nodes:
            await node.start()
        groups = await joined(nodes)
        await eventually(lambda: caught_up(nodes))
        await groups[0].send_many([b"%d" % n for n in range(100)], "safe", durable=True)
        await groups[1].send(b"acknowledged by 2", durable=True)
        for node in nodes:  # as by SIGKILL: nobody says goodbye
            assert node._host is not None and node._recorder is not None
            node._host.close("killed")
            await node._recorder.close()

    run(before)
    for id in (1, 3):  # and these had not synced the end
        path = segment_names(folder(tmp_path, id))[-1]
        heads = list(SegmentFile(path).heads())
        keep = next(h for h in reversed(heads) if h.last < last_message(tmp_path, 2))
        os.truncate(path, keep.end)

    async def after() -> None:
        async with opened([settings[0], settings[2]]) as early:
            await asyncio.sleep(0.8)  # they have a ring, and wait for the third
            assert not caught_up(early)
            async with opened([settings[1]]) as late:
                await eventually(lambda: caught_up([*early, *late]))

    run(after)
    wanted = [*(b"%d" % n for n in range(100)), b"acknowledged by 2"]
    assert bodies(tmp_path, 1) == bodies(tmp_path, 2) == bodies(tmp_path, 3) == wanted


def last_message(tmp_path: Path, id: int) -> Place:
    found = [row for row in rows(tmp_path, id) if row["kind"] == "message"]
    return Place(**found[-1]["position"])


def test_alone_it_goes_on_after_its_patience(tmp_path: Path) -> None:
    settings = with_journals(tmp_path, 2, journal_patience_s=0.3)

    async def story() -> None:
        async with opened(settings[:1]) as nodes, nodes[0].join("g") as group:
            await group.send(b"waiting", durable=True)
            await eventually(lambda: caught_up(nodes))
            await group.send(b"alone", durable=True)

    run(story)
    assert bodies(tmp_path, 1) == [b"waiting", b"alone"]


def test_durable_needs_a_journal(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(configs(tmp_path, 1)) as (node,), node.join("g") as group:
            with pytest.raises(ConfigError, match="needs a journal"):
                await group.send(b"x", durable=True)

    run(story)


def test_a_full_disk_stops_the_node_and_loses_nothing_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = with_journals(tmp_path, 1, journal_patience_s=0.1)
    room = 60_000

    def write(self: object, file: int, data: bytes) -> None:
        nonlocal room
        took = data[:room]
        room -= len(took)
        os.write(file, took)
        if len(took) < len(data):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("ringcast.journal.disk.Disk.write", write)
    acknowledged: list[bytes] = []

    async def story() -> None:
        async with opened(settings) as (node,), node.join("g") as group:
            await eventually(lambda: caught_up([node]))
            with pytest.raises(NodeStopped, match="No space left on device"):
                for n in range(1000):
                    body = b"%d" % n * 100
                    await group.send(body, durable=True)
                    acknowledged.append(body)

    run(story)
    assert acknowledged
    Journal(folder(tmp_path, 1)).close()
    assert bodies(tmp_path, 1)[: len(acknowledged)] == acknowledged
