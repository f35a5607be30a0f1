"""The life of a node: starts that fail, ends that come twice, arguments that make no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loopback import configs, run

from ringcast.api.node import Node
from ringcast.runtime.errors import StorageError


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
