"""Keys change while a group runs, with somebody on the path who keeps all it has seen; and several
groups have one key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from operator import gt
from pathlib import Path
from random import Random
from typing import Any

from adversary import Adversary, keyed, on_the_path, opened, refused
from loopback import eventually, joined, messages, run

from ringcast.api.group import Group
from ringcast.api.node import Node
from ringcast.wire import keys
from ringcast.wire.codec import HEADER
from ringcast.wire.keys import KeyFile

MESSAGES = 400


def own_files(root: Path, settings: list[dict[str, Any]]) -> list[Path]:
    """A copy of the key file for each node."""
    files = [root / f"{each['id']}.key" for each in settings]
    for file, each in zip(files, settings, strict=True):
        keys.write(file, KeyFile(Path(each["key_file"])).keys)
        each["key_file"] = str(file)
    return files


async def changed(nodes: list[Node], files: list[Path], held: dict[int, bytes]) -> None:
    """One step of a rotation, a node at a time."""
    for node, file in zip(nodes, files, strict=True):
        keys.write(file, held)
        await eventually(lambda node=node: node.metrics()["keys"] == list(held))  # type: ignore[misc]


def key_of(frame: bytes) -> int:
    return int(HEADER.unpack_from(frame)[2])


def test_a_rotation_under_attack_costs_nothing_and_leaves_the_old_key_outside(
    tmp_path: Path,
) -> None:
    """Each frame comes again, now and after each step, at any node. The key that was retired
    opens nothing more, for whoever recorded it and for a member that has no other."""
    rng = Random(7)

    async def speak(group: Group) -> None:
        for number in range(MESSAGES):
            await group.send(b"%d" % number)
            await asyncio.sleep(0.01)

    async def story() -> None:
        settings = keyed(
            tmp_path, 3, settings={"token_loss_us": 10_000_000, "consensus_us": 11_000_000}
        )
        files = own_files(tmp_path, settings)
        old = KeyFile(files[0]).keys
        async with on_the_path(settings) as adversary, AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            groups = await joined(nodes)

            def again(src: int, to: int, data: bytes) -> None:
                adversary.send(rng.randint(1, 3), rng.choice(adversary.seen)[2])

            adversary.on_frame = again
            speaking = [asyncio.ensure_future(speak(group)) for group in groups]
            both = keys.add(old)
            await changed(nodes, files, both)
            await changed(nodes, files, keys.promote(both))
            await changed(nodes, files, keys.retire(keys.promote(both)))
            await asyncio.gather(*speaking)
            orders = [await messages(group, 3 * MESSAGES) for group in groups]
            assert orders[0] == orders[1] == orders[2]
            assert len({(m.position.ring_seq, m.position.ring_rep) for m in orders[0]}) == 1, (
                "one ring"
            )
            adversary.on_frame = lambda src, to, data: None

            recorded = [data for *_, data in adversary.seen if key_of(data) == 1]
            assert len(recorded) > MESSAGES and key_of(adversary.seen[-1][2]) == 2
            for to, node in enumerate(nodes, 1):
                before = refused(node).get("unknown key", 0)
                for data in recorded[-MESSAGES:]:
                    adversary.send(to, data)
                    await asyncio.sleep(0)
                await eventually(
                    lambda node=node, before=before: (  # type: ignore[misc]
                        refused(node)["unknown key"] >= before + MESSAGES
                    )
                )
            reasons = {"replayed frame", "sent to another node", "unknown key"}
            assert all(refused(node).keys() == reasons for node in nodes)
            await stays_outside(tmp_path, stack, settings, old, nodes)

    run(story)


def unknown(nodes: list[Node]) -> list[int]:
    """How many frames each node refused since it has not the key."""
    return [refused(node).get("unknown key", 0) for node in nodes]


async def stays_outside(
    root: Path,
    stack: AsyncExitStack,
    settings: list[dict[str, Any]],
    held: dict[int, bytes],
    nodes: list[Node],
) -> None:
    """Somebody with these keys alone, under a new id and under a member's, changes nothing."""
    keys.write(root / "old.key", held)
    places = [f"{each['id']}@{each['bind']}" for each in settings]
    for me in (4, 3):
        one = {
            "id": me,
            "bind": "127.0.0.1:0",
            "peers": [each for each in places if not each.startswith(f"{me}@")],
            "state_dir": str(root / f"outside{me}"),
            "key_file": str(root / "old.key"),
        }
        outside = await stack.enter_async_context(Node.open(one))
        before = unknown(nodes)
        await outside.wait_for_ring(1)
        await eventually(lambda before=before: all(map(gt, unknown(nodes), before)))  # type: ignore[misc]
        assert outside.ring == (me,)
    assert all(node.running and node.ring == (1, 2, 3) for node in nodes)


def test_a_member_that_missed_a_rotation_comes_back_with_the_file(tmp_path: Path) -> None:
    async def story() -> None:
        settings = keyed(tmp_path, 3)
        files = own_files(tmp_path, settings)
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            new = keys.retire(keys.promote(keys.add(KeyFile(files[0]).keys)))
            await changed(nodes[:2], files[:2], new)
            for node, ring in zip(nodes, ((1, 2), (1, 2), (3,)), strict=True):
                await eventually(lambda node=node, ring=ring: node.ring == ring)  # type: ignore[misc]
            for node in nodes:
                assert refused(node)["unknown key"] > 0
            await changed(nodes[2:], files[2:], new)
            for node in nodes:
                await node.wait_for_ring(3)

    run(story)


def crossed(here: Adversary, there: Adversary) -> Callable[[int, int, bytes], None]:
    """What one group says is said to the nodes of the other, too."""
    return lambda src, to, data: there.send(to, data)


def test_groups_with_one_key_and_two_networks_do_not_hear_each_other(tmp_path: Path) -> None:
    """Even if their nodes have the same ids, and somebody leads all frames across."""

    async def story() -> None:
        north = keyed(tmp_path, 3, network="north")
        (tmp_path / "south").mkdir()
        south = keyed(tmp_path / "south", 3, network="south")
        for each in south:
            each["key_file"] = north[0]["key_file"]
        async with (
            on_the_path(north) as one,
            on_the_path(south) as other,
            AsyncExitStack() as stack,
        ):
            one.on_frame, other.on_frame = crossed(one, other), crossed(other, one)
            sides = [await opened(stack, each) for each in (north, south)]
            for nodes, name in zip(sides, (b"n", b"s"), strict=True):
                groups = await joined(nodes)
                for number in range(50):
                    for group in groups:
                        await group.send(b"%s%d" % (name, number))
                orders = [await messages(group, 150) for group in groups]
                assert orders[0] == orders[1] == orders[2]
                assert all(m.body.startswith(name) for m in orders[0])
            another = "of another group: its key or its network is not this node's"
            for node in (*sides[0], *sides[1]):
                assert node.ring == (1, 2, 3)
                assert refused(node).keys() == {another} and refused(node)[another] > 50
                assert node.metrics()["misfits"] == {}, "members that were met are what they are"

    run(story)


def test_groups_with_one_key_and_one_network_are_one(tmp_path: Path) -> None:
    """What separates groups is a key or a network, not a list of peers."""

    async def story() -> None:
        north = keyed(tmp_path, 2)
        (tmp_path / "south").mkdir()
        south = keyed(tmp_path / "south", 2)
        for each in south:
            each["id"] += 2
            each["key_file"] = north[0]["key_file"]
        for each in south:
            each["peers"] = [f"{other['id']}@{other['bind']}" for other in south]
        async with on_the_path(north) as one, AsyncExitStack() as stack:
            nodes = await opened(stack, north)
            nodes += [await stack.enter_async_context(Node.open(each)) for each in south]
            for node in nodes[2:]:
                await node.wait_for_ring(2)
            port = int(south[0]["bind"].rpartition(":")[2])
            one.ports[3] = port
            one.send(3, one.seen[0][2])
            for node in nodes:
                await node.wait_for_ring(4)

    run(story)
