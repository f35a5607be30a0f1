"""Replicas with a quorum over real rings: the promise of docs/api.md, through restarts, partitions
and lost disks. The faults that were tried before it was kept are (1) to (4) here."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from loopback import configs, eventually, ring, run

from ringcast.api import log_writer, quorum
from ringcast.api.events import Message, View
from ringcast.api.group import MessageTooLarge, NotJoined
from ringcast.api.node import Node
from ringcast.api.replica import CommandFailed, NoQuorum, Replica, StateMachine
from ringcast.core.errors import NodeStopped, StorageError
from ringcast.replica.exchange import lacking


class SoldOut(Exception):
    """The seat is somebody else's."""


class Seats(StateMachine[str]):
    """Sells numbered seats: ``seat buyer``."""

    def __init__(self) -> None:
        self.sold: dict[str, str] = {}
        self.members: tuple[int, ...] = ()
        self.places: list[Any] = []

    def apply(self, command: Message) -> str:
        seat, buyer = command.body.decode().split(" ", 1)
        self.places.append(command.position)
        if seat in self.sold:
            raise SoldOut(seat)
        self.sold[seat] = buyer
        return f"{seat} is {buyer}'s"

    def on_view(self, view: View) -> None:
        self.members = view.members
        self.places.append(view.position)

    def snapshot(self) -> bytes:
        return json.dumps([self.sold, self.members]).encode()

    def restore(self, state: bytes) -> None:
        self.sold, members = json.loads(state)
        self.members = tuple(members)


class Shop:
    """Three configured members, each with a folder, and faults between them."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.configs = configs(root, 3, **settings)
        for config in self.configs:
            config["fault_file"] = str(root / f"faults{config['id']}.json")

    def folder(self, node: int) -> Path:
        return self.root / f"replica{node}"

    def part(self, *sides: tuple[int, ...]) -> None:
        """Members hear their own side only."""
        for side in sides:
            for node in side:
                deaf = [n for n in (1, 2, 3) if n not in side]
                (self.root / f"faults{node}.json").write_text(json.dumps({"deaf_to": deaf}))

    @asynccontextmanager
    async def member(self, node: int) -> AsyncIterator[Replica[str]]:
        async with (
            Node.open(self.configs[node - 1]) as opened,
            Replica(opened.join("shop"), Seats(), members={1, 2, 3}, dir=self.folder(node)) as r,
        ):
            yield r

    @asynccontextmanager
    async def all(self, *nodes: int) -> AsyncIterator[list[Replica[str]]]:
        async with AsyncExitStack() as stack:
            yield list(
                await asyncio.gather(
                    *(stack.enter_async_context(self.member(n)) for n in nodes or (1, 2, 3))
                )
            )


def sold(replica: Replica[str]) -> dict[str, str]:
    assert isinstance(replica.machine, Seats)
    return replica.machine.sold


@pytest.mark.parametrize("protocol", ["totem", "total", "token-fd"])
def test_a_result_is_the_same_everywhere(tmp_path: Path, protocol: str) -> None:
    async def story() -> None:
        async with Shop(tmp_path, protocol=protocol).all() as (a, b, c):
            assert await a.submit(b"1 ann") == "1 is ann's"
            with pytest.raises(SoldOut, match="1"):
                await b.submit(b"1 bob")
            assert await c.read(lambda seats: dict(seats.sold)) == {"1": "ann"}
            results = await asyncio.gather(
                *(r.submit(b"%d x" % n) for n in range(10, 60) for r in (a, b, c)),
                return_exceptions=True,
            )
            assert sum(isinstance(result, str) for result in results) == 50
            found = await c.read(lambda seats: dict(seats.sold))
            await eventually(lambda: sold(a) == sold(b) == found)
            await eventually(lambda: a.local(lambda seats: 0).age < 5)
            places = c.machine.places  # type: ignore[attr-defined]
            assert places == sorted(set(places))
            with pytest.raises(MessageTooLarge, match="but a command's part of max_message is"):
                await a.submit(bytes(a.group.max_message))
            with pytest.raises(ValueError, match="belong together"):
                await a.submit(b"9 x", client="c")
            with pytest.raises(TypeError, match="request an int"):
                await a.submit(b"9 x", client="c", request="1")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="request an int"):
                await a.submit(b"9 x", client="c", request=True)
            with pytest.raises(ValueError, match="1 to 64 characters"):
                await a.submit(b"9 x", client="c" * 65, request=1)
            await a.submit(b"9 x", client="ü" * 64, request=1)

    run(story)


def lacks(replica: Replica[str]) -> str:
    copy = replica._copy
    assert isinstance(copy, quorum.QuorumCopy)
    return lacking(copy._engine.status(), copy._engine.statuses, copy.primary)


def test_no_quorum_says_what_it_lacks(tmp_path: Path) -> None:
    """It said that there was no majority, of two of three that had never met the third."""

    async def story() -> None:
        shop = Shop(tmp_path)
        async with shop.all(1, 2) as (a, _):
            first = "it needs all 3 members at once for the first time, and has [1, 2]"
            await eventually(lambda: lacks(a) == first)
            with pytest.raises(NoQuorum, match="all 3 members at once"):
                await a.submit(b"1 ann", timeout=0.01)
            assert not a.primary
        async with shop.all() as (a, *_):
            await a.submit(b"1 ann", timeout=300)
            assert a.primary
        async with shop.all(1) as (a,):
            await eventually(
                lambda: lacks(a) == "it needs a majority of the members [1, 2, 3], and has [1]"
            )

    run(story)


def test_members_that_ask_for_different_majorities_are_told(tmp_path: Path) -> None:
    async def story() -> None:
        shop = Shop(tmp_path)
        async with AsyncExitStack() as stack:
            found = []
            for config, members in zip(shop.configs, (4, 3), strict=False):
                node = await stack.enter_async_context(Node.open(config))
                place = tmp_path / f"r{members}"
                one: Replica[str] = Replica(node.join("shop"), Seats(), members, place)
                found.append(await stack.enter_async_context(one))
            wanted = "here members is 3, at others 4"
            await eventually(lambda: lacks(found[1]) == wanted)

    run(story)


def test_voters_by_number_are_all_nodes_that_there_are(tmp_path: Path) -> None:
    """Else any three with empty folders would found a state, beside that of the others."""

    async def story() -> None:
        async with Node.open(configs(tmp_path, 5)[0]) as node:
            with pytest.raises(ValueError, match=r"lists 5 nodes.*members=\[1, 2, 3\]"):
                Replica(node.join("r"), Seats(), 3, tmp_path / "r")
            Replica(node.join("r"), Seats(), (1, 2, 3), tmp_path / "r")
        last = configs(tmp_path, 4)[3]
        last["peers"] = last["peers"][:3]  # itself it need not list
        async with Node.open(last) as node:
            with pytest.raises(ValueError, match=r"lists 4 nodes.*members=\[1, 2, 3\]"):
                Replica(node.join("r"), Seats(), 3, tmp_path / "r")
            Replica(node.join("r"), Seats(), 4, tmp_path / "r")

    run(story)


def test_a_replica_that_has_not_been_opened_and_members_that_are_no_text(tmp_path: Path) -> None:
    async def story() -> None:
        async with Node.open(configs(tmp_path, 1)[0]) as node:
            replica: Replica[str] = Replica(node.join("shop"), Seats(), 1, tmp_path / "r")
            assert not replica.primary
            for use in (replica.submit(b"1 x"), replica.read(len), replica.ready()):
                with pytest.raises(NotJoined, match="async with"):
                    await use
            with pytest.raises(ValueError, match="a number, or the ids"):
                Replica(node.join("shop"), Seats(), "3", tmp_path / "r")  # type: ignore[arg-type]

    run(story)


def test_all_are_killed_and_the_state_is_there(tmp_path: Path) -> None:
    """Fault 3: it started at zero without a word."""

    async def story() -> None:
        shop = Shop(tmp_path)
        for life in range(3):
            async with shop.all() as replicas:
                for r in replicas:
                    await r.ready(300)
                    assert len(sold(r)) == 3 * life
                for n, r in enumerate(replicas):
                    await r.submit(b"%d-%d x" % (life, n))
                found = await replicas[0].read(lambda seats: len(seats.sold))
                assert found == 3 * life + 3

    run(story)


def test_a_command_of_ones_own_tells_how_old_the_copy_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ordered behind all that was confirmed before it, as the barrier of a read is."""
    monkeypatch.setattr("ringcast.api.quorum.TICK_S", 60.0)  # no barrier is sent for it

    async def story() -> None:
        async with Shop(tmp_path).all() as (a, b, _):
            assert a.local(lambda seats: 0).age == math.inf
            await a.submit(b"1 ann")
            assert a.local(lambda seats: 0).age < 30
            await eventually(lambda: len(sold(b)) == 1)
            assert b.local(lambda seats: 0).age == math.inf

    asyncio.run(story())


def test_a_part_without_a_majority_sells_nothing(tmp_path: Path) -> None:
    """Faults 1 and 2: what the minority ordered was confirmed, and won the merge."""

    async def story() -> None:
        shop = Shop(tmp_path)
        async with shop.all() as (a, b, c):
            await a.submit(b"0 first")
            await eventually(lambda: len(sold(c)) == 1)
            shop.part((1, 2), (3,))
            early = [asyncio.ensure_future(c.submit(b"%d early" % n)) for n in range(50, 70)]
            await eventually(lambda: a.group.members == (1, 2) and c.group.members == (3,))
            many = [asyncio.ensure_future(c.submit(b"%d minority" % n)) for n in range(1, 21)]
            confirmed = len([each for each in early if each.done()])
            for n in range(1, 6):
                assert await a.submit(b"%d majority" % n, timeout=300) == f"{n} is majority's"
            with pytest.raises(NoQuorum, match="same client and request"):
                await c.submit(b"99 minority", timeout=0.2)
            with pytest.raises(NoQuorum):
                await c.read(lambda seats: seats.sold, timeout=0.2)
            assert len(sold(c)) == 1 + confirmed
            age = c.local(lambda seats: 0).age
            assert age > 0.3
            assert not any(each.done() for each in many)
            assert len([each for each in early if each.done()]) == confirmed
            shop.part((1, 2, 3))
            results = await asyncio.gather(*many, return_exceptions=True)
            assert [type(r) for r in results] == [SoldOut] * 5 + [str] * 15
            await asyncio.gather(*early)
            found = await b.read(lambda seats: dict(seats.sold))
            assert [found[str(n)] for n in range(1, 6)] == ["majority"] * 5
            assert set(found.values()) == {"first", "early", "majority", "minority"}
            await eventually(lambda: sold(a) == sold(c))
            await eventually(lambda: a.machine.members == (1, 2, 3))  # type: ignore[attr-defined]

    run(story)


def test_a_lost_disk_counts_in_no_quorum(tmp_path: Path) -> None:
    """Fault 3: a member that restarted empty made a quorum with one that had heard nothing."""

    async def story() -> None:
        shop = Shop(tmp_path)
        async with shop.all() as (a, *_):
            await a.submit(b"0 everybody")
        async with shop.all(1, 2) as (a, _):
            assert await a.submit(b"1 ann", timeout=300) == "1 is ann's"
        shutil.rmtree(shop.folder(2))
        async with shop.all(2, 3) as (b, c):
            with pytest.raises(NoQuorum):
                await c.submit(b"1 bob", timeout=1.5)
            with pytest.raises(NoQuorum):
                await b.submit(b"1 bob", timeout=0.2)
            async with shop.member(1) as a:
                await asyncio.gather(*(r.ready(300) for r in (a, b, c)))
                with pytest.raises(SoldOut):
                    await b.submit(b"1 bob")
                assert sold(b)["1"] == "ann"

    run(story)


def test_a_request_is_served_once(tmp_path: Path) -> None:
    """Fault 4: clients that retry were served twice."""

    async def story() -> None:
        shop = Shop(tmp_path)
        async with shop.all() as (a, b, _):
            first = await a.submit(b"7 ann", client="c17", request=4)
            for r in (a, b):
                assert await r.submit(b"7 ann", client="c17", request=4) == first
            with pytest.raises(SoldOut):
                await a.submit(b"7 bob", client="c18", request=1)
        async with shop.all(2, 3) as (b, c):
            for r in (b, c):
                assert await r.submit(b"7 ann", client="c17", request=4, timeout=300) == first
            with pytest.raises(CommandFailed, match="SoldOut: 7"):
                await c.submit(b"7 bob", client="c18", request=1)

    run(story)


def test_the_log_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction while commands go on, and a member that was away gets the state in pieces."""
    monkeypatch.setattr(log_writer, "COMPACT_AT", 20_000)
    monkeypatch.setattr(quorum, "TICK_S", 0.02)

    async def story() -> None:
        shop = Shop(tmp_path)
        async with shop.all() as (a, b, c):
            await a.submit(b"first x", client="c", request=1)
            await eventually(lambda: len(sold(c)) == 1)
        async with shop.all(1, 2) as (a, b):
            for first in range(0, 3000, 100):
                names = range(first, first + 100)
                await asyncio.gather(*(a.submit(b"%d x" % n) for n in names))
            await eventually(lambda: list(shop.folder(1).glob("state-*")))
            await eventually(lambda: (shop.folder(1) / "log").stat().st_size < 100_000)
            async with shop.member(3) as c:
                await c.ready(300)
                await eventually(lambda: len(sold(c)) == 3001)
                assert await c.submit(b"first x", client="c", request=1) == "first is x's"
                assert await b.submit(b"last y") == "last is y's"
        async with shop.all(2, 3) as (b, c):
            await b.ready(300)
            assert len(sold(b)) == 3002
        states = [path.name for path in shop.folder(1).iterdir()]
        assert len([name for name in states if name.startswith("state-")]) == 1

    run(story)


class Large(Seats):
    """Gives its state in many pieces, and remembers how much was sold at each."""

    def __init__(self) -> None:
        super().__init__()
        self.during: list[int] = []

    def pieces(self) -> Iterator[bytes]:
        whole = self.snapshot()

        def one_by_one() -> Iterator[bytes]:
            for at in range(0, len(whole), 16):
                self.during.append(len(self.sold))
                yield whole[at : at + 16]

        return one_by_one()


def test_commands_go_on_while_a_state_is_taken_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is restored is the state of one moment."""
    monkeypatch.setattr(log_writer, "COMPACT_AT", 10_000)
    monkeypatch.setattr(quorum, "TICK_S", 0.02)

    async def story() -> None:
        machine = Large()
        folder = tmp_path / "r"
        async with (
            ring(tmp_path, 1) as (one,),
            Replica(one.join("g"), machine, members=1, dir=folder) as a,
        ):
            for n in range(3000):
                await a.submit(b"%d x" % n)
                if len(set(machine.during)) > 1 and list(folder.glob("state-*")):
                    break
            else:
                raise AssertionError("nothing was sold between two pieces")
            sold = len(machine.sold)
        async with ring(tmp_path, 1) as (one,):
            again = Seats()
            async with Replica(one.join("g"), again, members=1, dir=folder) as a:
                await a.ready(300)
                assert again.sold == {str(n): "x" for n in range(sold)}

    run(story)


def test_events_that_were_lost_here(tmp_path: Path) -> None:
    async def story() -> None:
        shop = Shop(tmp_path)
        async with shop.all() as (a, b, c):
            await a.submit(b"1 ann")
            before = c.group
            c.group.lost(3)
            await eventually(lambda: c.group is not before)
            assert await c.submit(b"2 bob", timeout=300) == "2 is bob's"
            assert await c.read(lambda seats: len(seats.sold)) == 2
            await eventually(lambda: sold(a) == sold(b) == sold(c))

    run(story)


def test_ending_a_node_with_an_open_replica(tmp_path: Path) -> None:
    """Nothing is left that nobody asked for: asyncio would complain, and warnings are errors."""

    async def story() -> None:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, c: complaints.append(c))
        shop = Shop(tmp_path)
        node = Node.open(shop.configs[0])
        await node.start()
        replica = Replica(node.join("shop"), Seats(), members=3, dir=shop.folder(1))
        await replica.__aenter__()
        waiting = asyncio.ensure_future(replica.submit(b"1 ann"))
        reading = asyncio.ensure_future(replica.read(len))
        await asyncio.sleep(0.05)
        await node.close()
        for each in (waiting, reading):
            with pytest.raises(NodeStopped):
                await each
        with pytest.raises(NodeStopped):
            await replica.wait()
        await replica.__aexit__(None, None, None)
        with pytest.raises((NodeStopped, NotJoined)):
            await replica.submit(b"2 ann")
        del waiting, reading, replica
        gc.collect()
        await asyncio.sleep(0)
        assert complaints == []

    run(story)


def test_one_folder_for_two(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 2) as (one, two):
            async with Replica(one.join("g"), Seats(), members=2, dir=tmp_path / "r"):
                with pytest.raises(StorageError, match="another replica uses"):
                    async with Replica(two.join("g"), Seats(), members=2, dir=tmp_path / "r"):
                        pass
            with pytest.raises(StorageError, match="give each replica its own folder"):
                async with Replica(two.join("g"), Seats(), members=2, dir=tmp_path / "r"):
                    pass

    run(story)


def test_a_disk_that_fails_ends_the_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with (
            ring(tmp_path, 1) as (one,),
            Replica(one.join("g"), Seats(), members=1, dir=tmp_path / "r") as a,
        ):
            await a.submit(b"1 ann")

            def fail(*_: object) -> None:
                raise OSError(5, "Input/output error")

            monkeypatch.setattr(a._copy._disk.store._disk, "sync", fail)  # type: ignore[union-attr]
            with pytest.raises(StorageError, match="Input/output error"):
                await a.submit(b"2 ann")
            with pytest.raises(StorageError, match="Input/output error"):
                await a.wait()
            monkeypatch.undo()

    run(story)


def test_settings_that_do_not_fit(tmp_path: Path) -> None:
    group: Any = None
    for wrong in (
        {},
        {"members": 3},
        {"dir": "x"},
        {"members": 3, "dir": ""},
        {"members": 0, "dir": "x"},
        {"members": (1, 1, 2), "dir": "x"},
        {"members": (0, 1, 2), "dir": "x"},
        {"members": 3, "dir": "x", "merge": max},
        {"consistency": "available"},
        {"consistency": "available", "merge": max, "dir": "x"},
        {"consistency": "eventual"},
    ):
        with pytest.raises(ValueError):
            Replica(group, Seats(), **wrong)


def test_what_is_no_machine_is_refused() -> None:
    """A class in place of an object ended all copies at the first view, about self."""

    class Waits(Seats):
        async def apply(self, command: Message) -> str:  # type: ignore[override]
            return ""

    group: Any = None
    for wrong, why in (
        (Seats, "an object of a subclass of StateMachine"),
        (3, "an object of a subclass of StateMachine"),
        (Waits(), "Waits.apply cannot be async"),
    ):
        with pytest.raises(TypeError, match=why):
            Replica(group, wrong, members=3, dir="x")  # type: ignore[arg-type]
