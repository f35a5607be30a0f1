"""A member that has the key says one thing that once ended or crippled the others, live."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from adversary import keyed, opened
from loopback import eventually, joined, messages, run

from ringcast.api import directory
from ringcast.api.node import Node
from ringcast.core.ids import Level, ViewId
from ringcast.core.inputs import Message
from ringcast.core.registry import protocols
from ringcast.protocols.totem_single.messages import LAST, REACH, Join
from ringcast.runtime.config import from_settings
from ringcast.runtime.host import LiveHost
from ringcast.runtime.port import compared
from ringcast.wire import address
from ringcast.wire.address import Address, parse
from ringcast.wire.codec import EVERYBODY, Codec
from ringcast.wire.envelope import Groups
from ringcast.wire.keys import KeyFile
from ringcast.wire.meeting import Hello, Whereabouts
from ringcast.wire.seal import Medium, Realm


def host(node: Node) -> LiveHost:
    assert node._host is not None
    return node._host


def says(node: Node, settings: dict[str, Any], message: Message, to: int = EVERYBODY) -> None:
    """A frame of this node, for the one that has these settings."""
    port = host(node).ports[0]
    port._transport.send_to(parse(settings["bind"], "bind"), port._codec.encode(message, to))


def test_the_last_ring_number_does_not_keep_a_ring_from_forming(tmp_path: Path) -> None:
    """One Join with it was stored, and the ring never formed again."""

    async def story() -> None:
        settings = keyed(tmp_path, 3)
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings[:2])
            third = Node.open(settings[2])
            await third.start()
            await third.wait_for_ring(3)
            for each in settings[:2]:
                says(third, each, Join(3, LAST, (1, 2, 3), (), 0))
            out_of_reach = "a part of a ring number that is out of reach"
            for node in nodes:
                await eventually(lambda node=node: out_of_reach in str(node.metrics()))  # type: ignore[misc]
            await third.close()
            for node in nodes:
                await node.wait_for_ring(2)
            assert all(host(node)._store.values["ring_seq"] < 2 * REACH for node in nodes)
            third = await stack.enter_async_context(Node.open(settings[2]))
            for node in (*nodes, third):
                await node.wait_for_ring(3)

    run(story)


@pytest.mark.parametrize("boots", [1, 2**40], ids=["next", "far"])
def test_a_later_start_of_a_member_that_another_speaks_of_is_none(
    tmp_path: Path, boots: int
) -> None:
    """A Hello in which one member names a later boot of another, and another place."""

    async def story() -> None:
        settings = keyed(tmp_path, 3)
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            groups = await joined(nodes)
            mine = host(nodes[1]).ports[0]._meetings.book.mine
            elsewhere = Whereabouts(1, host(nodes[0]).boot + boots, "127.0.0.1", 9)
            for each in (settings[0], settings[2]):
                says(nodes[1], each, Hello((mine, elsewhere), False))
            looks = host(nodes[0]).ports[0]._meetings.looks
            await eventually(lambda: host(nodes[0]).ports[0]._meetings.looks > looks + 1)
            await groups[0].send(b"still me", level=Level.SAFE)
            for group in groups:
                assert [m.body for m in await messages(group, 1)] == [b"still me"]
            assert host(nodes[2]).ports[0].addresses()[1] == parse(settings[0]["bind"], "bind")
            assert all(node.ring == (1, 2, 3) for node in nodes)

    run(story)


@pytest.mark.parametrize("name", [each.name for each in protocols() if each.live])
def test_a_hello_for_one_node_in_its_own_id_does_not_end_it(tmp_path: Path, name: str) -> None:
    """One frame with the node's id in the header as the receiver went to its protocol, which took
    the sender to be another processor with its id; nobody had met that one."""

    async def story() -> None:
        settings = keyed(tmp_path, 1, protocol=name)
        config = from_settings(settings[0])
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(Node.open(settings[0]))
            out = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            out.bind(("127.0.0.1", 0))
            boot = host(node).boot + 10**9
            keys, realm = KeyFile(tmp_path / "group.key"), Realm(Medium.RING, "", name)
            codec = Codec(config.sheet.messages, 1, boot, keys, realm, *compared(config))
            forged = Hello((Whereabouts(1, boot, *out.getsockname()),), False)
            out.sendto(codec.encode(forged, 1), parse(settings[0]["bind"], "bind"))
            asked = select.poll()  # it is asked who it is
            asked.register(out, select.POLLIN)
            await eventually(lambda: asked.poll(0) or not node.running)
            assert node.running

    run(story)


def test_a_hello_with_many_names_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """250 names stalled a node for seven seconds, with 240 threads, and took configured peers'
    addresses over."""
    over = threading.Event()
    asked: list[str] = []
    resolve: Callable[[Address], Any] = address.resolve

    def server(name: Address) -> Any:
        if not name.host.endswith(".invalid"):
            return resolve(name)
        asked.append(name.host)
        over.wait(30)
        return []

    monkeypatch.setattr(address, "resolve", server)

    async def story() -> None:
        settings = keyed(tmp_path, 3)
        async with AsyncExitStack() as stack:
            nodes = await opened(stack, settings)
            groups = await joined(nodes)
            stack.callback(over.set)
            mine = host(nodes[1]).ports[0]._meetings.book.mine
            names = [Whereabouts(n, 2**50, f"n{n}.invalid", 9) for n in range(1, 251) if n != 2]
            threads = threading.active_count()
            victim = host(nodes[2]).ports[0]
            began = time.thread_time()
            says(nodes[1], settings[2], Hello((mine, *names), False))
            await eventually(lambda: len(victim._meetings.book.known()) > 200)
            await groups[0].send(b"on", level=Level.SAFE)
            assert [m.body for m in await messages(groups[2], 1)] == [b"on"]
            assert time.thread_time() - began < 2, "processor time of all three"
            assert len(asked) <= 8 and threading.active_count() - threads <= 8
            assert victim.addresses() == {
                node: parse(settings[node - 1]["bind"], "bind") for node in (1, 2)
            }

    run(story)


def test_a_member_that_never_says_its_groups_is_left_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All readers waited for it, and what waited grew without bound."""
    monkeypatch.setattr(directory, "MOST_WAITING", 100_000)
    monkeypatch.setattr(directory, "CROWDED", 50_000)

    async def story() -> None:
        settings = keyed(tmp_path, 3)
        async with AsyncExitStack() as stack:
            silent = Node.open(settings[2])
            of_another_ring = Groups(ViewId(1, 9), ("g",))
            monkeypatch.setattr(silent._directory, "word", lambda most: of_another_ring)
            nodes = await opened(stack, settings[:2])
            groups = await joined(nodes)
            await stack.enter_async_context(silent)
            for node in nodes:
                await node.wait_for_ring(3)
            for node in nodes:
                await eventually(lambda node=node: node.metrics()["groups_wait_for"] == [3])  # type: ignore[misc]
            for _ in range(30):
                await groups[0].send(bytes(10_000))
            assert len(await messages(groups[1], 30)) == 30
            for node in nodes:
                assert (node.metrics()["left_aside"], node.metrics()["groups_wait_for"]) == (1, [])

    run(story)
