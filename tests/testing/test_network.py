"""What hosts can say to each other: datagrams, streams, requests; and what faults make of it."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.sim.model import LinkModel, NetworkModel
from ringcast.sim.scheduler import Scheduler
from ringcast.testing.calls import Request
from ringcast.testing.errors import CallFailed
from ringcast.testing.host import Host
from ringcast.testing.network import SimNetwork
from ringcast.testing.run import Outcome, RunSetup, run
from ringcast.testing.world import World


def passed(test: Callable[[World], Coroutine[Any, Any, None]], **setup: Any) -> Outcome:
    found = run(test, RunSetup(**{"seed": 0} | setup))
    if found.error is not None:
        raise found.error
    return found


async def echo_datagrams() -> None:
    loop = asyncio.get_running_loop()

    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, place: Any) -> None:
            self.transport.sendto(data.upper(), place)

    await loop.create_datagram_endpoint(Echo, ("0.0.0.0", 7))
    await asyncio.Event().wait()


async def send_datagrams(host: Host) -> None:
    host.heard = []  # type: ignore[attr-defined]
    await asyncio.sleep(0.5)  # hosts do not start at the same moment
    loop = asyncio.get_running_loop()
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setblocking(False)
    loop.add_reader(out, lambda: host.heard.append(out.recv(100)))  # type: ignore[attr-defined]
    out.connect((socket.gethostbyname("echo"), 7))
    for number in range(100):
        out.send(b"x%d" % number)
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    out.close()


def heard(link: LinkModel) -> list[bytes]:
    found: list[bytes] = []

    async def test(world: World) -> None:
        world.host("echo", echo_datagrams)
        client = world.host("client", send_datagrams)
        await world.until(lambda: client.done)
        found.extend(client.heard)  # type: ignore[attr-defined]

    passed(test, network=NetworkModel(link=link))
    return found


def test_datagrams_arrive_get_lost_and_come_twice() -> None:
    everything = [b"X%d" % number for number in range(100)]
    assert heard(LinkModel()) == everything
    lossy = heard(LinkModel(unicast_loss=0.3))
    assert 20 < len(lossy) < 80
    assert lossy == [each for each in everything if each in lossy]
    assert len(heard(LinkModel(duplicate=0.5))) > 150
    reordered = heard(LinkModel(reorder=0.5, reorder_us=50_000))
    assert sorted(reordered) == sorted(everything)
    assert reordered != everything


async def echo_lines(host: Host) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, host.address, 80)
    assert server.sockets[0].getsockname() == (host.address, 80)
    async with server:
        await server.serve_forever()


def test_streams_carry_bytes_in_order_through_a_bad_network() -> None:
    async def client() -> list[bytes]:
        await asyncio.sleep(0.5)
        reader, writer = await asyncio.open_connection("echo", 80)
        writer.writelines([b"line %d\n" % number for number in range(50)])
        lines = [await reader.readline() for _ in range(50)]
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        return lines

    async def test(world: World) -> None:
        world.host("echo", echo_lines)
        asking = world.host("client", client)
        world.later(0.52, world.cut, "client", "echo")
        world.later(3, world.mend, "client", "echo")
        await world.until(lambda: asking.done)
        assert asking.result == [b"LINE %d\n" % number for number in range(50)]

    link = LinkModel(loss=0.3, unicast_loss=0.3, duplicate=0.2, reorder=0.3, reorder_us=30_000)
    for seed in range(10):
        passed(test, seed=seed, network=NetworkModel(link=link))


def test_a_reader_gets_any_part_of_what_was_written() -> None:
    """Of TCP, whose reads know nothing of writes; in a run made small, all of it."""

    async def greets(host: Host) -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"good morning")
            writer.close()

        async with await asyncio.start_server(greet, host.address, 80) as server:
            await server.serve_forever()

    async def reads() -> bytes:
        await asyncio.sleep(0.5)
        reader, writer = await asyncio.open_connection("greeter", 80)
        first = await reader.read(100)
        assert first + await reader.read() == b"good morning"
        writer.close()
        return first

    def first(seed: int, **setup: Any) -> bytes:
        found: list[bytes] = []

        async def test(world: World) -> None:
            world.host("greeter", greets)
            reader = world.host("reader", reads)
            await world.until(lambda: reader.done)
            found.append(reader.result)

        passed(test, seed=seed, **setup)
        return found[0]

    firsts = [first(seed) for seed in range(40)]
    assert 20 < firsts.count(b"good morning") < 40
    assert {first(seed, odd=()) for seed in range(40)} == {b"good morning"}


def test_nobody_is_connected_while_no_answer_comes_through() -> None:
    async def client() -> float:
        await asyncio.sleep(0.5)
        _, writer = await asyncio.open_connection("echo", 80)
        writer.close()
        return asyncio.get_running_loop().time()

    async def test(world: World) -> None:
        world.host("echo", echo_lines)
        asking = world.host("client", client)
        world.cut("echo", "client")
        world.later(4, world.mend, "echo", "client")
        await world.until(lambda: asking.done)
        assert 4 < asking.result < 5

    passed(test)


def test_a_datagram_has_a_largest_size() -> None:
    async def client() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            assert out.sendto(bytes(65_507), ("127.0.0.1", 7)) == 65_507
            with pytest.raises(OSError, match="Message too long"):
                out.sendto(bytes(65_508), ("127.0.0.1", 7))

    async def test(world: World) -> None:
        asking = world.host("client", client)
        await world.until(lambda: asking.done)

    passed(test)


def test_a_listening_socket_gives_out_connections_one_by_one() -> None:
    """As ringcast's own does: the program decides how many it takes."""

    async def serve(host: Host) -> None:
        loop, listening = asyncio.get_running_loop(), socket.create_server((host.address, 80))
        listening.setblocking(False)
        assert listening.getsockname() == (host.address, 80)
        called = asyncio.Event()
        loop.add_reader(listening, called.set)
        for _ in range(2):
            await called.wait()
            call, (name, _) = listening.accept()
            assert name == world_of["client"].address
            reader, writer = await asyncio.open_connection(sock=call)
            writer.write(await reader.readline())
            writer.close()
            called.clear()
        await called.wait()
        listening.accept()[0].close()
        with pytest.raises(BlockingIOError):
            listening.accept()
        loop.remove_reader(listening)
        await asyncio.sleep(1)
        listening.close()

    async def client() -> list[bytes]:
        await asyncio.sleep(0.5)
        said = []
        for number in range(3):
            reader, writer = await asyncio.open_connection("echo", 80)
            writer.write(b"%d\n" % number)
            said.append(await reader.read())
            writer.close()
        reader, writer = await asyncio.open_connection("echo", 80)
        with pytest.raises(ConnectionResetError):
            await reader.read()  # it was never taken
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("echo", 80)
        return said

    world_of: dict[str, Host] = {}

    async def test(world: World) -> None:
        world.host("echo", serve)
        world_of["client"] = asking = world.host("client", client)
        await world.until(lambda: asking.done)
        assert asking.result == [b"0\n", b"1\n", b""]

    for seed in range(5):
        passed(test, seed=seed)


def test_a_long_write_waits_for_the_reader() -> None:
    async def slow(host: Host) -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            total = 0
            while data := await reader.read(10_000):
                total += len(data)
                await asyncio.sleep(0.01)
            host.total = total  # type: ignore[attr-defined]
            writer.close()

        async with await asyncio.start_server(talk, "0.0.0.0", 80) as server:
            await server.serve_forever()

    async def client() -> float:
        await asyncio.sleep(0.5)
        _, writer = await asyncio.open_connection("slow", 80)
        for _ in range(100):
            writer.write(bytes(10_000))
            await writer.drain()
        took = asyncio.get_running_loop().time()
        writer.close()
        return took

    async def test(world: World) -> None:
        server, sending = world.host("slow", slow), world.host("client", client)
        await world.until(lambda: hasattr(server, "total"))
        assert server.total == 1_000_000  # type: ignore[attr-defined]  # slow() gives it one
        assert sending.result > 0.3, "it wrote no faster than the other one read"

    passed(test)


@pytest.mark.parametrize("how", ["crash", "cut"])
def test_a_connection_breaks_when_the_other_side_goes(how: str) -> None:
    async def client() -> str:
        await asyncio.sleep(0.5)
        reader, writer = await asyncio.open_connection("echo", 80)
        try:
            while True:
                writer.write(b"still there?\n")
                await reader.readline()
                if reader.at_eof():
                    return "end"
                await asyncio.sleep(0.1)
        except OSError as error:
            return type(error).__name__

    async def test(world: World) -> None:
        server, asking = world.host("echo", echo_lines), world.host("client", client)
        await world.sleep(2)
        if how == "crash":
            server.crash()
        else:
            world.cut("client", "echo")
        await world.until(lambda: asking.done)
        wanted = {"crash": "ConnectionResetError", "cut": "TimeoutError"}[how]
        assert asking.result == wanted

    passed(test)


def test_libraries_find_what_they_ask_of_sockets() -> None:
    """As httpx, aiohttp and websockets do it."""

    async def server() -> None:
        async def answer(reader: Any, writer: Any) -> None:
            writer.write(await reader.readline())
            writer.close()

        served = await asyncio.start_server(answer, "0.0.0.0", 80)
        assert [each.family for each in served.sockets] == [socket.AF_INET]
        assert served.sockets[0].getsockname() == ("0.0.0.0", 80)
        await asyncio.Event().wait()

    async def client() -> bytes:
        await asyncio.sleep(1)
        loop = asyncio.get_running_loop()
        _, _, _, _, place = (await loop.getaddrinfo(b"server", 80))[0]
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(opened, place)
        assert opened.getpeername() == place
        reader, writer = await asyncio.open_connection(sock=opened)
        assert writer.get_extra_info("socket").getpeername() == place
        writer.write(b"hello\n")
        said = await reader.read()
        name: Any = b"server"
        for each in (writer, (await asyncio.open_connection(name, 80))[1]):
            each.close()
        return said

    async def test(world: World) -> None:
        world.host("server", server)
        asking = world.host("client", client)
        await world.until(lambda: asking.done)
        assert asking.result == b"hello\n"

    passed(test)


def test_who_listens_nowhere_is_refused() -> None:
    async def client() -> str:
        try:
            await asyncio.open_connection("quiet", 80)
        except ConnectionRefusedError:
            return "refused"
        return "connected"

    async def quiet() -> None:
        await asyncio.Event().wait()

    async def test(world: World) -> None:
        world.host("quiet", quiet)
        asking = world.host("client", client)
        await world.until(lambda: asking.done)
        assert asking.result == "refused"

    passed(test)


async def counting(host: Host) -> None:
    host.asked = getattr(host, "asked", 0)  # type: ignore[attr-defined]

    async def answer(request: Request) -> Any:
        host.asked += 1  # type: ignore[attr-defined]
        if request.path == "/slow":
            await asyncio.sleep(2)
        if request.path == "/wrong":
            raise ValueError("no")
        return {"path": request.path, "body": request.body, "caller": request.caller}

    host.serve(answer)
    await asyncio.Event().wait()


def asked(path: str, prepare: Callable[[World], object], **more: Any) -> tuple[Any, int]:
    """What a caller gets, and how many requests arrived."""
    results: list[Any] = []

    async def client(host: Host) -> Any:
        await asyncio.sleep(0.5)
        try:
            return await host.call("server", path, {"n": [1, 2]}, **more)
        except CallFailed as error:
            return str(error)

    async def test(world: World) -> None:
        server, asking = world.host("server", counting), world.host("client", client)
        world.later(0.4, prepare, world)
        await world.until(lambda: asking.done)
        results.extend((asking.result, server.asked))  # type: ignore[attr-defined]

    passed(test)
    return results[0], results[1]


def test_a_request_is_answered() -> None:
    answer = {"path": "/x", "body": {"n": [1, 2]}, "caller": "client"}
    assert asked("/x", lambda world: None) == (answer, 1)


def test_a_request_fails_in_all_the_ways_there_are() -> None:
    assert asked("/wrong", lambda world: None) == ("server failed: ValueError: no", 1)
    assert asked("/x", lambda world: world.cut("client", "server"))[1] == 0
    lost, arrived = asked("/x", lambda world: world.cut("server", "client"))
    assert (lost, arrived) == ("no answer of server/x within 5 s", 1)
    assert asked("/slow", lambda world: None, within=1.0)[0].startswith("no answer of server/slow")
    down = asked("/x", lambda world: world["server"].crash())
    assert down == ("nobody answers at server", 0)
    broken = asked("/slow", lambda world: world.later(1, world["server"].crash))
    assert broken == ("server broke off", 1)
    paused = asked("/x", lambda world: world["server"].pause())
    assert paused == ("no answer of server/x within 5 s", 0)


SOME_HOSTS = st.frozensets(st.integers(1, 5), min_size=1)


@given(st.lists(st.tuples(st.booleans(), SOME_HOSTS, SOME_HOSTS), max_size=12))
def test_a_way_is_open_when_each_of_its_cuts_is_mended(
    steps: list[tuple[bool, frozenset[int], frozenset[int]]],
) -> None:
    network = SimNetwork(NetworkModel(), Scheduler(), Random(0))
    cuts = Counter[tuple[int, int]]()
    for severs, sources, targets in steps:
        ways = [(source, target) for source in sources for target in targets]
        if severs:
            network.sever((sources, targets))
            cuts.update(ways)
        else:
            network.mend_ways((sources, targets))
            cuts -= Counter(ways)
        for way in ((source, target) for source in range(1, 6) for target in range(1, 6)):
            assert network.reaches(*way) == (not cuts[way])
