"""Rows that are published over joined rings, under pauses, cuts and partitions: what ``publish``
confirmed is taken wherever it is delivered.

A world has no gateways of its own; nodes that a program opens may have several ports."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from ringcast.core.ids import NodeId, ViewId
from ringcast.testing import Host, Swarm, World, simtest
from ringcast.testing.nodes import PORT, open_node
from ringcast.wire.envelope import NumberedRows

RINGS = (("a1", "a2", "g"), ("b1", "b2", "g", "h"), ("c1", "h"))
SECONDS = 6.0
SECOND_PORT = 100
"""Between the ids of a gateway at its two ports."""

Taken = dict[tuple[ViewId, str, int], dict[str, tuple[bool, tuple[NodeId, ...]]]]
"""By message, which is a ring, a writer and a batch: who delivered it, whether that one took it,
and the members of the view there."""


def settings(host: Host) -> dict[str, Any]:
    """Of a node in the rings that name it."""

    def port(at: int) -> dict[str, Any]:
        def place(name: str) -> tuple[int, str]:
            number, before = host.world[name].number, sum(name in each for each in RINGS[:at])
            return number + SECOND_PORT * before, f"{host.world[name].address}:{PORT + before}"

        id, bind = place(host.name)
        peers = ["{}@{}".format(*place(each)) for each in RINGS[at]]
        return {"id": id, "bind": bind, "peers": peers}

    ports = [port(at) for at, ring in enumerate(RINGS) if host.name in ring]
    where = {"ports": ports} if len(ports) > 1 else ports[0]
    own = {"id": host.number, "state_dir": str(host.folder / "state"), "insecure": True}
    return {**where, **own, "protocol": "totem-multi", "settings": {"acyclic": True}}


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
    for name in sorted({name for ring in RINGS for name in ring}):
        world.host(name, writer, taken)
    await world.sleep(SECONDS + 20)
    assert len(taken) > 100
    for (ring, stream, batch), found in taken.items():
        confirmed, members = found.get(stream, (False, ()))
        lacks = [n for n, (took, _) in found.items() if not took and world[n].number in members]
        assert not (confirmed and lacks), f"batch {batch} of {stream}, on ring {ring}: {lacks}"
