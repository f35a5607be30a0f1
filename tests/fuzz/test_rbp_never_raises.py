"""rbp: a peer may send anything well-typed; a member never raises and never grows.

Members are fed hostile frames of every type, timers that are set, and submissions, in any order. A
member may stop only because its id is taken, because it leaves, or because it is told that what it
holds or delivered is void.
"""

from __future__ import annotations

import pytest
from driver import stops
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rbp import FIRST, Group

from ringcast.blocks.packing import Contents
from ringcast.core.ids import LIMIT, Level, ViewId
from ringcast.core.inputs import Received
from ringcast.protocols.rbp.epochs import NEVER, Data, Entry, Epoch, EpochConfig, Ids, Seat
from ringcast.protocols.rbp.messages import (
    Abort,
    Ack,
    Announce,
    Ask,
    Commit,
    Fetch,
    Gone,
    Invite,
    Join,
    Leave,
    News,
    Ordered,
    Past,
    Refuse,
    Vote,
)

MAY_STOP = ("another processor uses the id", "broken invariant", "diverged", "gap", "excluded too")
N, ME = 3, 2
LIFE = 1025
"""The first life of the first incarnation."""

near = st.integers(0, 6)
numbers = near | st.sampled_from([0, 1, 12, 100, 2**31, 2**49, 2**50, LIMIT])
nodes = st.sampled_from([1, 2, 3, 3, 9])
views = st.sampled_from([FIRST.view, FIRST.view, ViewId(2, 1), ViewId(2, 3), ViewId(3, 2)])
epochs = st.builds(Epoch, views) | st.just(NEVER)
ids = st.lists(st.builds(Ids, nodes, near, near | numbers), max_size=3).map(tuple)
contents = st.builds(
    Contents,
    numbers,
    st.sampled_from([(), (b"",), (b"x",), (b"x", b"y"), (bytes(3000),)]),
    st.sampled_from([0, 0, 1, 2**31]),
    st.booleans(),
)
seats = st.builds(Seat, nodes, st.sampled_from([LIFE, LIFE, 7]))
whole = st.just(tuple(Seat(node, LIFE) for node in (1, 2, 3)))
configs = st.builds(
    EpochConfig,
    epochs,
    whole | st.lists(seats, min_size=1, max_size=3).map(tuple),
    st.sampled_from([(1, 2, 3), (2, 3, 1), (3,), (1, 3)]),
    near | numbers,
    epochs,
    near,
    st.none() | views,
)
entries = st.lists(st.builds(Entry, near, epochs, ids), max_size=3).map(tuple)


def frames(group: int) -> st.SearchStrategy[object]:
    """Frames of the group, likely or not."""
    mine = st.sampled_from([group, group, group, group, 7])
    return st.one_of(
        st.builds(Data, mine, views, nodes, numbers, st.sampled_from(Level), contents),
        st.builds(Ack, mine, epochs, numbers, ids, nodes, nodes),
        st.builds(Ack, mine, st.just(FIRST), near, st.just(()) | ids, nodes, nodes),
        st.builds(Ask, mine, epochs, numbers, numbers, views, ids),
        st.builds(Ordered, mine, views, numbers),
        st.builds(Fetch, mine, views, numbers),
        st.builds(Past, mine, views, near, entries, st.none() | configs),
        st.builds(Gone, mine, views, near, near, epochs, st.lists(nodes, max_size=3).map(tuple)),
        st.builds(News, mine, configs),
        st.builds(Invite, mine, views),
        st.builds(
            Vote,
            *(mine, views, st.just(LIFE), st.none() | views, st.none() | views, near, near),
            *(epochs, epochs, numbers, st.lists(configs, max_size=2).map(tuple)),
        ),
        st.builds(Refuse, mine, views, views),
        st.builds(Announce, mine, configs),
        st.builds(Commit, mine, views),
        st.builds(Abort, mine, views),
        st.builds(Join, mine, near | st.just(LIFE)),
        st.builds(Leave, mine, near | st.just(LIFE)),
    )


@pytest.mark.parametrize("member", [False, True], ids=["out", "member"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_site_never_raises_and_stays_small(member: bool, data: st.DataObject) -> None:
    group = Group(N, window=4, max_queue=20, min_queue=10)
    if member:
        group.up()
    else:
        group.start(ME)
    hostile = frames(group.config.group)
    for _ in range(data.draw(st.integers(1, 15))):
        what = data.draw(st.sampled_from(("frame", "frame", "frame", "frame", "timer", "submit")))
        group.now_us += data.draw(st.sampled_from((0, 0, 10, 200_000)))
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
        machine = group[ME]
        assert len(machine.log.pool) <= 4 * N * group.config.window + 4
        assert len(machine.sending.mine) <= group.config.window
        assert len(machine.sending.queue) <= group.config.max_queue + 3
        assert len(machine.chooser.pending) <= 16
