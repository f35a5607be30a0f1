"""A live group that parts and merges again, and its journals as they were at each step."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ringcast.api.group import Group
from ringcast.api.node import Node
from ringcast.core.ids import NodeId
from ringcast.runtime.loopback import free_ports

ALL = (1, 2, 3)
ONE, TWO = (1,), (2, 3)


class Parted:
    """Three members, the journals of two of them, one on each side."""

    journals = (1, 2)

    def __init__(self, root: Path) -> None:
        self._root = root
        self.sent: list[bytes] = []
        self.steps: list[list[Path]] = []
        """The journals, as they were after each step."""
        asyncio.run(self._story())

    async def _story(self) -> None:
        ports = free_ports(len(ALL))
        peers = [f"{id}@127.0.0.1:{port}" for id, port in zip(ALL, ports, strict=True)]
        nodes = [
            Node.open(
                {
                    "id": id,
                    "bind": f"127.0.0.1:{port}",
                    "peers": peers,
                    "state_dir": str(self._root / f"state-{id}"),
                    "journal": str(self._root / f"journal-{id}"),
                    "fault_file": str(self._root / f"{id}.faults"),
                }
            )
            for id, port in zip(ALL, ports, strict=True)
        ]
        for node in nodes:
            await node.start()
        groups = [node.join("g") for node in nodes]
        await asyncio.gather(*(group.join() for group in groups))
        await until(lambda: all(len(group.members) == len(ALL) for group in groups))
        await until(lambda: all(node.metrics()["journal"]["caught_up"] for node in nodes))  # type: ignore[index]
        await self._step(groups)
        self._deaf(ONE, TWO)
        await until(lambda: [len(group.members) for group in groups] == [1, 2, 2])
        for side in (groups[1:], groups[:1], groups[1:], groups[:1]):
            await self._step(side)
        self._deaf()
        await until(lambda: all(len(group.members) == len(ALL) for group in groups))
        await self._step(groups)
        for node in nodes:
            await node.close()

    def _deaf(self, *sides: tuple[NodeId, ...]) -> None:
        """Nobody hears the other side; without sides everybody hears everybody."""
        for id in ALL:
            deaf_to = [other for side in sides if id not in side for other in side]
            path = self._root / f"{id}.faults"
            path.with_suffix(".new").write_text(json.dumps({"deaf_to": deaf_to}))
            path.with_suffix(".new").replace(path)

    async def _step(self, groups: Sequence[Group]) -> None:
        """Everybody named sends; the last one, whose journal is read, has all of it on disk."""
        step = len(self.steps)
        for group in groups:
            bodies = [b"%d from %d: %d" % (step, group.me, n) for n in range(7)]
            for body in bodies:
                await group.send(body, "safe", durable=True)
            self.sent += bodies
        for group in reversed(groups):
            end = b"%d seen by %d" % (step, group.me)
            await group.send(end, "safe", durable=True)
            self.sent.append(end)
        copies = []
        for id in self.journals:
            copies.append(self._root / f"step-{step}" / f"journal-{id}")
            shutil.copytree(self._root / f"journal-{id}", copies[-1])
        self.steps.append(copies)

    def show(self, step: int, folders: Sequence[Path]) -> None:
        """Let folders be the journals as they were."""
        for folder, copy in zip(folders, self.steps[step], strict=True):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(copy, folder)


async def until(met: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not met():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
