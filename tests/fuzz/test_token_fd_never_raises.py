"""token-fd: a peer may send anything well-typed; a member never raises and never grows.

Members are fed hostile frames of every type, timers that are set, and submissions, in any order.
A member may stop only because its id is taken, because it was told an order that is not its own,
or because it was told that what it lacks is gone.
"""

from __future__ import annotations

import pytest
from driver import stops
from fd import Group
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringcast.blocks.packing import Contents
from ringcast.blocks.ring_detector import Alive
from ringcast.core.ids import LIMIT, Level
from ringcast.core.inputs import Received
from ringcast.protocols.token_fd.config import PAPER, Config
from ringcast.protocols.token_fd.messages import (
    Body,
    Fetch,
    LogRep,
    LogReq,
    Token,
    TokenAck,
    TokenReq,
)

MAY_STOP = ("another processor uses the id", "broken invariant: two orders", "fell behind")
N, ME = 3, 2
SMALL = Config(each_time=2, history_bytes=1460 * 24, max_message=4096, max_queue=20, min_queue=10,
               max_queue_bytes=8192, hold_us=10)  # fmt: skip

near = st.integers(0, 6)
numbers = near | st.sampled_from([0, 1, 12, 100, 2**31, 2**62, LIMIT])
places = st.sampled_from([0, 1, 2, 3, 63])
hops = st.integers(-3, 12) | st.sampled_from([-64, 100, 2**62, LIMIT])
counts = st.lists(near | numbers, min_size=2, max_size=4).map(tuple)
vectors = st.lists(near, min_size=N, max_size=N).map(tuple)
matrices = st.lists(near, min_size=N * N, max_size=N * N).map(tuple)
runs = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=3).map(
    lambda pairs: tuple(number for pair in pairs for number in pair)
)
odd_runs = runs | st.lists(numbers, max_size=5).map(tuple)
contents = st.builds(
    Contents,
    numbers,
    st.sampled_from([(), (b"",), (b"x",), (b"x", b"y"), (bytes(3000),)]),
    st.sampled_from([0, 0, 1, 2**31]),
    st.booleans(),
)


def frames(group: int) -> st.SearchStrategy[object]:
    """Frames of the group, likely or not."""
    mine = st.sampled_from([group, group, group, 7])
    bodies = st.builds(Body, mine, places, numbers, st.sampled_from(Level), contents)
    tokens = st.builds(
        Token,
        mine,
        hops,
        hops,
        st.integers(0, 3),
        runs | odd_runs,
        vectors | counts,
        runs | odd_runs,
        vectors | counts,
        matrices,
        st.lists(bodies, max_size=2).map(tuple),
    )
    return st.one_of(
        bodies,
        tokens,
        tokens,
        st.builds(TokenReq, mine, hops),
        st.builds(TokenAck, mine, hops),
        st.builds(Fetch, mine, st.lists(numbers, max_size=7).map(tuple)),
        st.builds(LogReq, mine, numbers),
        st.builds(LogRep, mine, vectors | counts, runs | odd_runs, matrices),
        st.builds(Alive, mine),
    )


@pytest.mark.parametrize("profile", [SMALL, PAPER], ids=["ids", "bodies"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_member_never_raises_and_stays_small(profile: Config, data: st.DataObject) -> None:
    group = Group(N, profile).up(ME)
    hostile = frames(group.config.group)
    for _ in range(data.draw(st.integers(1, 25))):
        what = data.draw(st.sampled_from(("frame", "frame", "frame", "frame", "timer", "submit")))
        group.now_us += data.draw(st.sampled_from((0, 0, 10, 100_000)))
        if what == "frame":
            src, boot = data.draw(st.sampled_from(((1, 1), (1, 1), (3, 1), (3, 2), (9, 1))))
            effects = group.handle(ME, Received(src, boot, data.draw(hostile)))  # type: ignore[arg-type]
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
        assert int(str(state["kept"])) <= 3 * group.config.history
        assert int(str(state["queued"])) <= group.config.max_queue + 3
        assert len(group[ME].due) <= N * group.config.each_time
