"""The life of a node: starts that fail, ends that come twice, arguments that make no sense."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from journals import bodies, caught_up
from loopback import configs, eventually, ring, run

from ringcast.api.directory import Directory
from ringcast.api.node import Node
from ringcast.api.outgoing import UNDER_WAY
from ringcast.core.errors import NodeStopped, RingcastError, StorageError
from ringcast.wire.envelope import Groups


@pytest.mark.parametrize("setting", ["journal", "trace_dir"])
def test_a_folder_that_cannot_be_used_is_named_and_leaves_nothing_open(
    tmp_path: Path, setting: str
) -> None:
    async def story() -> None:
        (config,) = configs(tmp_path, 1)
        (tmp_path / "file").touch()
        with pytest.raises(StorageError, match=str(tmp_path / "file")):
            await Node.open({**config, setting: str(tmp_path / "file" / "folder")}).start()
        async with Node.open(config) as node:  # the port and the state directory are free
            await node.wait_for_ring(1)

    run(story)


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    async def story() -> None:
        (config,) = configs(tmp_path, 1, journal=str(tmp_path / "journal"))
        node = Node.open(config)
        await node.close()  # never started
        await node.start()
        await node.close()
        with (tmp_path / "file").open("wb") as file:  # gets a number that the node had
            await node.close()
            file.write(b"x")

    run(story)


@pytest.mark.parametrize("turns", range(7))
def test_a_start_that_is_cancelled_leaves_nothing_open(tmp_path: Path, turns: int) -> None:
    async def story() -> None:
        (config,) = configs(tmp_path, 1, journal=str(tmp_path / "journal"))
        node = Node.open(config)
        starting = asyncio.ensure_future(node.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await node.close()
        async with Node.open(config) as node:
            await node.wait_for_ring(1)

    run(story)


def test_closing_does_not_wait_for_members_that_may_know_what_was_missed(tmp_path: Path) -> None:
    async def story() -> None:
        folder = str(tmp_path / "journal")
        (config,) = configs(tmp_path, 1, journal=folder, journal_patience_s=3600.0)
        node = Node.open(config)
        await node.start()
        await node.wait_for_ring(1)
        await node.close()

    run(story)


def test_a_journal_is_served_on_a_port_that_the_system_chose(tmp_path: Path) -> None:
    """The port number is one for UDP and TCP: who comes later gets the history."""

    async def story() -> None:
        def settings(id: int, seed: str) -> dict[str, Any]:
            place = {"bind": "127.0.0.1:0", "seeds": [seed], "state_dir": str(tmp_path / f"s{id}")}
            return {"id": id, "journal": str(tmp_path / f"journal-{id}"), **place}

        first = {**settings(1, "127.0.0.1:9"), "journal_patience_s": 0.0}
        async with Node.open(first) as one:
            async with one.join("g") as group:
                await group.send(b"before")
            assert one._host is not None
            async with Node.open(settings(2, str(one._host.ports[0].address))) as two:
                await eventually(lambda: caught_up([one, two]))
            assert bodies(tmp_path, 2) == [b"before"]

    run(story)


def test_who_waits_for_a_ring_is_told_why_there_is_none(tmp_path: Path) -> None:
    async def story() -> None:
        (config,) = configs(tmp_path, 1)
        node = Node.open(config)
        with pytest.raises(RingcastError, match="not running"):
            await node.wait_for_ring(1)
        async with node:
            waiting = asyncio.ensure_future(node.wait_for_ring(2))
            await node.wait_for_ring(1)
            assert node._host is not None
            node._host.close("the disk is on fire")
            with pytest.raises(NodeStopped, match="on fire"):
                await waiting

    run(story)


@pytest.mark.parametrize(
    ("name", "error"), [(b"g", TypeError), (None, TypeError), ("\ud800", UnicodeEncodeError)]
)
def test_a_name_that_cannot_travel_is_refused_and_the_node_stays_well(
    tmp_path: Path, name: Any, error: type[Exception]
) -> None:
    async def story() -> None:
        (config,) = configs(tmp_path, 1)
        async with Node.open(config) as node:
            with pytest.raises(error):
                await node.join(name).join()
            async with node.join("g") as group:
                await group.send(b"x")

    run(story)


def test_names_that_do_not_fit_one_message_are_refused(tmp_path: Path) -> None:
    """On a new ring a node says all of them in one; its ring waited for that for ever."""

    async def story() -> None:
        (config,) = configs(tmp_path, 1, settings={"max_message": 70_000})
        async with Node.open(config) as node:
            with pytest.raises(RingcastError, match=r"groups take \d+ bytes, more than a quarter"):
                for number in range(300):
                    await node.join(f"{number:064}").join()
            async with node.join("g") as group:
                await group.send(b"x")

    run(story)


def test_a_new_ring_gives_each_member_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what may be under way; and its word fits a message."""
    asked: list[int] = []
    word = Directory.word

    def spy(self: Directory, most: int = 0) -> Groups:
        asked.append(most)
        return word(self, most)

    monkeypatch.setattr(Directory, "word", spy)

    async def story() -> None:
        async with ring(tmp_path, 2, settings={"max_message": 100_000}) as nodes:
            assert [node.outgoing.share for node in nodes] == [UNDER_WAY // 2] * 2
            assert set(asked) == {100_000}

    run(story)
