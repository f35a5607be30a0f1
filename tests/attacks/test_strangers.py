"""Strangers without the key against live nodes with one: each attack once worked."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from adversary import keyed, on_the_path, opened, refused
from loopback import eventually, joined, messages, run
from published import PUBLISHED

from ringcast.api.node import Node
from ringcast.core.ids import Level
from ringcast.core.inputs import Received
from ringcast.wire.codec import EVERYBODY, HEADER


def heard(node: Node) -> list[Received]:
    """Frames that the protocol of a node is given from now on."""
    assert node._host is not None
    found: list[Received] = []
    handle = node._host.machine.handle

    def spy(env: Any, event: Any) -> None:
        if isinstance(event, Received):
            found.append(event)
        handle(env, event)

    node._host.machine.handle = spy  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize("protocol", ["totem", "token-fd"])
def test_what_the_journal_s_port_says_is_no_word_on_the_ring(tmp_path: Path, protocol: str) -> None:
    """C1: a greeting on TCP, sent on by UDP, was taken for a later life of the node; token-fd
    halted."""

    async def story() -> None:
        settings = [
            each | {"journal": str(tmp_path / f"j{each['id']}")}
            for each in keyed(tmp_path, 3, protocol=protocol)
        ]
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            groups = await joined(nodes)
            ports = [int(each["bind"].rpartition(":")[2]) for each in settings]
            async with on_the_path(settings) as adversary:
                for port in ports:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    said = await reader.read(4096)
                    writer.close()
                    for to in (1, 2, 3):
                        for cut in range(0, 8):
                            adversary.send(to, said[cut:])
                for node in nodes:
                    await eventually(lambda node=node: sum(refused(node).values()) >= 24)  # type: ignore[misc]
            for group in groups:
                await group.send(b"still together", level=Level.SAFE)
            for group in groups:
                assert {m.sender for m in await messages(group, 3)} == {1, 2, 3}
            assert all(node.ring == (1, 2, 3) for node in nodes)

    run(story)


@pytest.mark.parametrize("protocol", [sheet.name for sheet in PUBLISHED if sheet.live])
def test_a_frame_to_one_member_is_none_for_the_others(tmp_path: Path, protocol: str) -> None:
    """C2: a token copied to a third member made two tokens, and positions with two messages."""

    async def story() -> None:
        settings = keyed(tmp_path, 3, protocol=protocol)
        async with on_the_path(settings) as adversary, AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            groups = await joined(nodes)
            sent: list[bytes] = []

            def copy(src: int, to: int, data: bytes) -> None:
                for other in {1, 2, 3} - {src, to}:
                    adversary.send(other, data)
                sent.append(data)

            adversary.on_frame = copy
            for number in range(50):
                for group in groups:
                    await group.send(b"%d" % number)
            orders = [await messages(group, 150) for group in groups]
            assert orders[0] == orders[1] == orders[2]
            await eventually(lambda: len(sent) > 300)
            to_all = protocol in ("counter", "rbp", "irbp")  # what passes the token on goes to all
            reason = "replayed frame" if to_all else "sent to another node"
            assert any(reason in refused(node) for node in nodes)
            for node in nodes:
                assert refused(node).keys() <= {"sent to another node", "replayed frame"}

    run(story)


def test_a_restarted_node_takes_nothing_that_was_recorded(tmp_path: Path) -> None:
    """It has forgotten what it saw, and once took most of it."""

    async def story() -> None:
        settings = keyed(tmp_path, 3)
        async with on_the_path(settings) as adversary, AsyncExitStack() as stack:
            nodes = await opened(stack, settings[:2])
            third = Node.open(settings[2])
            await third.start()
            await third.wait_for_ring(3)
            groups = await joined(nodes)
            for number in range(50):
                await groups[0].send(b"%d" % number)
            await third.close()
            recorded = [data for _, to, data in adversary.seen if to == 3]
            assert len(recorded) > 50
            adversary.passes = lambda src, to, data: 3 not in (src, to)
            third = await stack.enter_async_context(Node.open(settings[2]))
            found = heard(third)
            for data in recorded:
                adversary.send(3, data)
                await asyncio.sleep(0)
            await eventually(lambda: third.metrics()["frames_before_meeting"])
            assert found == []
            adversary.passes = lambda src, to, data: True
            await third.wait_for_ring(3)
            before = sum(refused(third).values())
            for data in recorded:
                adversary.send(3, data)
                await asyncio.sleep(0)
            await eventually(lambda: sum(refused(third).values()) >= before + len(recorded))
            assert third.ring == (1, 2, 3)

    run(story)


def test_a_flood_with_a_known_header_leaves_members_alone(tmp_path: Path) -> None:
    """Each frame cost the derivation of a key, for an incarnation that does not exist."""

    async def story() -> None:
        settings = keyed(tmp_path, 3)
        async with on_the_path(settings) as adversary, AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            groups = await joined(nodes)
            _, _, frame = adversary.seen[-1]
            *realm, src, _, _, counter = HEADER.unpack_from(frame)
            for number in range(3000):
                forged = HEADER.pack(*realm, src, 2**55 + number, EVERYBODY, counter)
                for to in (1, 2, 3):
                    adversary.send(to, forged + frame[HEADER.size : 60])
                if number % 50 == 0:
                    await asyncio.sleep(0)
            strangers = "too many strangers at once"
            await eventually(lambda: all(strangers in refused(node) for node in nodes))
            await groups[0].send(b"still here", level=Level.SAFE)
            assert [m.body for m in await messages(groups[2], 1)] == [b"still here"]
            assert all(node.ring == (1, 2, 3) for node in nodes)

    run(story)
