"""Real sockets on loopback: order within one drain, both families, multicast, errors."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
from collections.abc import Callable

import pytest

from ringcast.core.errors import TransportError
from ringcast.core.inputs import Received
from ringcast.protocols.totem_single.machine import MESSAGES
from ringcast.protocols.totem_single.messages import Announce, RingId, Token
from ringcast.runtime.receiver import Receiver
from ringcast.runtime.udp import Udp
from ringcast.wire.address import Address
from ringcast.wire.codec import EVERYBODY, Codec
from ringcast.wire.meeting import Hello, Whereabouts
from ringcast.wire.seal import Medium, Realm

RING = RingId(8, 1)
BUFFER = 2**20


def word(n: int) -> Announce:
    return Announce(RingId(n, 1), 1)


def token(n: int) -> Token:
    return Token(RING, n, 0, 0, None, (), 0, False)


STATIONS: list[Station] = []
"""All of one test; they have met."""


@pytest.fixture(autouse=True)
def nobody_yet() -> None:
    STATIONS.clear()


class Station:
    """A node's sockets, and a log of what they hand over."""

    def __init__(self, node: int, host: str = "127.0.0.1") -> None:
        self.udp = Udp(Address(host, 0), BUFFER)
        self.node = node
        self.codec = Codec(MESSAGES, node, 1, None, Realm(Medium.RING))
        for other in STATIONS:
            self.meet(other)
            other.meet(self)
        STATIONS.append(self)
        self.receiver = Receiver(0, self.udp, self.codec, None, self._hear)
        self.log: list[object] = []
        self.awake = 0
        self.arrived = asyncio.Event()

    def meet(self, other: Station) -> None:
        hello = Hello((Whereabouts(other.node, 1, "h", 1),), False, 1, self.codec.challenge)
        self.codec.decode(other.codec.encode(hello, EVERYBODY))

    def _hear(self, src: int, boot: int, hello: Hello) -> None:
        self.log.append(hello)

    def start(self) -> Station:
        self.receiver.start(asyncio.get_running_loop(), self)
        return self

    def close(self) -> None:
        self.receiver.close()
        self.udp.close()

    def woken(self) -> bool:
        self.awake += 1
        return False

    def step(self, event: Received, more: bool = False) -> None:
        self.log.append(event.message)

    def quiet(self) -> None:
        self.log.append("after")
        self.arrived.set()

    async def until(self, met: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not met():
                self.arrived.clear()
                await self.arrived.wait()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_broadcasts_before_unicasts_in_one_drain(host: str) -> None:
    async def main() -> None:
        one, two = Station(1, host), Station(2, host)
        one.udp.connect({2: two.udp.address})
        one.udp.unicast(2, one.codec.encode(token(1), 2))
        one.udp.broadcast(one.codec.encode(word(1), EVERYBODY))
        one.udp.unicast(2, one.codec.encode(token(2), 2))
        one.udp.broadcast(b"noise")
        hello = Hello((Whereabouts(1, 1, host, 1),), False)
        one.udp.broadcast(one.codec.encode(hello, EVERYBODY))
        one.udp.broadcast(one.codec.encode(word(2), EVERYBODY))
        two.start()  # everything is in the socket already: one wake-up
        await two.until(lambda: len(two.log) > 2)
        assert two.log == [
            word(1), hello, word(2), token(1), token(2), "after",
        ]  # fmt: skip
        assert (one.udp.sent, two.receiver.received) == (6, 6)
        assert two.codec.refused == {"too short": 1}
        one.close()
        two.close()

    asyncio.run(main())


def test_unknown_receivers_and_dead_ones_are_losses() -> None:
    async def main() -> None:
        one = Station(1)
        gone = Station(9)
        one.udp.connect({2: gone.udp.address})
        gone.close()
        for _ in range(4):  # the second of each pair hears of the first
            one.udp.unicast(2, b"x")
            one.udp.unicast(3, b"x")
        assert one.udp.send_failures > 0
        assert one.udp.sent + one.udp.send_failures == 4
        one.udp.connect({4: Address("nowhere.invalid", 1), 5: Address("255.255.255.255", 1)})
        assert one.udp.send_failures > 1  # not allowed there; noted, not raised
        one.udp.broadcast(b"x" * 70_000)  # more than a datagram holds
        one.close()

    asyncio.run(main())


def test_a_peer_that_moves_gets_a_new_socket() -> None:
    async def main() -> None:
        one, old, new = Station(1), Station(2).start(), Station(2).start()
        one.udp.connect({2: old.udp.address})
        one.udp.connect({2: old.udp.address})
        one.udp.broadcast(one.codec.encode(word(1), EVERYBODY))
        await old.until(lambda: word(1) in old.log)
        one.udp.connect({2: new.udp.address})
        one.udp.broadcast(one.codec.encode(word(2), EVERYBODY))
        await new.until(lambda: word(2) in new.log)
        assert word(2) not in old.log
        for each in (one, old, new):
            each.close()

    asyncio.run(main())


def test_a_seed_of_the_other_family_is_reached() -> None:
    async def main() -> None:
        one, two = Station(1, "::1"), Station(2).start()
        seed = Address("127.0.0.1", two.udp.address.port)
        one.udp.send_to(seed, one.codec.encode(word(1), EVERYBODY))
        await two.until(lambda: word(1) in two.log)
        one.close()
        two.close()

    asyncio.run(main())


def test_too_many_open_files_are_a_loss_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        one, two = Station(1), Station(2).start()
        frame = one.codec.encode(word(1), EVERYBODY)
        with monkeypatch.context() as exhausted:

            def refuse(*_: object) -> None:
                raise OSError(errno.EMFILE, "Too many open files")

            exhausted.setattr("socket.socket", refuse)
            one.udp.connect({2: two.udp.address})
            one.udp.send_to(two.udp.address, frame)
        assert one.udp.send_failures == 2
        one.udp.connect({2: two.udp.address})
        one.udp.broadcast(frame)
        await two.until(lambda: word(1) in two.log)
        one.close()
        two.close()

    asyncio.run(main())


def test_names_are_reached_too() -> None:
    async def main() -> None:
        one, two = Station(1), Station(2).start()
        port = two.udp.address.port
        one.udp.connect({2: Address("localhost", port)})
        one.udp.send_to(Address("localhost", port), one.codec.encode(word(1), EVERYBODY))
        one.udp.broadcast(one.codec.encode(word(2), EVERYBODY))
        await two.until(lambda: word(1) in two.log and word(2) in two.log)
        one.close()
        two.close()
        assert one.udp.hosts() == {"127.0.0.1"}, "also when it is closed: others may still ask"

    asyncio.run(main())


def test_a_resting_socket_keeps_what_arrives() -> None:
    async def main() -> None:
        one, two = Station(1), Station(2).start()
        one.udp.connect({2: two.udp.address})
        two.receiver.rest(0.05)
        two.receiver.rest(60)  # already resting: not longer
        one.udp.broadcast(one.codec.encode(word(1), EVERYBODY))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert two.log == []
        await two.until(lambda: word(1) in two.log)
        two.receiver.rest(60)
        two.close()  # must not leave the timer behind
        one.close()

    asyncio.run(main())


async def multicast(group: str, interface: str, host: str) -> None:
    """One send reaches everybody, and still counts as data before the token."""
    stations = [Station(n, host) for n in (1, 2, 3)]
    port = stations[0].udp.address.port  # taken by nobody as a multicast port either
    for each in stations:
        each.udp.join_multicast(Address(group, port), interface, BUFFER)
        each.udp.connect({n: s.udp.address for n, s in enumerate(stations, 1)})
    one, two, three = stations
    one.udp.unicast(2, one.codec.encode(token(1), 2))
    one.udp.broadcast(one.codec.encode(word(1), EVERYBODY))
    assert one.udp.sent == 2
    await two.start().until(lambda: word(1) in two.log and token(1) in two.log)
    assert two.log[:3] == [word(1), token(1), "after"]
    await three.start().until(lambda: word(1) in three.log)
    two.udp.broadcast(two.codec.encode(word(2), EVERYBODY))
    await one.start().until(lambda: word(2) in one.log)
    assert one.receiver.received == 1 or sys.platform != "linux", "its own did not come back to it"
    for each in stations:
        each.close()


def test_multicast_over_ipv4() -> None:
    asyncio.run(multicast("239.255.77.1", "127.0.0.1", "127.0.0.1"))


def test_multicast_over_ipv6() -> None:
    """Loopback does not carry it, so this happens on a link in a network namespace."""
    setup = """
        ip link set lo up
        ip link add one type veth peer name two
        ip addr add fd77::1/64 dev one nodad
        ip link set one up
        ip link set two up
        exec "$0" "$1"
    """
    inside = ["unshare", "-rn", "sh", "-ec", setup, sys.executable, __file__]
    if subprocess.run(["unshare", "-rn", "ip", "link"], capture_output=True).returncode:
        pytest.skip("network namespaces are not allowed here")
    subprocess.run(inside, check=True, timeout=300)


def test_a_port_in_use() -> None:
    first = Udp(Address("127.0.0.1", 0), BUFFER)
    with pytest.raises(TransportError, match=r"cannot listen on 127.0.0.1:\d+: Address already"):
        Udp(first.address, BUFFER)
    first.close()


@pytest.mark.parametrize("host", ["198.51.100.1", "nowhere.invalid"])
def test_an_address_that_is_not_ours(host: str) -> None:
    with pytest.raises(TransportError, match=r"not .*this machine"):
        Udp(Address(host, 0), BUFFER)


@pytest.mark.parametrize(
    ("group", "interface"),
    [
        ("239.255.77.1", "lo"),
        ("239.255.77.1", "198.51.100.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("ff01::1", "no-such-if"),
        ("nowhere.invalid", ""),
    ],
)
def test_multicast_that_cannot_be(group: str, interface: str) -> None:
    udp = Udp(Address("127.0.0.1", 0), BUFFER)
    with pytest.raises(TransportError, match=r"cannot use multicast .* the interface is given by"):
        udp.join_multicast(Address(group, 0), interface, BUFFER)
    udp.close()


def test_a_full_buffer_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    udp = Udp(Address("127.0.0.1", 0), BUFFER)

    class Blocked:
        def send(self, run: list[bytes]) -> None:
            raise BlockingIOError(errno.EAGAIN, "full")

    monkeypatch.setattr(udp, "_fanout", [Blocked()])
    udp.broadcast(b"x", b"y")
    assert (udp.blocked, udp.sent) == (2, 0)
    udp.close()


if __name__ == "__main__":
    asyncio.run(multicast("ff15::7701", "one", "fd77::1"))
