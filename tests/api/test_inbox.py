"""A group's events on their way to a reader: bounded, and nothing lost without a word."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.api import inbox
from ringcast.api.events import Batch, EventsLost, View
from ringcast.api.inbox import Inbox
from ringcast.core.errors import NodeStopped
from ringcast.core.ids import Level, Position, ViewId

AT = Position.at(ViewId(8, 1), 1)


def batch(*bodies: bytes) -> Batch:
    return Batch(1, bodies, AT, Level.AGREED)


def view(*members: int) -> View:
    return View(members, False, ViewId(8, 1), AT)


def take(box: Inbox) -> list[Batch | View | EventsLost]:
    return asyncio.run(box.take())


def test_in_order_and_crowded_above_the_soft_bound() -> None:
    box = Inbox(soft=2, hard=10)
    box.push(view(1))
    box.push(batch(b"a"))
    assert not box.crowded
    box.push(batch(b"b", b"c"))
    assert box.crowded
    assert take(box) == [view(1), batch(b"a"), batch(b"b", b"c")]
    assert not box.crowded


def test_the_hard_bound_leaves_one_word_and_the_newest_view() -> None:
    box = Inbox(soft=2, hard=5)
    for n in range(1, 30):
        box.push(batch(b"a", b"b"))
        if n in (1, 2):
            box.push(view(1, n))
    lost, seen, *rest = take(box)
    assert isinstance(lost, EventsLost)
    assert seen == view(1, 2)
    assert rest == [batch(b"a", b"b")] * len(rest)
    assert lost.count + 1 + 2 * len(rest) == 29 * 2 + 2
    assert not any(isinstance(event, EventsLost) for event in rest)


def test_a_reader_that_waits_loses_nothing_however_much_comes_at_once() -> None:
    """What waited for members of a new ring is given out in one turn of the loop."""

    async def story() -> None:
        box = Inbox(soft=2, hard=5)
        reading = asyncio.ensure_future(box.take())
        await asyncio.sleep(0)
        for _ in range(20):
            box.push(batch(b"a", b"b"))
        assert await reading == [batch(b"a", b"b")] * 20
        for _ in range(20):
            box.push(batch(b"a", b"b"))
        lost, *_ = await box.take()
        assert isinstance(lost, EventsLost), "nobody waits"

    asyncio.run(story())


def test_bytes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "SOFT_BYTES", 100)
    monkeypatch.setattr(inbox, "HARD_BYTES", 1000)
    box = Inbox(soft=50, hard=500)
    box.push(batch(bytes(101)))
    assert box.crowded
    box.push(batch(bytes(900)))
    assert take(box) == [EventsLost(2)]


def test_losses_in_a_row_are_one_event() -> None:
    box = Inbox(soft=1, hard=100)
    box.push(batch(b"a"))
    box.lost(3)
    box.lost(4)
    box.push(batch(b"b"))
    assert take(box) == [batch(b"a"), EventsLost(7), batch(b"b")]


def test_the_end_comes_after_what_is_left() -> None:
    box = Inbox(soft=1, hard=100)
    box.push(batch(b"a"))
    box.close()
    box.push(batch(b"too late"))
    box.lost(1)
    box.close(NodeStopped("later reasons do not matter"))
    assert take(box) == [batch(b"a")]
    for _ in range(2):
        with pytest.raises(StopAsyncIteration):
            take(box)


def test_an_error_comes_after_what_is_left() -> None:
    box = Inbox(soft=1, hard=100)
    box.push(batch(b"a"))
    box.close(NodeStopped("disk full"))
    assert take(box) == [batch(b"a")]
    with pytest.raises(NodeStopped, match="disk full"):
        take(box)


def test_one_reader() -> None:
    async def main() -> None:
        box = Inbox(1, 2)
        first = asyncio.ensure_future(box.take())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="a group has one reader"):
            await box.take()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.ensure_future(box.take())  # a cancelled reader makes room
        await asyncio.sleep(0)
        box.push(batch(b"a"))
        assert await second == [batch(b"a")]

    asyncio.run(main())


Step = st.one_of(st.just("take"), st.just("view"), st.integers(1, 4))


@given(st.lists(Step, max_size=60), st.integers(1, 8))
def test_counts_add_up(steps: list[str | int], hard: int) -> None:
    """Whatever is pushed comes out or is counted as lost, and the bound holds."""
    box = Inbox(soft=1, hard=hard)
    pushed = came = lost = 0
    for step in [*steps, "take"]:
        if step == "take":
            box.push(view(9))  # so that there is something to take
            pushed += 1
            events = take(box)
            sizes = [len(e.bodies) if isinstance(e, Batch) else 1 for e in events]
            missed = [e.count for e in events if isinstance(e, EventsLost)]
            assert len(missed) <= 1
            assert sum(sizes) <= hard + 1
            came += sum(sizes) - len(missed)
            lost += sum(missed)
        elif step == "view":
            box.push(view(1))
            pushed += 1
        else:
            assert isinstance(step, int)
            box.push(batch(*[b"x"] * step))
            pushed += step
    assert came + lost == pushed
