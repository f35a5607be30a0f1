"""How many calls a port takes in a turn, in a slice of time and from one host."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from ringcast.wire import tcp_listener
from ringcast.wire.address import Address
from ringcast.wire.tcp_listener import (
    HOST_AT_ONCE,
    HOST_PER_SLICE,
    OTHERS_PER_SLICE,
    PER_SLICE,
    PER_TURN,
    TcpListener,
    host_of,
)


class Port:
    """A listener whose slices end when the test says so, and the calls it answered."""

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()
        self.members: list[str] = []
        self.listener = TcpListener(self._answer, lambda: self.members)
        self.callers: list[socket.socket] = []

    def _answer(self, call: socket.socket, host: str) -> None:
        self.answered[host] += 1
        call.close()

    def call(self, host: str, times: int) -> None:
        for _ in range(times):
            self.callers.append(socket.create_connection(self.place, 20, (host, 0)))

    @property
    def taken(self) -> int:
        return self.answered.total() + self.listener.refused

    async def until_paused(self) -> None:
        while not self.listener.pauses:  # noqa: ASYNC110  # no event says it
            await asyncio.sleep(0)
        assert self.listener._socket is not None
        assert not asyncio.get_running_loop().remove_reader(self.listener._socket)

    async def until_taken(self, calls: int) -> None:
        while self.taken < calls:  # noqa: ASYNC110  # no event says it
            await asyncio.sleep(0)

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(60):
                self.place = "127.0.0.1", self.listener.open(Address("127.0.0.1", 0))
                try:
                    await story()
                finally:
                    self.listener.close()
                    for each in self.callers:
                        each.close()

        asyncio.run(main())


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Port:
    monkeypatch.setattr(tcp_listener, "SLICE_S", 3600.0)
    return Port()


@pytest.mark.parametrize(
    ("one", "another", "alike"),
    [
        ("127.0.0.1", "127.0.0.2", False),
        ("::1", "::2", True),
        ("fe80::1%eth0", "fe80::2:3%eth0", True),
        ("2001:db8::1", "2001:db8:0:0:ffff::1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
    ],
)
def test_a_host_is_known_by_its_network(one: str, another: str, alike: bool) -> None:
    """With IPv6, a host was as many as it liked, and kept out all others."""
    assert (host_of(one) == host_of(another)) is alike


def test_a_turn_takes_a_few_calls(port: Port) -> None:
    """A turn took as many as there were, and the ring waited."""

    async def story() -> None:
        port.call("127.0.0.1", 3 * PER_TURN)
        port.listener._on_calls()
        assert port.taken == PER_TURN
        await port.until_taken(3 * PER_TURN)

    port.play(story)


def test_a_slice_of_time_takes_a_bounded_number_of_calls(port: Port) -> None:
    async def story() -> None:
        few = HOST_AT_ONCE - HOST_PER_SLICE
        port.members = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
        for host in port.members:
            port.call(host, few)
        await port.until_paused()
        assert port.taken == PER_SLICE
        port.listener._end_slice()
        await port.until_taken(3 * few)
        assert (port.answered.total(), port.listener.refused) == (3 * few, 0)

    port.play(story)


def test_a_host_that_calls_too_often_is_hung_up_on(port: Port) -> None:
    """Its calls alone: those of another host, behind them in the row, are answered."""

    async def story() -> None:
        mine, other = "127.0.0.1", "127.0.0.2"
        port.call(mine, HOST_AT_ONCE + 10)
        port.call(other, 5)
        await port.until_taken(HOST_AT_ONCE + 15)
        assert port.answered == {mine: HOST_AT_ONCE, other: 5}
        assert port.listener.refused == 10
        port.listener._end_slice()
        port.call(mine, HOST_PER_SLICE + 1)
        await port.until_taken(HOST_AT_ONCE + HOST_PER_SLICE + 16)
        assert port.answered[mine] == HOST_AT_ONCE + HOST_PER_SLICE

    port.play(story)


def test_many_hosts_are_answered_no_more_than_a_few(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two thousand calls a second, each from another host, made a ring a hundred times as slow. A
    member's are answered all the same."""
    monkeypatch.setattr(tcp_listener, "OTHERS_AT_ONCE", 40)

    async def story() -> None:
        member, port.members = "127.1.0.1", ["127.1.0.1", "::1"]
        for last in range(1, 61):
            port.call(f"127.0.0.{last}", 1)
        port.call(member, 5)
        await port.until_taken(65)
        assert port.answered[member] == 5
        assert (port.answered.total(), port.listener.refused) == (45, 20)
        port.listener._end_slice()
        port.call("127.0.0.99", 1 + OTHERS_PER_SLICE // 2)
        await port.until_taken(66 + OTHERS_PER_SLICE // 2)
        assert port.listener.refused == 20
        for last in range(100, 130):
            port.call(f"127.0.0.{last}", 1)
        await port.until_taken(96 + OTHERS_PER_SLICE // 2)
        assert port.answered.total() == 45 + OTHERS_PER_SLICE

    port.play(story)


def test_a_port_without_calls_has_no_timer(port: Port) -> None:
    async def story() -> None:
        port.call("127.0.0.1", HOST_PER_SLICE + 1)
        await port.until_taken(HOST_PER_SLICE + 1)
        port.listener._end_slice()
        assert port.listener._slice is not None
        port.listener._end_slice()
        assert port.listener._slice is None

    port.play(story)


def test_calls_wait_while_no_file_is_left(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop would go round and round."""

    def take() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def story() -> None:
        monkeypatch.setattr(port.listener, "_take", take)
        port.call("127.0.0.1", 1)
        await port.until_paused()
        monkeypatch.undo()
        port.listener._end_slice()
        await port.until_taken(1)

    port.play(story)
