"""counter: a peer may send anything well-typed; a member never raises and never grows.

Members are fed hostile frames of every type, timers that are set, and submissions, in any order. A
member may stop only because its id is taken, because it leaves, or because a token cannot be.
"""

from __future__ import annotations

import pytest
from cb import Group
from driver import stops
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringcast.blocks.packing import Contents
from ringcast.core.ids import LIMIT, Level
from ringcast.core.inputs import Received
from ringcast.protocols.counter.config import Counting
from ringcast.protocols.counter.messages import (
    Ackd,
    Acpt,
    Ask,
    Ballot,
    Entry,
    Fetch,
    Held,
    Join,
    Leave,
    Msg,
    Nack,
    Newl,
    PassingList,
    Past,
    Prep,
    Prom,
    Req,
    Seat,
    Stranger,
    Token,
    Told,
    Value,
)

MAY_STOP = ("another processor uses the id", "broken invariant", "left", "excluded too often")
N, ME = 3, 2

near = st.integers(0, 5)
numbers = near | st.sampled_from([0, 1, 12, 100, 2**31, 2**62, LIMIT])
cycles = st.integers(0, 4) | st.sampled_from([12, 2**34 - 1])
nodes = st.sampled_from([1, 2, 3, 3, 9])
some = st.lists(nodes, max_size=3).map(tuple)
ids = st.sampled_from([(), (1, 1), (1, 3), (2, 4), (1, 1, 3, 5), (3, 1), (1,), (1, 2**40)])
contents = st.builds(
    Contents,
    numbers,
    st.sampled_from([(), (b"",), (b"x",), (b"x", b"y"), (bytes(3000),)]),
    st.sampled_from([0, 0, 1, 2**31]),
    st.booleans(),
)
seats = st.builds(Seat, nodes, cycles, st.sampled_from([0, 0, 0, 7]))
whole = st.just(tuple(Seat(node, 0, 0) for node in (1, 2, 3)))
lists = st.builds(PassingList, near, cycles, whole | st.lists(seats, max_size=4).map(tuple))
entries = st.builds(Entry, nodes, cycles, near, ids, st.just(()) | some, some, near)
ballots = st.builds(Ballot, numbers, nodes)


def frames(group: int) -> st.SearchStrategy[object]:
    """Frames of the group, likely or not."""
    mine = st.sampled_from([group, group, group, group, 7])
    bodies = st.builds(
        Msg, mine, nodes, cycles, numbers, st.just(()) | some, st.sampled_from(Level), contents
    )
    tokens = st.builds(
        Token,
        mine,
        st.integers(0, 2) | numbers,
        near | numbers,
        nodes,
        nodes,
        cycles,
        st.lists(entries, max_size=3).map(tuple),
        st.lists(lists, min_size=1, max_size=2).map(tuple),
        some,
        st.lists(cycles, max_size=3).map(tuple),
        cycles,
    )
    values = st.builds(Value, st.none() | tokens, tokens)
    held = st.lists(st.builds(Held, nodes, cycles, ids), max_size=2).map(tuple)
    past = st.lists(st.builds(Past, near, numbers, bodies), max_size=2).map(tuple)
    return st.one_of(
        bodies,
        tokens,
        tokens,
        st.builds(Req, mine, nodes, st.lists(numbers, max_size=7).map(tuple)),
        st.builds(Join, mine, near, numbers),
        st.builds(Leave, mine, near),
        st.builds(Prep, mine, ballots),
        st.builds(
            Prom, mine, ballots, near, near, st.none() | tokens, near, held, st.none() | values
        ),
        st.builds(Nack, mine, numbers),
        st.builds(Acpt, mine, ballots, values),
        st.builds(Ackd, mine, ballots),
        st.builds(Newl, mine, values),
        st.builds(Ask, mine, numbers),
        st.builds(Stranger, mine, numbers),
        st.builds(Fetch, mine, near, numbers),
        st.builds(Told, mine, near, numbers, st.booleans(), st.none() | lists, past),
    )


@pytest.mark.parametrize("counting", Counting)
@pytest.mark.parametrize("restarted", [False, True], ids=["first", "restarted"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_member_never_raises_and_stays_small(
    counting: Counting, restarted: bool, data: st.DataObject
) -> None:
    group = Group(N, counting=counting, window=4, max_queue=20, min_queue=10)
    if restarted:
        group.stable[ME]["counter_epoch"] = 1
    group.up(ME)
    hostile = frames(group.config.group)
    for _ in range(data.draw(st.integers(1, 25))):
        what = data.draw(st.sampled_from(("frame", "frame", "frame", "frame", "timer", "submit")))
        group.now_us += data.draw(st.sampled_from((0, 0, 10, 100_000)))
        if what == "frame":
            src = data.draw(st.sampled_from((1, 1, 3, 3, 9)))
            effects = group.handle(ME, Received(src, 1, data.draw(hostile)))  # type: ignore[arg-type]
        elif what == "timer":
            timers = sorted(group.timers[ME])
            if not timers:
                continue
            effects = group.fire(ME, data.draw(st.sampled_from(timers)))
        else:
            effects = group.submit(ME, *[b"m" * data.draw(st.integers(0, 60))] * 3)
        if reasons := stops(effects):
            assert reasons[0].startswith(MAY_STOP), reasons
            return
        state = group[ME].snapshot()
        assert int(str(state["held"])) <= 3 * N * group.config.window
        assert int(str(state["queued"])) <= group.config.max_queue + 3
        assert int(str(state["under_way"])) <= group.config.window
