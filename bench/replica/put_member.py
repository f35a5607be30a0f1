"""One member of each system, as a process: ``put_member.py KIND ID PORTS FOLDER``.

It says ``ready`` when it may be asked. Member 0 (of PySyncObj and etcd the leader) then takes lines
``CLIENTS SECONDS`` and answers with a line of JSON: puts a second and the median of their times.
Clients are its tasks, each with one put of 64 B at a time; every put is on the disks of a majority
when it returns.
"""

from __future__ import annotations

import asyncio
import json
import select
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import ringcast
from ringcast.runtime.loopback import LOOPBACK

SIZE, KEYS = 64, 1000
WARM_S = 0.5


async def load(put: Callable[[int], Awaitable[object]], clients: int, seconds: float) -> str:
    """So many clients for so long."""
    times: list[float] = []
    begin_s = time.perf_counter() + WARM_S
    end_s = begin_s + seconds

    async def client(number: int) -> None:
        while (start_s := time.perf_counter()) < end_s:
            await put(number)
            if start_s >= begin_s:
                times.append(time.perf_counter() - start_s)
            number += clients

    await asyncio.gather(*map(client, range(clients)))
    return told(times, time.perf_counter() - begin_s)


def told(times: list[float], seconds: float) -> str:
    """What was measured, as a line."""
    return json.dumps({"puts_per_s": len(times) / seconds, "p50_us": median(times) * 1e6})


async def orders(put: Callable[[int], Awaitable[object]], first: bool) -> None:
    """Carry out what is asked on the input, until it ends."""
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        if first:
            clients, seconds = line.split()
            print(await load(put, int(clients), float(seconds)), flush=True)


class Table(ringcast.StateMachine[None]):
    """Values by key."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    def apply(self, command: ringcast.Message) -> None:
        self.values[command.body[:4]] = command.body[4:]

    def snapshot(self) -> bytes:
        return b"".join(key + value for key, value in self.values.items())

    def restore(self, state: bytes) -> None:
        step = SIZE + 4
        for at in range(0, len(state), step):
            self.values[state[at : at + 4]] = state[at + 4 : at + step]


async def ours(protocol: str, me: int, ports: list[int], folder: Path) -> None:
    """A durable replica with a quorum. Member 0, with the smallest id, is TOTAL's sequencer."""
    settings = {
        "id": me + 1,
        "protocol": protocol,
        "bind": f"{LOOPBACK}:{ports[me]}",
        "peers": [f"{n + 1}@{LOOPBACK}:{port}" for n, port in enumerate(ports)],
        "state_dir": str(folder / "state"),
    }
    async with (
        ringcast.Node.open(settings) as node,
        ringcast.Replica(node.join("puts"), Table(), len(ports), folder / "replica") as replica,
    ):
        await replica.ready()

        async def put(number: int) -> None:
            await replica.submit((number % KEYS).to_bytes(4, "big") + bytes(SIZE))

        await orders(put, me == 0)


def pysyncobj(me: int, ports: list[int], folder: Path) -> None:
    """PySyncObj with its journal, ticked by hand, which is its fastest way. Only its leader takes
    load: others would have to forward to it."""
    from pysyncobj import SyncObj, SyncObjConf, replicated

    class Values(SyncObj):  # type: ignore[misc]
        def __init__(self) -> None:
            self.values: dict[int, bytes] = {}
            places = [f"{LOOPBACK}:{port}" for port in ports]
            own = places.pop(me)
            conf = SyncObjConf(
                autoTick=False, journalFile=str(folder / "journal"), commandsQueueSize=10**6
            )
            super().__init__(own, places, conf)

        @replicated  # type: ignore[untyped-decorator]
        def put(self, key: int, value: bytes) -> None:
            self.values[key] = value

    node = Values()
    while node._getLeader() is None:
        node.doTick(0.01)
    print("ready", flush=True)
    while True:
        while not select.select([sys.stdin], [], [], 0)[0]:
            node.doTick(0.01)
        if not (line := sys.stdin.readline()):
            return
        clients, seconds = line.split()
        leads = node._isLeader()
        print(_ticked(node, int(clients), float(seconds)) if leads else "another", flush=True)


def _ticked(node: Any, clients: int, seconds: float) -> str:
    times: list[float] = []
    begin_s = time.perf_counter() + WARM_S
    end_s = begin_s + seconds
    idle = list(range(clients))
    while (now_s := time.perf_counter()) < end_s:
        while idle:
            number = idle.pop()

            def done(_: object, error: object, number: int = number, at_s: float = now_s) -> None:
                if at_s >= begin_s:
                    times.append(time.perf_counter() - at_s)
                idle.append(number + clients)

            node.put(number % KEYS, bytes(SIZE), callback=done)
        node.doTick(0.0005)
    return told(times, time.perf_counter() - begin_s)


async def etcd_client(ports: list[int]) -> None:
    """Of an etcd that runs: unary calls of its KV service, at the leader."""
    import grpc  # type: ignore[import-untyped]

    def field(number: int, data: bytes) -> bytes:
        return bytes((number << 3 | 2, len(data))) + data

    async def leads(address: str) -> bool:
        """Of a status, field 4 is the leader's id, and field 2 of field 1 the member's own."""
        async with grpc.aio.insecure_channel(address) as channel:
            call = channel.unary_unary("/etcdserverpb.Maintenance/Status")
            status = fields(await call(b"", wait_for_ready=True))
        return bool(status.get(4)) and fields(status[1]).get(2) == status[4]  # type: ignore[arg-type]

    addresses = [f"{LOOPBACK}:{port}" for port in ports]
    for leader in cycle(addresses):
        if await leads(leader):
            break
    value = field(2, bytes(SIZE))
    async with grpc.aio.insecure_channel(leader) as channel:
        call = channel.unary_unary("/etcdserverpb.KV/Put")

        async def put(number: int) -> None:
            await call(field(1, b"%d" % (number % KEYS)) + value, wait_for_ready=True)

        await put(0)
        await orders(put, first=True)


def fields(message: bytes) -> dict[int, int | bytes]:
    """The numbers and byte strings of a message of Protocol Buffers, by field."""
    found: dict[int, int | bytes] = {}
    rest = iter(message)

    def number() -> int:
        value = shift = 0
        for byte in rest:
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
        raise EOFError

    with suppress(EOFError):
        while True:
            key = number()
            value = number()
            found[key >> 3] = bytes(islice(rest, value)) if key & 7 == 2 else value
    return found


def main() -> None:
    """As the command line says."""
    kind, me, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[4])
    ports: list[int] = json.loads(sys.argv[3])
    match kind:
        case "pysyncobj":
            pysyncobj(me, ports, folder)
        case "etcd":
            asyncio.run(etcd_client(ports))
        case protocol:
            asyncio.run(ours(protocol, me, ports, folder))


if __name__ == "__main__":
    main()
