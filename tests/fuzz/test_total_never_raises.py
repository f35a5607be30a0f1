"""A peer may send anything well-typed: TOTAL and the blocks below it never raise nor grow for ever.

A group is brought into each phase, then one member, the sequencer or another, is fed hostile
frames of every type, timers that are really set, and submissions, in any order.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from total import Group

from ringcast.blocks import channel, flush
from ringcast.blocks import view_messages as views
from ringcast.blocks.channel import Ack, Packet
from ringcast.blocks.detector import Heartbeat
from ringcast.blocks.packing import Contents
from ringcast.core.effects import Stop
from ringcast.core.ids import LIMIT, Level, ViewId
from ringcast.core.inputs import Leaving, Received, Submitted, TimerFired
from ringcast.protocols.total import messages
from ringcast.protocols.total.machine import MESSAGES, MOST_EARLY

ids = st.sampled_from([1, 2, 3, 4, 9, 2**32 - 1])
seqs = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 100, 1_030, 2**20, 2**62, LIMIT])
boots = st.sampled_from([1, 2, 77])
view_ids = st.sampled_from(
    [ViewId(seq, rep) for seq in (4, 8, 12, 16) for rep in (1, 2, 3)] + [ViewId(LIMIT, 9)]
)
lists = st.sampled_from([(), (1,), (2, 3), (1, 2, 3), (3, 2, 1), (2, 2), (9,), (9, 1, 2, 3)])
contents = st.builds(
    Contents,
    seqs,
    st.sampled_from([(), (b"",), (b"x", b"y"), (bytes(3_000),)]),
    st.sampled_from([0, 0, 1, 2**31]),
    st.booleans(),
)
levels = st.sampled_from(Level)
numbers = st.lists(seqs, max_size=4).map(tuple)
bcasts = st.builds(messages.Bcast, view_ids, seqs, seqs, seqs, ids, seqs, levels, contents)
view = lists.flatmap(
    lambda members: st.builds(
        views.RankedView,
        st.builds(ViewId, st.sampled_from([8, 12, 40, LIMIT]), st.just((*members, 1)[0])),
        st.just(members),
        st.sampled_from([(1,) * len(members), (), (7,) * len(members)]),
    )
)
proposals = view.flatmap(
    lambda made: st.builds(
        views.Propose,
        st.just(made),
        st.lists(view_ids, min_size=len(made.members), max_size=len(made.members)).map(tuple)
        | st.just((ViewId(8, 1),) * len(made.members)),
    )
)
ranges = st.lists(st.tuples(seqs, seqs), max_size=3).map(tuple)
holdings = st.builds(flush.Holding, seqs, seqs, ranges, seqs)
orders = st.lists(st.builds(flush.Order, ids, seqs, seqs), max_size=3).map(tuple)
words = (
    proposals
    | st.builds(views.Agree, view_ids)
    | st.builds(views.Refuse, view_ids, view_ids, view_ids)
    | st.builds(views.Install, view_ids)
    | st.builds(views.Complain, view_ids, lists)
    | st.builds(views.Settled, view_ids)
    | st.builds(views.Cancel, view_ids)
    | st.builds(flush.Report, view_ids, holdings)
    | st.builds(flush.Cut, view_ids, seqs, seqs, seqs, orders)
    | bcasts
)
frames = (
    bcasts
    | st.builds(messages.Unicast, view_ids, st.just(b"x"))
    | st.builds(messages.Request, view_ids, seqs, seqs, levels, contents)
    | st.builds(messages.NewView, view_ids, seqs)
    | st.builds(messages.NewViewAck, view_ids)
    | st.builds(messages.CumSeqAck, view_ids, seqs)
    | st.builds(messages.SeqAck, view_ids, seqs)
    | st.builds(messages.Resend, view_ids, numbers)
    | st.builds(messages.Status, view_ids, seqs, seqs)
    | st.builds(Heartbeat, view_ids)
    | st.builds(Packet, st.sampled_from([1, 2]), st.integers(0, 9), st.integers(0, 3), words)
    | st.builds(Ack, boots, st.sampled_from([1, 2]), seqs)
    | st.builds(views.Announce, view)
    | st.builds(views.Leave, view_ids)
)
inputs = st.lists(
    st.tuples(st.just("frame"), ids, boots, frames)
    | st.tuples(st.just("timer"), st.integers(0, 9))
    | st.tuples(st.just("submit"), st.integers(0, 30)),
    max_size=40,
)
SETTINGS = {
    "max_message": 4096, "max_queue": 20, "min_queue": 10, "max_queue_bytes": 8192,
    "window_size": 20, "queue_size": 30,
}  # fmt: skip


MAY_STOP = ("another processor uses the id", "broken invariant")


def in_phase(phase: str, mode: str) -> Group:
    """Three members; in ``blocked`` the last one has left, and its going is being dealt with."""
    group = Group(3, mode, **SETTINGS)
    if phase == "joining":
        for node in group.ids:
            group.start(node)
        return group
    group.together()
    if phase == "blocked":
        group.submit(2, b"asked")
        group.lose()
        group.gone(3)
        group.settle() if mode == "prefix" else group.run(
            lambda: group[2].snapshot()["phase"] == "Blocked"
        )
    group.lose()
    return group


@pytest.mark.parametrize("node", [1, 2])
@pytest.mark.parametrize("phase", ["joining", "active", "blocked"])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["agreed", "uniform", "prefix"]), inputs)
def test_nothing_a_peer_sends_breaks_a_member(
    phase: str, node: int, mode: str, told: list[tuple[Any, ...]]
) -> None:
    group = in_phase(phase, mode)
    machine, env = group[node], group.envs[node]
    for kind, *what in told:
        group.now_us += 500
        if kind == "frame":
            src, boot, message = what
            effects = group.handle(node, Received(src, boot, message))
        elif kind == "timer":
            timers = sorted(group.timers[node])
            if not timers:
                continue
            timer = timers[what[0] % len(timers)]
            del group.timers[node][timer]
            effects = group.handle(node, TimerFired(timer))
        else:
            effects = group.handle(node, Submitted((bytes(what[0]),)))
        stops = [e.reason for e in effects if isinstance(e, Stop)]
        assert all(reason.startswith(MAY_STOP) for reason in stops)
        group.lose()
    state: dict[str, Any] = machine.snapshot()
    assert state["stored"] <= 20 + 2 * 30 + len(told)
    assert state["early"] <= MOST_EARLY
    assert state["queued"] <= 20 + len(told)
    assert machine.group.channel.machine.waiting <= 4 * len(told) + 100
    assert env.effects == []


def test_every_frame_of_the_wire_is_tried() -> None:
    kinds = {getattr(kind, "__origin__", kind) for kind in MESSAGES}
    assert kinds == {
        *messages.MESSAGES, Heartbeat, Packet, Ack, views.Announce, views.Leave
    }  # fmt: skip
    assert channel.MOST_PEERS


def test_leaving_in_any_phase_ends_the_member() -> None:
    for phase in ("joining", "active", "blocked"):
        effects = in_phase(phase, "agreed").handle(2, Leaving())
        assert isinstance(effects[-1], Stop)


def test_frames_survive_the_wire() -> None:
    union: Any = MESSAGES[0]
    for kind in MESSAGES[1:]:
        union |= kind
    decode = msgspec.msgpack.Decoder(union).decode
    group = Group(2)
    frame = Packet(1, 1, 1, group.bcast(3))
    assert decode(msgspec.msgpack.encode(frame)) == frame
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.msgpack.encode(Packet(1, 1, 1, messages.NewView(ViewId(8, 1), 1))))
