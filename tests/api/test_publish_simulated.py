"""Rows that are published over joined rings, under pauses, cuts and partitions: what ``publish``
confirmed is taken wherever it is delivered."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from simulated_rings import NAMES, settings

from ringcast.core.ids import NodeId, ViewId
from ringcast.testing import Host, Swarm, World, simtest
from ringcast.testing.nodes import open_node
from ringcast.wire.envelope import NumberedRows

SECONDS = 6.0

Taken = dict[tuple[ViewId, str, int], dict[str, tuple[bool, tuple[NodeId, ...]]]]
"""By message, which is a ring, a writer and a batch: who delivered it, whether that one took it,
and the members of the view there."""


async def writer(host: Host, taken: Taken) -> None:
    async with open_node(host, settings(host)) as node:
        deduplicated = node._deduplicated

        def watched(word: NumberedRows) -> Any:
            kept, source = deduplicated(word)
            taken[word.ring, word.stream, word.batch][host.name] = bool(kept.bodies), node.ring
            return kept, source

        node._deduplicated = watched  # type: ignore[method-assign]
        for batch in range(10_000):
            if host.world.now > SECONDS:
                break
            await node.publish("g", host.name, batch, 0, (b"row",))
            await asyncio.sleep(0.005)
        await asyncio.Event().wait()


@simtest(seeds=6, faults=Swarm(kinds=("pause", "cut", "partition"), most=14), span=SECONDS)
async def test_what_is_confirmed_is_taken_on_both_sides_of_a_change(world: World) -> None:
    """A topology that shrinks, or loses a ring, before the message is a view of its own: those who
    delivered it there threw the rows away that others had taken and confirmed."""
    taken: Taken = defaultdict(dict)
    for name in NAMES:
        world.host(name, writer, taken)
    await world.sleep(SECONDS + 20)
    assert len(taken) > 100
    for (ring, stream, batch), found in taken.items():
        confirmed, members = found.get(stream, (False, ()))
        lacks = [n for n, (took, _) in found.items() if not took and world[n].number in members]
        assert not (confirmed and lacks), f"batch {batch} of {stream}, on ring {ring}: {lacks}"
