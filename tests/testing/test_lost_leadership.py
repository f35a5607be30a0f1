"""A leader that is cut off hears of it, also where a protocol keeps its view."""

from __future__ import annotations

from typing import Any

import pytest

import ringcast
from ringcast.testing import World, simtest


async def leader(node: ringcast.Node, host: Any) -> None:
    group, folder = node.join("leader"), host.folder / "leader"
    async with ringcast.Election(group, 3, folder, timeout=3) as election:
        host.replica, host.leads = election.replica, False
        while True:
            try:
                term = await election.campaign()
            except ringcast.NoQuorum:
                continue
            host.leads = True
            await election.lost(term)
            host.leads = False


async def cut_off(world: World) -> None:
    hosts: list[Any] = [world.host(f"h{number}", leader) for number in range(3)]
    await world.until(lambda: any(getattr(host, "leads", False) for host in hosts), within=30)
    await world.until(lambda: all(host.replica.primary for host in hosts), within=30)
    (first,) = (host for host in hosts if host.leads)
    others = [host for host in hosts if host is not first]
    world.partition([first], others)
    await world.until(lambda: any(host.leads for host in others), within=30)
    await world.until(lambda: not first.leads, within=30)
    assert not first.replica.primary
    with pytest.raises(ringcast.NoQuorum) as refused:
        await first.spawn(first.replica.read(repr, timeout=3))
    if blocked := first.replica.group.blocked:
        assert blocked in str(refused.value)
    world.unite([first], others)
    await world.until(lambda: first.replica.primary, within=60)


@pytest.mark.parametrize("protocol", ["totem", "total", "counter", "rbp", "irbp"])
def test_a_leader_that_is_cut_off_hears_of_it(protocol: str) -> None:
    simtest(seeds=10, settings={"protocol": protocol}, shrink_runs=0)(cut_off)()
