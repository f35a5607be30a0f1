"""The processes that ``fire.py`` kills: nodes that send, and a driver of Spark.

python fire_programs.py '{"folder": …, "node": {…}, "volatile": false, "connect": …}'
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ringcast.api.node import Node
from ringcast.core.errors import DeliveryUncertain
from ringcast.files.disk import Disk
from ringcast.journal import group_commit as keeping
from ringcast.journal import writer as log
from ringcast.journal.format import segment

NODES = (1, 2, 3)
ROWS, PAUSE_S, SIZE = 40, 0.1, 80
"""Each node sends so many rows of so many bytes at once, and rests in between."""

replaced = patch.multiple

# --- a node ------------------------------------------------------------------------------------


def arm(folder: Path) -> None:
    """Let this process die where a file in the folder says so."""

    def die_at(point: str) -> None:
        with suppress(FileNotFoundError):
            (folder / point).unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    write, index, open_, cut = keeping.write, segment.write_index, Disk.open, Disk.write
    replace, merge, take = Disk.replace, keeping.GroupCommit._merge, log.Journal.take
    rmtree = shutil.rmtree

    def synced(*what: Any) -> None:
        write(*what)
        die_at("synced")

    def half(self: Disk, file: int, pieces: list[bytes]) -> None:
        if (folder / "half a frame").exists():
            data = b"".join(pieces)
            os.write(file, data[: len(data) // 2])
            die_at("half a frame")
        cut(self, file, pieces)

    def indexed(path: Path, heads: segment.Heads, disk: Disk) -> None:
        die_at("indexing")
        index(path, heads, disk)
        die_at("indexed")

    def begun(self: Disk, path: Path) -> int:
        new = not path.exists()
        file = open_(self, path)
        if new:
            die_at("begun")
        return file

    def noting(self: Disk, path: Path, data: bytes | memoryview, mode: int = 0o600) -> None:
        if (folder / "noting").exists():
            path.with_name(path.name + ".new").write_bytes(data[: len(data) // 2])
            die_at("noting")
        replace(self, path, data, mode)

    def merging(self: keeping.GroupCommit, *told: Any) -> None:
        def taking(*what: Any, **how: Any) -> None:
            take(*what, **how)
            die_at("merging")

        def removing(*what: Any, **how: Any) -> None:
            die_at("merged")
            rmtree(*what, **how)

        with replaced(log.Journal, take=taking), replaced(shutil, rmtree=removing):
            merge(self, *told)

    replaced(keeping, write=synced).start()
    replaced(log, write_index=indexed).start()
    replaced(Disk, write=half, open=begun, replace=noting).start()
    replaced(keeping.GroupCommit, _merge=merging).start()


def forget_unsynced() -> None:
    """A disk that has only what was synced, so that SIGKILL does what a loss of power does."""
    open_, write, sync = Disk.open, Disk.write, Disk.sync
    waiting: dict[str, list[Sequence[bytes | memoryview]]] = {}  # by path: numbers are used again

    def path_of(file: int) -> str:
        return os.readlink(f"/proc/self/fd/{file}")

    def opening(self: Disk, path: Path) -> int:
        file = open_(self, path)
        waiting[path_of(file)] = []
        return file

    def writing(self: Disk, file: int, pieces: Sequence[bytes | memoryview]) -> None:
        if (path := path_of(file)) in waiting:
            waiting[path].append(pieces)
        else:
            write(self, file, pieces)  # of a small file, which is synced at once

    def syncing(self: Disk, file: int) -> None:
        for pieces in waiting[path_of(file)]:
            write(self, file, pieces)
        waiting[path_of(file)].clear()
        sync(self, file)

    replaced(Disk, open=opening, write=writing, sync=syncing).start()


async def feed(settings: dict[str, Any], folder: Path) -> None:
    """A member that sends until there is enough, and notes what was acknowledged."""
    me, life = settings["id"], time.time_ns()
    done = False

    async def idle(group: Any) -> None:
        async for _ in group.batches():
            pass

    async with Node.open(settings) as node, node.join("in") as group:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
        reading = asyncio.create_task(idle(group))
        with (folder / f"acknowledged-{me}").open("a") as file:
            for number in itertools.count():
                await asyncio.sleep(PAUSE_S)
                done = (folder / "enough").exists()
                journal: Any = node.metrics()["journal"]
                (folder / f"caught-up-{me}").write_text(f"{life} {journal['caught_up']}")
                if (folder / "leave").exists():
                    break
                if done or len(node.ring) < 2:
                    continue
                rows = [f"{me}.{life}.{number}.{n}".ljust(SIZE, "-") for n in range(ROWS)]
                with suppress(DeliveryUncertain):
                    await group.send_many([row.encode() for row in rows], "safe", durable=True)
                    file.writelines(f"{row}\n" for row in rows)
                    file.flush()
        reading.cancel()


# --- Spark -------------------------------------------------------------------------------------


MOST_BEGUN = 20
"""Queries that are begun in the life of a driver, at most."""


def drive(folder: Path, address: str) -> None:
    """Both queries, begun again when they fail, until it is time to come to an end.

    Two queries that begin at the same time may spoil a map of Spark's that they share ("Illegal
    size 5 of collection, expected 6"), and then none can be begun in that JVM any more: who
    watches over a query begins a new one.
    """
    import dying_stream

    from ringcast.pipeline.spark.session import Where, open_session

    with open_session(Where(cores=2)) as spark:
        dying_stream.register(spark, folder / "fire")
        rows = (
            spark.readStream.format(dying_stream.NAME)
            .option("path", ",".join(str(folder / f"journal-{id}") for id in NODES))
            .option("group", "in")
            .option("views", "false")
        )
        table = rows.option("reader", "table").load().select("position", "body")
        back = rows.option("reader", "back").load().select("body")
        writers = {
            "table": table.writeStream.format("parquet").option("path", str(folder / "rows")),
            "back": back.writeStream.format(dying_stream.NAME)
            .option("connect", address)
            .option("group", "out")
            .option("stream", "back")
            .option("staging", str(folder / "staging")),
        }
        for name, writer in writers.items():
            writer.option("checkpointLocation", str(folder / f"checkpoint-{name}"))
        queries: dict[str, Any] = {}
        begun = 0
        while not (folder / "finish").exists():
            for name, writer in writers.items():
                if name not in queries or not queries[name].isActive:
                    begun += 1
                    if begun > MOST_BEGUN:
                        raise SystemExit("queries fail again and again")
                    with suppress(Exception):  # its node may be away
                        queries[name] = writer.trigger(processingTime="1 second").start()
            time.sleep(0.2)
        for query in queries.values():
            query.stop()
        for writer in writers.values():
            writer.trigger(availableNow=True).start().awaitTermination()


def main(folder: Path, node: dict[str, Any], volatile: bool, connect: str) -> None:
    """A node if there are settings for one, else the driver."""
    if node:
        arm(folder / f"fire-{node['id']}")
        if volatile:
            forget_unsynced()
        asyncio.run(feed(node, folder))
    else:
        drive(folder, connect)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(Path(given.pop("folder")), **given)
