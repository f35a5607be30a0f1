"""Nodes that are closed one after the other leave logs that are whole, whatever orders."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import ringcast
from ringcast.checks import Verdict, suite
from ringcast.core.trace import Crashed
from ringcast.testing import Host, World, simtest
from ringcast.traces.live import live_claims, logs, read_live, read_log
from ringcast.traces.whole import Wholeness

LIVE = ("totem", "total", "token-fd", "counter", "rbp", "irbp", "totem-multi")


async def member(host: Host, stay: float) -> None:
    """Talks for a while, and closes its node."""
    settings = host.settings(trace_dir=str(host.folder / "traces"))
    async with ringcast.Node.open(settings) as node, node.join("talk") as group:
        reading = asyncio.create_task(read(group))
        for number in range(int(stay * 10)):
            with suppress(ringcast.DeliveryUncertain):
                await group.send(b"%d" % number)
            await asyncio.sleep(0.1)
        reading.cancel()


async def read(group: ringcast.Group) -> None:
    async for _ in group:
        pass


@pytest.mark.parametrize("protocol", LIVE)
def test_closed_nodes_leave_whole_logs(protocol: str) -> None:
    @simtest(seeds=1, settings={"protocol": protocol})
    async def closed(world: World) -> None:
        later = 1.5 if protocol in ("totem", "total", "totem-multi") else 0.0
        """The others need a majority: all leave at once."""
        hosts = [world.host(f"member{n}", member, 1.0 + n * later) for n in range(3)]
        await world.until(lambda: all(host.done for host in hosts), within=60)
        judge(hosts)

    closed()


def judge(hosts: list[Host]) -> None:
    """All is told, and nothing broken."""
    folders = [host.folder / "traces" for host in hosts]
    claims, whole = live_claims(folders), Wholeness()
    assert claims is not None
    checks = suite(claims.tags)
    for event in read_live(folders, whole=whole):
        checks.feed(event)
    assert whole.lacks() == {}
    assert checks.violations == [] and Verdict.VALID in checks.verdicts().values()
    for paths in logs(folders).values():
        assert isinstance(list(read_log(paths[-1]))[-1], Crashed)
