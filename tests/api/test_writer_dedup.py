"""Rows that are published once each: repeated batches, changing rings, restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journals import bodies, caught_up, opened, with_journals
from loopback import collect, eventually, joined, messages, ring, run

from ringcast.api.events import Message
from ringcast.api.group import MessageTooLarge
from ringcast.api.node import Node
from ringcast.api.writer_dedup import Had, WriterDedup
from ringcast.core.errors import RingcastError
from ringcast.core.ids import NodeId, ViewId
from ringcast.runtime.udp import Udp
from ringcast.wire.envelope import MOST_WRITERS, MOST_WRITTEN, Known, NumberedRows

RING = ViewId(8, 1)


def rows(batch: int, first: int, count: int) -> NumberedRows:
    bodies = tuple(b"%d/%d" % (batch, n) for n in range(first, first + count))
    return NumberedRows(RING, "g", "s", batch, first, bodies)


@given(st.lists(st.lists(st.integers(0, 6), max_size=2), min_size=4, max_size=4), st.integers(1, 6))
def test_each_row_is_taken_once_however_a_writer_repeats_itself(
    failures: list[list[int]], step: int
) -> None:
    """A writer fails after so many rows of a batch, and begins it again."""
    streams, taken = WriterDedup(), list[bytes]()
    sizes = [5, 3, 4, 6]
    for batch, (size, stops) in enumerate(zip(sizes, failures, strict=True)):
        for stop in [*stops, size]:
            for first in range(0, min(stop, size), step):
                word = rows(batch, first, min(step, stop - first, size - first))
                taken += word.bodies[streams.fresh(word) :]
    wanted = [b"%d/%d" % (b, n) for b, size in enumerate(sizes) for n in range(size)]
    assert taken == wanted
    assert streams.fresh(rows(1, 0, 3)) == 3


def test_what_is_remembered_is_bounded_and_the_furthest_counts() -> None:
    streams = WriterDedup()
    streams.learn([Known("g", "s", 4, 2), Known("g", "s", 3, 9)])
    assert streams.known() == (Known("g", "s", 4, 2),)
    assert streams.fresh(rows(4, 0, 3)) == 2
    streams.learn(Known("g", f"other {n}", 1, 1) for n in range(MOST_WRITERS + 5))
    assert len(streams.known()) == MOST_WRITERS
    streams.learn(Known(f"group {n}", "other 9", 1, 1) for n in range(MOST_WRITTEN + 5))
    assert len(streams.known()) == MOST_WRITERS - 1 + MOST_WRITTEN


def test_rows_that_are_dropped_by_others_words_alone_are_not_acknowledged() -> None:
    """A member said 2^62, and a guest's rows were confirmed and thrown away for ever."""
    streams = WriterDedup()
    streams.fresh(rows(3, 0, 2))
    streams.learn([Known("g", "s", 2**62, 2**62)])
    with pytest.raises(RingcastError, match=f"batch 4 of writer 's'.*batch {2**62} came before"):
        streams.check("g", "s", 4)
    for batch in (3, 0, 2**62):  # it has seen the first; the last is what a writer would repeat
        streams.check("g", "s", batch)
    assert streams.fresh(rows(2**62, 0, 1)) == 1
    with pytest.raises(RingcastError):  # these rows were dropped, too, so they are no evidence
        streams.check("g", "s", 4)
    streams.check("g", "other", 0)


def test_what_the_node_itself_remembers_is_acknowledged() -> None:
    streams = WriterDedup()
    streams.learn([Known("g", "s", 5, 2)], own=True)
    streams.check("g", "s", 2)
    streams.learn([Known("g", "s", 7, 2)])
    streams.check("g", "s", 5)
    with pytest.raises(RingcastError, match="not seen"):
        streams.check("g", "s", 6)
    streams.fresh(rows(7, 0, 3))
    streams.check("g", "s", 6)


def test_what_a_node_has_is_told_from_what_others_say() -> None:
    streams = WriterDedup()
    streams.learn([Known("g", "s", 5, 2)], own=True)
    assert streams.has("g", "s", Had(5, 0, 2)) and streams.has("g", "s", Had(4, 0, 9))
    assert not streams.has("g", "s", Had(5, 0, 3)) and not streams.has("g", "t", Had(0, 0, 1))
    streams.agree([Known("g", "s", 7, 2)])
    assert not streams.has("g", "s", Had(7, 0, 2))
    assert streams.fresh(rows(7, 0, 4)) == 2
    assert streams.has("g", "s", Had(7, 2, 4)) and not streams.has("g", "s", Had(7, 0, 4))
    assert streams.fresh(rows(7, 4, 1)) == 0
    streams.hold([Known("g", "s", 5, 2), Known("g", "new", 1, 1), Known("g", "s", 7, 1)])
    assert not streams.has("g", "s", Had(7, 0, 4)), "the second row is missing"
    assert streams.has("g", "s", Had(7, 2, 5))
    streams.hold([Known("g", "s", 7, 2)])
    assert streams.has("g", "s", Had(7, 0, 5)) and not streams.has("g", "s", Had(8, 0, 1))
    assert streams.known() == (Known("g", "s", 7, 5),), "what all drop is what was said"
    streams.hold([Known("g", "s", 8, 1)])
    assert streams.has("g", "s", Had(8, 0, 1)) and streams.known() == (Known("g", "s", 7, 5),)


def test_on_a_new_ring_what_was_said_counts_and_what_was_seen_is_known() -> None:
    streams = WriterDedup()
    streams.fresh(rows(3, 0, 2))
    streams.agree([Known("g", "s", 3, 2), Known("g", "s", 5, 1), Known("g", "s", 4, 1)])
    assert streams.known() == (Known("g", "s", 5, 1),)
    streams.check("g", "s", 3)
    with pytest.raises(RingcastError, match="not seen"):
        streams.check("g", "s", 4)
    streams.agree([])
    assert streams.known() == () and streams.fresh(rows(3, 0, 2)) == 0


def test_what_comes_while_the_members_say_what_they_remember_is_not_forgotten() -> None:
    """Rows of a ring that only lost members since count, and are in nobody's word. On the next ring
    they are in the words, or forgotten."""
    streams = WriterDedup()
    streams.fresh(rows(3, 0, 2))
    streams.new_ring()
    said = streams.known()
    assert streams.fresh(rows(4, 0, 2), unsaid=True) == 0
    streams.agree(said)
    assert streams.fresh(rows(4, 0, 3), unsaid=True) == 2
    streams.new_ring()
    streams.agree(said)
    assert streams.known() == said


def test_a_writer_to_many_groups_makes_nobody_forget_another() -> None:
    """After 256 groups of one guest, a batch that another writer repeated came twice."""
    streams = WriterDedup()
    ring = ViewId(8, 1)
    honest = NumberedRows(ring, "orders", "honest", 7, 0, (b"once",))
    assert streams.fresh(honest) == 0
    for number in range(1000):
        streams.fresh(NumberedRows(ring, f"g{number}", "sink", 0, 0, (b"x",)))
    assert streams.fresh(honest) == 1
    assert len(streams.known()) == 1 + MOST_WRITTEN


def test_a_repeated_batch_is_delivered_once_everywhere_also_on_the_next_ring(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with ring(tmp_path, 3) as nodes:
            groups = await joined(nodes)
            await nodes[0].publish("g", "s", 7, 0, (b"a", b"b", b"c"))
            await nodes[1].publish("g", "s", 7, 0, (b"a", b"b", b"c", b"d"))
            await nodes[2].close()
            await nodes[0].publish("g", "s", 7, 2, (b"c", b"d", b"e"))
            await nodes[1].publish("g", "s", 8, 0, (b"f",))
            await groups[0].send(b"end")
            for group in groups[:2]:
                found = await collect(
                    group, lambda seen: isinstance(seen[-1], Message) and seen[-1].body == b"end"
                )
                texts = [event.body for event in found if isinstance(event, Message)]
                assert texts == [b"a", b"b", b"c", b"d", b"e", b"f", b"end"]
                places = [event.position for event in found if isinstance(event, Message)]
                assert places == sorted(set(places))

    run(story)


@pytest.mark.parametrize(("batch", "first"), [(-1, 0), (0, -1), (2**63, 0), (0, 2**63), (0, 2**62)])
def test_numbers_that_no_column_holds_are_refused(tmp_path: Path, batch: int, first: int) -> None:
    async def story() -> None:
        async with ring(tmp_path, 1) as (node,):
            with pytest.raises(RingcastError, match="numbered from 0"):
                await node.publish("g", "s", batch, first, (b"a",))

    run(story)


def test_rows_larger_than_a_message_together_are_published_in_parts(tmp_path: Path) -> None:
    """And one that is larger by itself is refused; the node goes on as before."""

    async def story() -> None:
        async with ring(tmp_path, 1, settings={"max_message": 2**18}) as nodes:
            (group,) = await joined(nodes)
            rows = tuple(bytes([n]) * 90_000 for n in range(5))
            await nodes[0].publish("g", "w", 0, 0, rows)
            await nodes[0].publish("g", "w", 0, 0, rows)
            with pytest.raises(MessageTooLarge):
                await nodes[0].publish("g", "w", 1, 0, (b"x", bytes(2**18)))
            await group.send(b"end")
            assert [m.body for m in await messages(group, 6)] == [*rows, b"end"]

    run(story)


def test_a_new_member_drops_what_the_others_drop(tmp_path: Path) -> None:
    settings = with_journals(tmp_path, 3)

    async def story() -> None:
        async with opened(settings[:2]) as nodes:
            await joined(nodes)
            await nodes[0].publish("g", "s", 1, 0, (b"a", b"b"))
            async with opened(settings[2:]) as (third,), third.join("g") as group:
                await eventually(lambda: caught_up([*nodes, third]))
                await nodes[1].publish("g", "s", 1, 0, (b"a", b"b", b"c"))
                assert [m.body for m in await messages(group, 1)] == [b"c"]

    run(story)
    assert bodies(tmp_path, 1) == bodies(tmp_path, 2) == bodies(tmp_path, 3) == [b"a", b"b", b"c"]


def test_it_is_remembered_over_the_end_of_all(tmp_path: Path) -> None:
    settings = with_journals(tmp_path, 2, journal_limits={"segment_bytes": 4000})

    async def once(batch: int) -> None:
        async with opened(settings) as nodes:
            await joined(nodes)
            await eventually(lambda: caught_up(nodes))
            for number in range(batch):
                for part in range(4):
                    some = tuple(b"%d/%d" % (number, row) for row in range(part * 5, part * 5 + 5))
                    await nodes[number % 2].publish("g", "s", number, part * 5, some)
            await asyncio.sleep(0)

    for upto in (3, 6, 8):
        run(lambda upto=upto: once(upto))  # type: ignore[misc]
    wanted = [b"%d/%d" % (number, row) for number in range(8) for row in range(20)]
    assert bodies(tmp_path, 1) == bodies(tmp_path, 2) == wanted


def test_it_is_remembered_when_catching_up_fills_segments(tmp_path: Path) -> None:
    """The writer's last rows are in a segment that was open, and two are closed behind it."""
    settings = with_journals(tmp_path, 2, journal_limits={"segment_bytes": 4000})

    async def story() -> None:
        async with opened(settings[:1]) as (first,):
            async with opened(settings[1:]) as (second,):
                groups = await joined([first, second])
                await eventually(lambda: caught_up([first, second]))
                await second.publish("g", "s", 5, 0, (b"a", b"b"))
            for n in range(30):
                await groups[0].send(b"%d" % n * 400, durable=True)
            async with opened(settings[1:]) as (second,):
                await eventually(lambda: caught_up([second]))
                assert second._journal is not None
                assert Known("g", "s", 5, 2) in second._journal.known()

    run(story)


def test_rows_that_only_a_dead_node_had_are_taken_when_they_are_repeated(tmp_path: Path) -> None:
    """The node that publishes dies with what nobody else received."""
    settings = with_journals(tmp_path, 3, journal_patience_s=1.0)

    async def story() -> None:
        async with opened(settings[1:]) as others:
            (first,) = (Node.open(each) for each in settings[:1])
            await first.start()
            await joined([first, *others])
            await eventually(lambda: caught_up([first, *others]))
            lost = dumb_from(first, b"only here")
            publishing = asyncio.ensure_future(first.publish("g", "s", 0, 0, (b"only here",)))
            await lost.wait()
            assert first._host is not None and first._journal is not None
            first._host.close("killed")
            await first._journal.close()
            await asyncio.gather(publishing, return_exceptions=True)
            async with opened(settings[:1]) as again:
                await eventually(lambda: caught_up(again))
                await others[0].publish("g", "s", 0, 0, (b"only here",))
                await others[1].publish("g", "s", 1, 0, (b"and more",))

    run(story)
    assert bodies(tmp_path, 2) == bodies(tmp_path, 3) == [b"only here", b"and more"]


def dumb_from(node: Node, word: bytes) -> asyncio.Event:
    """Nothing that a node sends arrives any more, from the first frame that has ``word``; when
    that was."""
    assert node._host is not None
    udp, dumb = node._host.ports[0]._transport, asyncio.Event()
    assert isinstance(udp, Udp)
    send, unicast = udp._send, udp.unicast

    def some(link: Any, run: list[bytes]) -> None:
        if any(word in frame for frame in run):
            dumb.set()
        if not dumb.is_set():
            send(link, run)

    def token(node: NodeId, datagram: bytes) -> None:
        if not dumb.is_set():
            unicast(node, datagram)

    udp._send, udp.unicast = some, token  # type: ignore[method-assign, assignment]
    return dumb
