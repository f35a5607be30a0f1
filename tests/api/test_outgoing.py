"""Bodies leave in envelopes: in order, none lost or doubled, filled but not over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.api.outgoing import (
    ENVELOPE_BYTES,
    PART_BODIES,
    PART_BYTES,
    Item,
    SubmissionQueue,
    parts,
)
from ringcast.core.errors import DeliveryUncertain
from ringcast.core.ids import Level, Position, ViewId
from ringcast.wire import envelope
from ringcast.wire.envelope import EVERYTHING, Data, Enter, Envelope, Exit, interest


class Machine:
    """Takes what it is given."""

    stopped = None
    ready = True

    def __init__(self) -> None:
        self.taken: list[tuple[Envelope, Level]] = []
        self.to: list[tuple[int, ...]] = []
        self.order: list[int | tuple[int, ...]] = []
        """The groups of what was submitted, and between them those that the node is in."""

    def submit(
        self, bodies: tuple[bytes, ...], level: Level, to: tuple[int, ...] = (), group: int = 0
    ) -> None:
        self.taken += [(envelope.decode(body), level) for body in bodies]
        self.to += [to] * len(bodies)
        self.order += [group] * len(bodies)

    def enter(self, groups: tuple[int, ...]) -> None:
        self.order.append(groups)


def test_not_more_is_under_way_than_a_share() -> None:
    """On a new ring a word about groups comes behind it."""

    async def story() -> None:
        machine = Machine()
        outgoing = SubmissionQueue(machine, 60_000)  # type: ignore[arg-type]
        outgoing.on_ring(16)
        for _ in range(10):
            outgoing.put(Item("g", Level.AGREED, (bytes(2**20),)))
        await asyncio.sleep(0)
        assert len(machine.taken) == 2, "32 MiB by sixteen"
        outgoing.put_first(Item("", Level.AGREED, (), word=Enter("h")))
        outgoing.delivered(1, Position.at(ViewId(8, 1), 1))
        outgoing.flush()
        assert [type(each) for each, _ in machine.taken[2:]] == [Enter, Data]
        outgoing.uncertain(range(2, 5))
        outgoing.flush()
        assert len(machine.taken) == 4 + 3, "the word again, and two more"
        outgoing.on_ring(1)
        outgoing.flush()
        assert len(machine.taken) == 12

    asyncio.run(story())


SIZES = st.sampled_from([0, 1, 31, 32, 255, 256, 5_000, 20_000, ENVELOPE_BYTES, 100_000])
CALLS = st.tuples(
    st.sampled_from(["a", "b"]),
    st.sampled_from([Level.AGREED, Level.SAFE]),
    st.sampled_from([(), (1, 2)]),
    st.lists(SIZES, min_size=1, max_size=12),
)


@given(st.lists(CALLS, max_size=12), st.sampled_from([300, 1_372, 60_000]))
def test_envelopes_hold_all_bodies_in_order(calls: list[Any], budget: int) -> None:
    async def main() -> None:
        machine = Machine()
        outgoing = SubmissionQueue(machine, budget)  # type: ignore[arg-type]
        wanted: list[tuple[str, Level, tuple[int, ...], bytes]] = []
        waiting: list[tuple[asyncio.Future[Position], int]] = []
        for number, (group, level, to, sizes) in enumerate(calls):
            bodies = tuple(number.to_bytes(4, "big") + bytes(size) for size in sizes)
            done = asyncio.get_running_loop().create_future()
            outgoing.put(Item(group, level, bodies, done, to=to))
            wanted += [(group, level, to, body) for body in bodies]
            waiting.append((done, len(wanted)))
        outgoing.flush()
        found: list[tuple[str, Level, tuple[int, ...], bytes]] = []
        before = 0
        most = max(budget, ENVELOPE_BYTES)
        taken = zip(machine.taken, machine.to, strict=True)
        for number, ((word, level), to) in enumerate(taken, 1):
            assert type(word) is Data
            found += [(word.group, level, to, body) for body in word.bodies]
            assert len(envelope.encode(word)) <= most or len(word.bodies) == 1
            outgoing.delivered(number, Position.at(ViewId(8, 1), number))
            for done, upto in waiting:
                assert done.done() == (upto <= len(found))
                if before < upto <= len(found):
                    assert done.result().index == upto - before - 1
            before = len(found)
        assert found == wanted
        assert outgoing.idle
        assert not outgoing.full

    asyncio.run(main())


@given(
    st.lists(st.sampled_from([0, 64, PART_BYTES // 3, 2 * PART_BYTES]), min_size=1), st.booleans()
)
def test_parts_are_in_order_and_within_their_bounds(sizes: list[int], many: bool) -> None:
    async def main() -> None:
        done = asyncio.get_running_loop().create_future()
        bodies = tuple(map(bytes, sizes)) + (b"",) * (3 * PART_BODIES * many)
        cut = parts(Item("a", Level.SAFE, bodies, done))
        assert sum((each.bodies for each in cut), ()) == bodies
        assert [each.done for each in cut] == [None] * (len(cut) - 1) + [done]
        for each in cut:
            assert 1 <= len(each.bodies) <= PART_BODIES
            assert len(each.bodies) == 1 or sum(map(len, each.bodies)) <= PART_BYTES

    asyncio.run(main())


def test_a_node_says_where_in_its_submissions_it_is_in_a_group() -> None:
    """Ahead of a join and behind a leave: what it sends to a group it gets, though it has left that
    group by the time it is submitted."""

    async def main() -> None:
        machine = Machine()
        outgoing = SubmissionQueue(machine, 1_372)  # type: ignore[arg-type]
        machine.ready = False
        for word in (Enter("a"), Enter("b")):
            outgoing.put(Item("", Level.AGREED, (), word=word))
        outgoing.put(Item("a", Level.AGREED, (b"x",)))
        outgoing.put(Item("", Level.AGREED, (), word=Exit("a")))
        machine.ready = True
        outgoing.flush()
        a, b = interest("a"), interest("b")
        both = tuple(sorted((a, b)))
        assert machine.order == [(a,), 0, both, 0, a, both, 0, (b,)]

    asyncio.run(main())


def test_a_node_in_very_many_groups_or_with_a_journal_is_sent_everything() -> None:
    async def main() -> None:
        for count, journal, told in ((1, True, (EVERYTHING,)), (300, False, (EVERYTHING,))):
            machine = Machine()
            outgoing = SubmissionQueue(machine, 1_372, journal)  # type: ignore[arg-type]
            for n in range(count):
                outgoing.put(Item("", Level.AGREED, (), word=Enter(f"group {n}")))
            outgoing.flush()
            assert machine.order[-2] == told

    asyncio.run(main())


def test_the_first_of_a_turn_leave_at_once_the_others_share_envelopes_in_their_order() -> None:
    async def main() -> None:
        machine = Machine()
        outgoing = SubmissionQueue(machine, 1_372)  # type: ignore[arg-type]
        outgoing.put(Item("a", Level.AGREED, (b"w",)))
        assert [word for word, _ in machine.taken] == [Data("a", (b"w",))]
        outgoing.put(Item("a", Level.AGREED, (b"x" * 64,) * 300))
        outgoing.put(Item("a", Level.AGREED, (b"x" * 64,) * 300))
        outgoing.put(Item("b", Level.AGREED, (), word=Enter("b")))
        outgoing.put(Item("a", Level.AGREED, (b"y",)))
        outgoing.put_first(Item("c", Level.AGREED, (), word=Enter("c")))
        outgoing.flush()
        words = [word for word, _ in machine.taken]
        assert words == [
            Data("a", (b"w",)),
            Enter("c"),
            Data("a", (b"x" * 64,) * 600),
            Enter("b"),
            Data("a", (b"y",)),
        ]

    asyncio.run(main())


def test_who_waits_for_what_is_uncertain_is_told_and_joins_are_said_again() -> None:
    async def main() -> None:
        machine = Machine()
        outgoing = SubmissionQueue(machine, 1_372)  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        lost, kept = loop.create_future(), loop.create_future()
        outgoing.put(Item("a", Level.AGREED, (), word=Enter("a")))
        outgoing.put(Item("a", Level.AGREED, (b"x",), lost))
        outgoing.flush()
        outgoing.uncertain([1, 2])
        outgoing.put(Item("a", Level.AGREED, (b"y",), kept))
        outgoing.flush()
        with pytest.raises(DeliveryUncertain):
            lost.result()
        words = [word for word, _ in machine.taken]
        assert words == [Enter("a"), Data("a", (b"x",)), Enter("a"), Data("a", (b"y",))]
        for number in (3, 4):
            outgoing.delivered(number, Position.at(ViewId(8, 1), number))
        assert kept.result().seq == 4
        assert outgoing.idle

    asyncio.run(main())


def test_nothing_is_submitted_while_uncertainty_is_told_and_no_leave_overtakes_its_join() -> None:
    async def main() -> None:
        machine = Machine()
        outgoing = SubmissionQueue(machine, 1_372)  # type: ignore[arg-type]
        for word in (Enter("a"), Enter("b"), Exit("a")):  # the last one waits here
            outgoing.put(Item(word.group, Level.AGREED, (), word=word))
            if word == Enter("b"):
                outgoing.flush()
                machine.ready = False
        outgoing.flush()
        machine.ready = True
        outgoing.uncertain([1, 2])
        assert len(machine.taken) == 2  # the host is carrying out effects now
        await asyncio.sleep(0)
        again = [word for word, _ in machine.taken[2:]]
        assert again == [Enter("a"), Enter("b"), Exit("a")]

    asyncio.run(main())
