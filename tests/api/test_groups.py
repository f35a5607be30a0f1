"""Nodes and groups over loopback: one order, views, errors, and ways to end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loopback import (
    alike,
    collect,
    configs,
    eventually,
    gist,
    joined,
    messages,
    ring,
    run,
    views,
)

from ringcast.api import outgoing
from ringcast.api.events import Batch, Message, View
from ringcast.api.group import MessageTooLarge, NotJoined, WouldBlock
from ringcast.api.node import Node
from ringcast.core.errors import (
    ConfigError,
    MemberExcluded,
    MemberFellBehind,
    NodeStopped,
    RingcastError,
    StorageError,
    TransportError,
)
from ringcast.core.ids import Level, Position
from ringcast.runtime.loopback import free_ports


def test_positions_are_the_same_everywhere_and_increase(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 3) as nodes:
            groups = await joined(nodes)
            returned: dict[bytes, Position] = {}

            async def talk(n: int) -> None:
                for i in range(20):
                    body = f"{n}/{i}".encode()
                    level = Level.SAFE if i % 3 == 0 else Level.AGREED
                    returned[body] = await groups[n].send(body, level)

            await asyncio.gather(*(talk(n) for n in range(3)))
            seen = [await messages(group, 60) for group in groups]
            assert seen[0] == seen[1] == seen[2]
            assert [m.position for m in seen[0]] == sorted({m.position for m in seen[0]})
            assert {m.body: m.position for m in seen[0]} == returned
            assert {m.body.split(b"/")[0]: m.sender for m in seen[0]} == {b"0": 1, b"1": 2, b"2": 3}
            assert all((m.level is Level.SAFE) == (int(m.body[2:]) % 3 == 0) for m in seen[0])

    run(story)


def test_who_waits_for_a_message_goes_on_before_who_reads_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 2) as nodes:
            _, group = await joined(nodes)
            order: list[str] = []

            async def read() -> None:
                await messages(group, 1)
                order.append("read")

            reading = asyncio.create_task(read())
            await asyncio.sleep(0)
            await group.send(b"a")
            order.append("sent")
            await reading
            assert order == ["sent", "read"]

    run(story)


def test_levels_by_name(tmp_path: Path) -> None:
    """Totem R80: fifo and causal are served, and reported, as agreed."""

    async def story() -> None:
        async with ring(tmp_path, 1) as (node,), node.join("g") as group:
            for name in ("fifo", "causal", "agreed", "safe"):
                await group.send(name.encode(), level=name)
            group.send_nowait(b"fifo", level="fifo")
            reported = {(m.body, m.level) for m in await messages(group, 5)}
            assert reported == {
                *((name, Level.AGREED) for name in (b"fifo", b"causal", b"agreed")),
                (b"safe", Level.SAFE),
            }
            with pytest.raises(ValueError, match="say agreed or safe"):
                await group.send(b"", level="total")
            with pytest.raises(ValueError, match="say agreed or safe"):
                group.send_nowait(b"", level="total")

    run(story)


@pytest.mark.parametrize("body", ["text", None, 7, ["a"]])
def test_only_bytes_are_sent_and_the_ring_stays_well(tmp_path: Path, body: Any) -> None:
    async def story() -> None:
        async with ring(tmp_path, 1) as (node,), node.join("g") as group:
            for call in (group.send(body), group.send_many([b"fine", body])):
                with pytest.raises(TypeError, match="encode it first"):
                    await call
            with pytest.raises(TypeError, match="encode it first"):
                group.send_nowait(body)
            for level in (1, None, 7, list[str](), "SAFE?"):
                with pytest.raises((TypeError, ValueError)):
                    await group.send(b"", level=level)  # type: ignore[arg-type]
            changing = bytearray(b"one")
            group.send_nowait(changing)
            changing[:] = b"two"
            await group.send_many([b"2", memoryview(b"3")], "safe")
            assert [m.body for m in await messages(group, 3)] == [b"one", b"2", b"3"]

    run(story)


@pytest.mark.parametrize(("soft", "hard"), [(0, 5), (5, 5), (6, 5), (-1, 0)])
def test_bounds_that_bound_nothing_are_refused(tmp_path: Path, soft: int, hard: int) -> None:
    async def story() -> None:
        async with ring(tmp_path, 1) as (node,):
            with pytest.raises(ValueError, match="hard is larger"):
                node.join("g", soft, hard)

    run(story)


def test_joins_and_leaves_are_ordered_with_messages(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 2) as (one, two):
            async with one.join("g") as a:
                await a.send(b"alone")
                async with two.join("g") as b:
                    await a.send(b"both")
                    await b.send(b"goodbye")
                await eventually(lambda: a.members == (1,))
                await a.send(b"alone again")
                events = await collect(a, lambda e: len(e) == 7)
            assert [gist(e) for e in events] == [
                (1,), b"alone", (1, 2), b"both", b"goodbye", (1,), b"alone again",
            ]  # fmt: skip
            places = [e.position for e in events if isinstance(e, Message | View)]
            assert places == sorted(set(places))
            late = [e async for e in b]  # what had arrived when it left, then the end
            assert [gist(e) for e in late] == [
                (1, 2), b"both", b"goodbye",
            ]  # fmt: skip

    run(story)


def test_leaving_and_joining_again_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 2) as (one, two), two.join("g"):
            for n in range(5):
                async with one.join("g") as group:
                    group.send_nowait(b"%d" % n)
            async with one.join("g") as group:
                position = await group.send(b"still works")
                (last,) = await messages(group, 1)
                assert (last.body, last.position) == (b"still works", position)
                assert group.members == (1, 2)

    run(story)


def test_groups_do_not_hear_each_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 2) as nodes:
            red = await joined(nodes, "red")
            blue = await joined(nodes, "blue")
            async with nodes[0].join("grün") as alone:
                for n in range(10):
                    red[n % 2].send_nowait(b"red")
                    blue[n % 2].send_nowait(b"blue")
                    alone.send_nowait(b"green")
                for group, word in ((red[0], b"red"), (blue[1], b"blue"), (alone, b"green")):
                    assert {m.body for m in await messages(group, 10)} == {word}
                assert alone.members == (1,)

    run(story)


def test_many_at_once_are_packed(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 2) as nodes:
            a, b = await joined(nodes)
            sent = nodes[0].metrics()["frames_sent"]
            bodies = [b"%05d" % n for n in range(5000)]
            last = await a.send_many(bodies)
            frames = nodes[0].metrics()["frames_sent"]
            assert isinstance(frames, int)
            assert isinstance(sent, int)
            assert frames - sent < 500
            seen: list[Message] = []
            async for events in b.batches():
                for event in events:
                    if isinstance(event, Batch):
                        seen.extend(event)
                if len(seen) == 5000:
                    break
            assert [m.body for m in seen] == bodies
            assert seen[-1].position == last
            assert [m.position for m in seen] == sorted({m.position for m in seen})
            with pytest.raises(ValueError, match="nothing to send"):
                await a.send_many([])

    run(story)


def test_sizes_from_nothing_to_megabytes(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 2, settings={"max_message": 6 * 2**20}) as nodes:
            a, b = await joined(nodes)
            sizes = [0, 1, 1300, 1372, 1500, 65_535, 65_537, 5 * 2**20, 3]
            for n, size in enumerate(sizes):
                a.send_nowait(bytes([n]) * size)
            assert [len(m.body) for m in await messages(b, len(sizes))] == sizes
            assert [m.body[:1] for m in await messages(a, len(sizes))] == [
                bytes([n]) * (size > 0) for n, size in enumerate(sizes)
            ]
            limit = nodes[0].max_message
            await a.send(bytes(limit))
            with pytest.raises(MessageTooLarge, match=f"{limit + 1} bytes, but max_message is"):
                await a.send(bytes(limit + 1))
            with pytest.raises(MessageTooLarge, match="send it in pieces or raise the setting"):
                a.send_nowait(bytes(limit + 1))

    run(story)


def test_a_member_that_closes_is_told_apart_from_one_that_leaves(tmp_path: Path) -> None:
    """The group hears of the leaving first, and the ring's change keeps the view."""

    async def story() -> None:
        async with ring(tmp_path, 3) as nodes:
            a, _, _ = await joined(nodes)
            await collect(a, lambda e: views(e)[-1] == ((1, 2, 3), False))
            await nodes[2].close()
            events = await collect(a, lambda e: len(e) == 3)
            assert views(events) == [((1, 2), False), ((1, 2), True), ((1, 2), False)]
            assert nodes[0].ring == (1, 2)

    run(story)


def test_a_crash_is_a_transitional_and_a_regular_view(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 3) as nodes:
            groups = await joined(nodes)
            seen = [await collect(g, lambda e: views(e)[-1][0] == (1, 2, 3)) for g in groups[:2]]
            assert nodes[2]._host is not None
            nodes[2]._host.close("killed")  # no word to anybody, as SIGKILL
            position = await groups[0].send(b"goes on")
            seen = [await collect(g, lambda e: isinstance(e[-1], Message)) for g in groups[:2]]
            assert alike(seen[0]) == alike(seen[1])
            assert views(seen[0]) == [((1, 2), True), ((1, 2), False)]
            assert seen[0][-1] == Message(1, b"goes on", position, Level.AGREED)
            with pytest.raises(NodeStopped, match="killed"):
                await groups[2].send(b"x")
            with pytest.raises(NodeStopped, match="the node has stopped: killed"):
                await collect(groups[2], lambda e: False)

    run(story)


def test_rings_merge_and_groups_with_them(tmp_path: Path) -> None:
    """Two nodes that work alone find each other; positions go on rising through it."""

    async def story() -> None:
        first, second = configs(tmp_path, 2)
        async with Node.open(first) as one, one.join("g") as a:
            early = await a.send(b"alone")
            async with Node.open(second) as two, two.join("g") as b:
                await eventually(lambda: a.members == b.members == (1, 2))
                late = await b.send(b"together")
                assert early < late
                assert [m.body for m in await messages(a, 2)] == [b"alone", b"together"]
                assert [m.body for m in await messages(b, 1)] == [b"together"]

    run(story)


# --- back-pressure and bounds --------------------------------------------------------------


def test_senders_wait_for_room_and_nowait_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "MOST_MESSAGES", 10)

    async def story() -> None:
        async with ring(tmp_path, 2) as nodes:
            a, b = await joined(nodes)
            count = 0
            with pytest.raises(WouldBlock, match=r"await group\.send\(\) instead"):
                while True:
                    a.send_nowait(b"x")
                    count += 1
            assert count == 11, "the first one has left at once"
            await asyncio.gather(*(a.send(b"y") for _ in range(100)))
            assert len(await messages(b, 111)) == 111
            a.send_nowait(b"there is room again")

    run(story)


def test_a_slow_reader_slows_the_senders_and_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 2) as nodes:
            a, b = await joined(nodes, soft=50, hard=1_000_000)
            drain = asyncio.ensure_future(messages(a, 3000))

            async def talk() -> None:
                for _ in range(300):
                    await a.send_many([b"x" * 1000] * 10)

            talking = asyncio.ensure_future(talk())
            await eventually(lambda: b.crowded)
            host = nodes[1]._host
            assert host is not None
            await eventually(lambda: host.slow)  # the soft bound: it reads its socket less often
            assert not talking.done()
            assert len(await messages(b, 3000)) == 3000
            await talking
            await drain
            await eventually(lambda: not host.slow)

    run(story)


def test_a_reader_that_stopped_gets_one_loss_and_all_counts_add_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 2) as nodes:
            a = (await joined(nodes[:1], "g"))[0]
            b = nodes[1].join("g", soft=100, hard=500)
            await b.join()
            for _ in range(10):
                await a.send_many([b"x" * 100] * 100)
            assert nodes[1].running  # slow, but never ejected for it
            await a.send(b"end")
            events = await collect(b, lambda e: isinstance(e[-1], Message) and e[-1].body == b"end")
            lost = [e.count for e in events if not isinstance(e, Message | View)]
            assert len(lost) == 1
            assert not isinstance(events[0], Message | View)  # it stands where the gap is
            assert isinstance(events[1], View)
            assert events[1].members == (1, 2)
            came = sum(isinstance(e, Message) for e in events)
            assert lost[0] + came == 1001
            assert len(await messages(a, 1001)) == 1001  # nobody else pays

    run(story)


def test_a_reader_that_stops_in_the_middle_goes_on_where_it_was(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 1) as nodes:
            (a,) = await joined(nodes)
            await a.send_many([b"%d" % n for n in range(6)])
            first = await collect(a, lambda e: len(e) == 3)
            assert [e.body for e in first if isinstance(e, Message)] == [b"0", b"1"]
            assert (await messages(a, 1))[0].body == b"2"
            async for batch in a.batches():
                rest = [m.body for e in batch if isinstance(e, Batch) for m in e]
                break
            assert rest == [b"3", b"4", b"5"]

    run(story)


def test_a_reader_whose_timeout_ran_out_reads_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 1) as nodes:
            (a,) = await joined(nodes)
            events, batches = aiter(a), aiter(a.batches())
            assert isinstance(await anext(events), View)
            for reader in (events, batches):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(reader), 0.01)
            await a.send(b"x")
            assert gist(await anext(events)) == b"x"
            await a.send(b"y")
            assert [m.body for m in (await anext(batches))[0]] == [b"y"]  # type: ignore[union-attr]

    run(story)


# --- cancelling and ending -----------------------------------------------------------------


def test_a_send_that_waits_while_its_group_is_left_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with ring(tmp_path, 2) as nodes:
            a, b = await joined(nodes)
            with monkeypatch.context() as narrow:
                narrow.setattr(outgoing, "MOST_MESSAGES", 0)
                late = asyncio.ensure_future(a.send(b"late"))
                await asyncio.sleep(0)
                await a.leave()
            async with nodes[0].join("other"):  # there is room again
                with pytest.raises(NotJoined):
                    await late
            await b.send(b"end")
            events = await collect(b, lambda seen: gist(seen[-1]) == b"end")
            assert b"late" not in map(gist, events)

    run(story)


def test_a_cancelled_send_leaves_order_and_counting_intact(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 2) as nodes:
            a, b = await joined(nodes)
            tasks = [asyncio.ensure_future(a.send(b"%d" % n)) for n in range(50)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await a.send(b"too slow")
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(r, asyncio.CancelledError) for r in done[::2])
            end = await a.send(b"end")
            got = await collect(b, lambda e: isinstance(e[-1], Message) and e[-1].body == b"end")
            places = {e.body: e.position for e in got if isinstance(e, Message)}
            assert places[b"end"] == end
            for n in range(1, 50, 2):
                assert places[b"%d" % n] == done[n]

    run(story)


def test_a_cancelled_join_leaves_no_member_behind(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 2) as (one, two), one.join("g") as a:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await two.join("g").join()
            async with two.join("g") as b:
                await eventually(lambda: a.members == b.members == (1, 2))
            await eventually(lambda: a.members == (1,))

    run(story)


def test_readers_end_with_the_group_and_with_the_node(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 1) as (node,):
            group = node.join("g")
            await group.join()
            reading = asyncio.ensure_future(collect(group, lambda e: False))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="one reader"):
                await collect(group, lambda e: len(e) == 2)
            await group.leave()
            await group.leave()
            assert views(await reading) == [((1,), False)]
            with pytest.raises(NotJoined, match="use 'async with node"):
                await group.send(b"x")
            with pytest.raises(RingcastError, match=r"call node\.join\(\) again"):
                await group.join()
            other = node.join("h")
            with pytest.raises(NotJoined):
                other.send_nowait(b"x")
            await other.join()
            with pytest.raises(RingcastError, match="is in 'h' already"):
                await node.join("h").join()
            reading = asyncio.ensure_future(collect(other, lambda e: False))
            waiting = asyncio.ensure_future(node.wait_for_ring(2))
            await node.close()
            assert views(await reading) == [((1,), False)]
            with pytest.raises(NodeStopped):
                await waiting
            with pytest.raises(NotJoined):
                other.send_nowait(b"x")
            with pytest.raises(NodeStopped, match="the node has stopped: closed"):
                await node.join("k").join()
            with pytest.raises(RingcastError, match="open a new one"):
                await node.start()

    run(story)


def test_what_was_sent_is_delivered_before_the_node_closes(tmp_path: Path) -> None:
    async def story() -> None:
        first, second = configs(tmp_path, 2)
        async with Node.open(first) as one, one.join("g") as a:
            async with Node.open(second) as two, two.join("g") as b:
                await eventually(lambda: a.members == b.members == (1, 2))
                for n in range(2000):
                    b.send_nowait(b"%d" % n)
            assert [m.body for m in await messages(a, 2000)] == [b"%d" % n for n in range(2000)]

    run(story)


def test_a_group_needs_a_running_node(tmp_path: Path) -> None:
    async def story() -> None:
        (config,) = configs(tmp_path, 1)
        node = Node.open(config)
        assert node.ring == ()
        assert node.metrics() == {}
        assert not node.running
        for name in ("", "x" * 65):
            with pytest.raises(ValueError, match="1 to 64 characters"):
                node.join(name)
        with pytest.raises(RingcastError, match="use 'async with Node"):
            await node.join("g").join()
        await node.close()

    run(story)


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    async def story() -> None:
        first, second = configs(tmp_path, 2)
        with pytest.raises(ConfigError, match=r"unknown field `colour`; known: id, bind, "):
            Node.open({**first, "colour": "red"})
        with pytest.raises(ConfigError, match=r"Expected `int` >= 1 - at `\$.id`"):
            Node.open({**first, "id": 0})
        with pytest.raises(ConfigError, match="cannot read"):
            Node.open(tmp_path / "none.toml")
        async with Node.open(first):
            with pytest.raises(StorageError, match="another node uses the state directory"):
                async with Node.open({**second, "state_dir": first["state_dir"]}):
                    pass
            with pytest.raises(TransportError, match="is another node running here"):
                taken = {"bind": first["bind"], "peers": first["peers"][:1]}
                async with Node.open({**second, **taken}):
                    pass
            (tmp_path / "bad.json").write_text("{")
            with pytest.raises(ConfigError, match="fault_file"):
                async with Node.open({**second, "fault_file": str(tmp_path / "bad.json")}):
                    pass
            async with Node.open(second) as node:  # nothing was left open by the failures
                await node.wait_for_ring(2)

    run(story)


def test_a_node_from_a_file(tmp_path: Path) -> None:
    async def story() -> None:
        (port,) = free_ports(1)
        path = tmp_path / "node.toml"
        path.write_text(
            f'id = 7\nbind = "127.0.0.1:{port}"\npeers = ["7@127.0.0.1:{port}"]\n'
            'state_dir = "state"\n'
        )
        async with Node.open(path) as node, node.join("g") as group:
            assert await group.send(b"x") > Position.at(node._directory.word().ring, 0)
            assert (tmp_path / "state" / "stable.json").exists()

    run(story)


CTRL_C = """
import asyncio, sys
from ringcast.api.node import Node

async def main() -> None:
    async with Node.open({config!r}) as node, node.join("g") as group:
        await group.send(b"x")
        print("ready", flush=True)
        async for event in group:
            pass

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""


def test_ctrl_c_ends_a_program_cleanly(tmp_path: Path) -> None:
    (config,) = configs(tmp_path, 1)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", CTRL_C.format(config=config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (130, "interrupted\n", "")


def test_a_node_that_closes_is_not_waited_for(tmp_path: Path) -> None:
    """Its Leave takes the place of every timeout, which here are far too long to wait for."""

    async def story() -> None:
        slow = {"token_loss_us": 60_000_000, "consensus_us": 70_000_000}
        async with ring(tmp_path, 3, settings=slow) as nodes:
            await nodes[2].close()
            await eventually(lambda: nodes[0].ring == nodes[1].ring == (1, 2))

    run(story)


def test_a_send_many_larger_than_any_queue_arrives_whole(tmp_path: Path) -> None:
    """A machine refuses a submission over its bounds (R79); the group takes it in parts."""

    async def story() -> None:
        bounds = {"max_message": 2**20, "max_queue_bytes": 2**21, "max_queue": 20, "min_queue": 10}
        async with ring(tmp_path, 2, settings=bounds) as nodes:
            a, b = await joined(nodes)
            sent = [bytes([i % 251]) * 100_000 for i in range(40)] + [
                b"%d" % i for i in range(3000)
            ]
            position = await a.send_many(sent)
            got = await messages(b, len(sent))
            assert [message.body for message in got] == sent
            assert got[-1].position == position

    run(story)


def test_a_member_without_the_others_is_blocked_and_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with ring(tmp_path, 2, protocol="total", settings={"quorum": 2}) as nodes:
            group, _ = await joined(nodes)
            assert group.blocked == nodes[0].metrics()["blocked"] == ""
            await nodes[1].close()
            await eventually(lambda: group.blocked == "members here: 1, quorum: 2")
        assert nodes[0].blocked == ""

    run(story)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("gap: what this member missed is not kept any more", MemberFellBehind),
        ("fell behind: the others no longer keep it", MemberFellBehind),
        ("excluded too often: start this member again", MemberExcluded),
        ("killed", NodeStopped),
    ],
)
def test_what_an_application_can_mend_is_an_error_of_its_own(
    tmp_path: Path, reason: str, kind: type[NodeStopped]
) -> None:
    """rbp F15, irbp I22, token-fd TF-38, counter CB-41."""

    async def story() -> None:
        async with ring(tmp_path, 1) as nodes:
            (group,) = await joined(nodes)
            assert nodes[0]._host is not None
            nodes[0]._host.close(reason)
            with pytest.raises(NodeStopped, match=reason) as caught:
                await group.send(b"x")
            assert type(caught.value) is kind

    run(story)
