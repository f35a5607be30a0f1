"""Three members join a group, leave it and join it again, under pauses, cuts and partitions: what
api.md says of views holds, whatever orders."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest

import ringcast
from ringcast.core.ids import MESSAGE_TYPE, NodeId, Position
from ringcast.testing import Host, Swarm, World, simtest

PROTOCOLS = ("totem", "total", "counter", "rbp", "irbp", "token-fd", "totem-multi")
SECONDS = 11.0
"""Faults begin within ten."""


class Stay:
    """A time in the group."""

    def __init__(self, id: NodeId) -> None:
        self.id = id
        self.views: list[ringcast.View] = []
        self.joined: tuple[NodeId, ...] = ()
        """The members, when ``join`` returned."""

    def broke_in(self, view: ringcast.View) -> bool:
        """Whether its ring was over before anything else was told: perhaps not all had spoken."""
        ring = [each for each in self.views if each.ring == view.ring]
        return not view.transitional and ring == [view] and view is not self.views[-1]

    def told_before(self, then: ringcast.View, one: ringcast.View) -> list[ringcast.View]:
        """Views between the two, if it was told the later one as well: whoever is parted from the
        others may go on for a moment by itself."""
        if all(view.position != then.position for view in self.views):
            return []
        between = (view for view in self.views if one.position < view.position < then.position)
        return [view for view in between if view.ring == one.ring and asked_for(view)]

    async def read(self, group: ringcast.Group) -> None:
        async for event in group:
            if isinstance(event, ringcast.View):
                self.views.append(event)


async def member(node: ringcast.Node, host: Host, stays: list[Stay]) -> None:
    rng = Random(f"{host.world.seed}/{host.name}")
    while host.world.now < SECONDS:
        await asyncio.sleep(rng.uniform(0.0, 0.4))
        async with node.join("g") as group:
            stay = Stay(int(host.name[-1]) + 1)
            stays.append(stay)
            stay.joined = group.members
            reading = asyncio.create_task(stay.read(group))
            await asyncio.sleep(rng.uniform(0.05, 1.5))
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading


def judge(stays: list[Stay]) -> None:
    """The same views in the same order, and none that a member of the ring was not told."""
    told: dict[Position, tuple[NodeId, ringcast.View]] = {}
    for stay in stays:
        places = [view.position for view in stay.views]
        assert places == sorted(set(places)), f"{stay.id}: {places}"
        for view in stay.views:
            assert stay.id in view.members
            if stay.broke_in(view):
                continue
            other, first = told.setdefault(view.position, (stay.id, view))
            assert first.members == view.members, f"{other}: {first}, {stay.id}: {view}"
        joined = [view.members for view in stay.views if not view.transitional]
        assert stay.joined in joined or not joined, f"{stay.id}: {stay.joined}, {joined}"
    for stay in stays:
        for one, then in pairwise(stay.views):
            if one.transitional or not (then.transitional or then.ring == one.ring):
                continue  # it has parted from others meanwhile
            for each in stays:
                missed = each.told_before(then, one)
                assert not missed, f"{stay.id} was told {one} and {then}, not {missed[0]}"


def asked_for(view: ringcast.View) -> bool:
    """Whether somebody joined or left: where gateways join rings, members come to a topology each
    at a place of its own."""
    return not view.position.timestamp or view.position.seq == MESSAGE_TYPE


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_have_the_same_views(protocol: str) -> None:
    faults = Swarm(kinds=("pause", "cut", "partition"))

    @simtest(seeds=4, faults=faults, settings={"protocol": protocol})
    async def views(world: World) -> None:
        stays: list[Stay] = []
        for number in range(3):
            world.host(f"member{number}", member, stays)
        await world.sleep(SECONDS + 20)
        judge(stays)
        world.sometimes("all are in it", lambda: any(len(stay.joined) == 3 for stay in stays))

    views()
