"""From ``send`` to the row in ``foreachBatch``: a small group with journals, and a query on one.

The group runs in a process of its own and puts the time of each ``send`` into the message.
"""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ringcast.api.node import Node
from ringcast.runtime.loopback import LOOPBACK, free_ports

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MEMBERS = 3
RATE = 50
"""Messages a second."""
WARM_S = 10.0


async def send(folder: Path, seconds: float) -> None:
    """The group: the first member sends, at a steady rate."""
    ports = free_ports(MEMBERS)
    peers = [f"{id}@{LOOPBACK}:{port}" for id, port in enumerate(ports, 1)]
    async with AsyncExitStack() as stack:
        for id, port in enumerate(ports, 1):
            config = {"id": id, "bind": f"{LOOPBACK}:{port}", "peers": peers,
                      "state_dir": str(folder / f"state-{id}"),
                      "journal": str(folder / f"journal-{id}")}  # fmt: skip
            node = await stack.enter_async_context(Node.open(config))
            group = await stack.enter_async_context(node.join("lag"))
        await node.wait_for_ring(MEMBERS)
        print("ready", flush=True)
        due_s = time.monotonic()
        end_s = due_s + seconds
        while due_s < end_s:
            await asyncio.sleep(due_s - time.monotonic())
            await group.send(b"%d" % time.time_ns())
            due_s += 1 / RATE


def latencies_ms(spark: SparkSession, folder: Path, seconds: float) -> list[float]:
    """Of every message sent in the window; the first seconds do not count."""
    found: list[float] = []
    whole_s = WARM_S + seconds
    command = [sys.executable, str(Path(__file__)), str(folder), str(whole_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as group:
        assert group.stdout is not None and group.stdout.readline() == "ready\n"
        start_ns = time.time_ns() + round(WARM_S * 1e9)

        def take(frame: DataFrame, batch: int) -> None:
            rows = frame.select("body").collect()
            now_ns = time.time_ns()
            sent = [int(bytes(row.body)) for row in rows]
            found.extend((now_ns - each) / 1e6 for each in sent if each >= start_ns)

        source = spark.readStream.format("ringcast").option("path", str(folder / "journal-1"))
        query = (
            source.option("group", "lag").option("views", "false").load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )  # fmt: skip
        try:
            query.awaitTermination(math.ceil(whole_s))
        finally:
            query.stop()
    if len(found) < RATE * seconds / 2:
        raise RuntimeError(f"only {len(found)} messages came")
    return sorted(found)


if __name__ == "__main__":
    asyncio.run(send(Path(sys.argv[1]), float(sys.argv[2])))
