"""Groups where rings are joined by gateways: messages go where their group has members (F6 to F9).

Three rings over real sockets: north with 1 and 2, middle with 3, south with 4 and 5; gateway 7
joins north and middle, 8 middle and south.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from journals import bodies, folder, opened
from loopback import alike, collect, eventually, run

from ringcast.api.events import Event, Message, View
from ringcast.api.group import Group
from ringcast.api.node import Node
from ringcast.core.ids import NodeId
from ringcast.protocols.totem_multi.machine import TotemMulti
from ringcast.protocols.totem_multi.messages import Data, Forwarded
from ringcast.runtime.loopback import free_ports
from ringcast.wire.envelope import interest

RINGS = ((1, 2, 7), (3, 17, 8), (4, 5, 18))
PORTS = {id: (id,) for id in range(1, 6)} | {7: (7, 17), 8: (8, 18)}


def networked(root: Path, journals: tuple[NodeId, ...] = ()) -> list[dict[str, Any]]:
    """Settings of nodes 1 to 5 and of gateways 7 and 8."""
    pids = [pid for ring in RINGS for pid in ring]
    at = dict(zip(pids, free_ports(len(pids)), strict=True))

    def port(pid: NodeId) -> dict[str, Any]:
        (ring,) = (each for each in RINGS if pid in each)
        peers = [f"{q}@127.0.0.1:{at[q]}" for q in ring]
        return {"id": pid, "bind": f"127.0.0.1:{at[pid]}", "peers": peers}

    def node(id: NodeId) -> dict[str, Any]:
        own = {"journal": str(folder(root, id))} if id in journals else {}
        common = {"id": id, "protocol": "totem-multi", "state_dir": str(root / f"n{id}")}
        ports = [port(pid) for pid in PORTS[id]]
        where = {"ports": ports} if len(ports) > 1 else ports[0]
        return {**where, **common, **own, "settings": {"acyclic": True}}

    return [node(id) for id in PORTS]


@pytest.fixture
def crossed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[NodeId, int]]:
    """Who was sent messages of groups by a gateway, and of which."""
    found: list[tuple[NodeId, int]] = []
    hand_up = TotemMulti._hand_up_forwarded

    def spy(self: TotemMulti, env: Any, pid: NodeId, sender: NodeId, said: Any) -> None:
        if isinstance(said, Forwarded) and isinstance(said.message, Data) and said.message.bodies:
            found.append((self.me, said.message.group))
        hand_up(self, env, pid, sender, said)

    monkeypatch.setattr(TotemMulti, "_hand_up_forwarded", spy)
    return found


async def together(nodes: list[Node]) -> None:
    await asyncio.gather(*(node.wait_for_ring(len(nodes)) for node in nodes))
    await eventually(
        lambda: all(node.complete and not node._directory.waits_for() for node in nodes)
    )


def test_what_a_group_says_stays_where_its_members_are(
    tmp_path: Path, crossed: list[tuple[NodeId, int]]
) -> None:
    async def story() -> None:
        async with opened(networked(tmp_path)) as nodes:
            await together(nodes)
            north = [node.join("orders") for node in nodes[:2]]
            south = [node.join("bills") for node in nodes[3:5]]
            await asyncio.gather(*(group.join() for group in (*north, *south)))
            await eventually(lambda: all(len(each.members) == 2 for each in (*north, *south)))
            for n in range(20):
                await north[0].send(b"order %d" % n, "safe" if n % 4 == 0 else "agreed")
                await south[0].send(b"bill %d" % n)
            for group in (north[1], south[1]):
                await collect(group, lambda events: sum(type(e) is Message for e in events) == 20)

    run(story)
    marked = {interest("orders"), interest("bills")}
    # 7 is north, 8 south: each gets what is said on its own ring, which is not sent by a gateway.
    assert not [each for each in crossed if each[1] in marked]


def test_who_joins_on_a_far_ring_gets_all_from_its_view_on(
    tmp_path: Path, crossed: list[tuple[NodeId, int]]
) -> None:
    """And leaves, and joins again, while others keep sending: the same as those who stay."""

    async def story() -> None:
        async with opened(networked(tmp_path)) as nodes:
            await together(nodes)
            one, two = (node.join("orders") for node in nodes[:2])
            await asyncio.gather(one.join(), two.join())
            ended = asyncio.Event()

            async def talk(group: Group) -> None:
                n = 0
                while not ended.is_set():
                    await group.send(
                        b"%d from %d" % (n, group.me), "safe" if n % 8 == 0 else "agreed"
                    )
                    n += 1
                await group.send(b"end from %d" % group.me)

            talking = [asyncio.create_task(talk(each)) for each in (one, two)]
            heard: list[list[Event]] = []
            for _ in range(3):
                async with nodes[4].join("orders") as far:
                    heard.append(await collect(far, lambda events: len(events) > 60))
            ended.set()
            await asyncio.gather(*talking)
            last = {b"end from 1", b"end from 2"}

            def over(events: list[Event]) -> bool:
                return last <= {event.body for event in events if isinstance(event, Message)}

            kept = await collect(one, over)
            assert alike((await collect(two, over))[-50:]) == alike(kept[-50:])
            entered = 0
            for events in heard:
                assert isinstance(events[0], View) and events[0].members == (1, 2, 5)
                mine = [event for event in events if isinstance(event, Message)]
                at = next(n for n, e in enumerate(kept) if e == mine[0])
                assert kept[at : at + len(mine)] == mine, "nothing is missing, nothing else comes"
                before = kept[entered:at]
                assert isinstance(before[-1], View) and before[-1].members == (1, 2, 5)
                entered = at

    run(story)
    assert {node for node, group in crossed if group == interest("orders")} >= {4, 5, 8, 3}


def test_a_journal_is_of_everything(tmp_path: Path) -> None:
    """Wherever it is kept, whatever groups its node is in."""

    async def story() -> None:
        async with opened(networked(tmp_path, journals=(1, 5))) as nodes:
            await together(nodes)
            async with nodes[0].join("orders") as orders:
                for n in range(20):
                    await orders.send(b"%d" % n, durable=True)
            async with nodes[4].join("bills") as bills:
                await bills.send(b"end", durable=True)
            for node in (nodes[0], nodes[4]):
                await node.caught_up()

    run(story)
    said = [b"%d" % n for n in range(20)]
    assert bodies(tmp_path, 1) == bodies(tmp_path, 5) == [*said, b"end"]
