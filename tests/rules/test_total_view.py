"""TOTAL, the beginning of a view (dossier 2.4): TL-1 to TL-9, and isolation (G-4, TL-31)."""

from __future__ import annotations

from typing import Any

import pytest
from total import Group, bodies, broadcasts, delivered, drops, sent, unicasts

from ringcast.core.effects import Broadcast, Effect, InstallView, Stop
from ringcast.core.ids import ViewId
from ringcast.core.inputs import Received
from ringcast.protocols.total.messages import (
    Bcast,
    CumSeqAck,
    NewView,
    NewViewAck,
    Request,
    Resend,
    Status,
)
from ringcast.protocols.total.state import Phase, Timer

VIEW = ViewId(8, 1)


def regular(effects: list[Effect]) -> list[tuple[int, ...]]:
    return [e.members for e in effects if isinstance(e, InstallView) and not e.transitional]


def test_tl_1_who_i_am_is_known_when_the_first_view_comes() -> None:
    group = Group(1)
    effects = group.start(1)
    assert regular(effects) == [(1,)]
    assert group[1].sequencer == 1
    assert group[1].office is not None
    assert not sent(effects, NewView)  # nobody else is there to be told


def test_tl_2_the_view_is_told_before_anything_of_it() -> None:
    group = Group(2)
    for node in group.ids:
        group.start(node)
    group.submit(1, b"early")
    group.settle()
    group.fire(1, group.timer(1, "membership merge"))
    group.run(lambda: group[1].view == VIEW)
    shown = [
        type(e.message).__name__ if isinstance(e, Broadcast) else "view"
        for e in group.log[1]
        if (isinstance(e, InstallView) and e.view == VIEW)
        or (isinstance(e, Broadcast) and isinstance(e.message, NewView | Bcast))
    ]
    assert shown == ["view", "NewView", "Bcast"]


def test_tl_2_nothing_of_the_old_view_is_left() -> None:
    group = Group(3).together()
    group.receive(3, group.bcast(5), 1)  # beyond a hole
    assert group[3].snapshot()["queue"] == (5,)
    assert Timer.RESEND in group.timers[3]
    group.gone(1)
    group.settle()
    assert group[3].snapshot()["stored"] == 0
    assert Timer.RESEND not in group.timers[3]
    assert group[3].asked == {}


def test_tl_3_the_sequencer_is_the_first_listed_member() -> None:
    group = Group(3).together()
    assert [group[node].sequencer for node in group.ids] == [1, 1, 1]
    assert [group[node].office is not None for node in group.ids] == [True, False, False]
    group.gone(1)
    group.settle()
    assert [group[node].sequencer for node in (2, 3)] == [2, 2]


@pytest.mark.parametrize("frame", [NewView(VIEW, 5), Status(VIEW, 5, 5)])
def test_tl_3_nobody_else_speaks_for_the_sequencer(frame: NewView | Status) -> None:
    group = Group(3).together()
    (reason,) = drops(group.receive(3, frame, 2))
    assert reason.endswith("of one that is not the sequencer")
    assert drops(group.receive(3, group.bcast(1), 2)) == [
        "a BCAST of one that is not the sequencer"
    ]


def test_tl_4_numbers_begin_above_all_that_the_sequencer_has_seen() -> None:
    group = Group(3).together()
    for _ in range(4):
        group.submit(1, b"x")
    group.settle()
    group.gone(1)
    group.settle()
    assert group[2].numbers.first == 5
    assert group[3].numbers.first == 5


def test_tl_5_new_view_comes_first_also_from_an_unchanged_sequencer() -> None:
    group = Group(3).together()
    group.submit(2, b"a")
    group.log[1].clear()
    group.gone(3)
    group.settle()
    told = [
        e.message
        for e in group.log[1]
        if isinstance(e, Broadcast) and isinstance(e.message, NewView | Bcast)
    ]
    assert isinstance(told[0], NewView)
    assert told[0] == NewView(group[1].view, group[1].numbers.first)
    assert group[1].numbers.first > 0


def test_tl_6_numbers_wait_until_the_first_one_is_known() -> None:
    group = fresh_member(first_in_bcast=False)
    for seq in (2, 1):
        assert delivered(group.receive(3, group.bcast(seq, first=0), 1)) == []
    assert delivered(group.receive(3, NewView(VIEW, 1), 1)) == [1, 2]


def fresh_member(**settings: Any) -> Group:
    """Member 3 has just installed view (8,1) and heard nothing of its numbers."""
    group = Group(3, **settings)
    for node in group.ids:
        group.start(node)
    group.settle()
    group.fire(1, group.timer(1, "membership merge"))
    group.run(lambda: group[3].view == VIEW)
    group.lose()
    if group[3].numbers.first:  # NEW_VIEW was waiting for the view: as if it had been lost
        group[3].numbers = type(group[3].numbers)(1024, 2**20)
    return group


def test_tl_7_lower_numbers_are_none_of_this_view() -> None:
    group = fresh_member(first_in_bcast=False)
    for seq in (999, 1000):
        group.receive(3, group.bcast(seq, first=0), 1)
    assert delivered(group.receive(3, NewView(VIEW, 1000), 1)) == [1000]
    assert group[3].numbers.store.keys() == {1000}
    assert drops(group.receive(3, group.bcast(999, first=0), 1)) == [
        "a number that is here, or too far ahead"
    ]


def test_tl_7_said_again_it_is_acknowledged_and_nothing_else() -> None:
    group = Group(3).together()
    for seq in (1, 2, 3):
        group.receive(3, group.bcast(seq), 1)
    for first in (1, 90):
        effects = group.receive(3, NewView(VIEW, first), 1)
        assert unicasts(effects, NewViewAck) == [(1, NewViewAck(VIEW))]
        assert delivered(effects) == []
        assert group[3].numbers.got == 3
    assert delivered(group.receive(3, group.bcast(4), 1)) == [4]


def test_tl_8_what_is_sent_before_new_view_is_requested_at_once() -> None:
    group = fresh_member()
    effects = group.submit(3, b"a")
    assert [to for to, _ in unicasts(effects, Request)] == [1]


def test_tl_9_who_is_not_known_to_know_is_told_again_less_and_less_often() -> None:
    group = fresh_member()
    waits = []
    for _ in range(6):
        waits.append(group.timers[1][Timer.NEW_VIEW] - group.now_us)
        group.now_us = group.timers[1][Timer.NEW_VIEW]
        effects = group.fire(1, Timer.NEW_VIEW)
        assert [to for to, _ in unicasts(effects, NewView)] == [2, 3]
    step = group.config.status_us
    assert waits == [step, 2 * step, 4 * step, 8 * step, 16 * step, group.config.request_max_us]
    group.receive(1, NewViewAck(VIEW), 2)
    assert [to for to, _ in unicasts(group.fire(1, Timer.NEW_VIEW), NewView)] == [3]
    group.receive(1, NewViewAck(VIEW), 3)
    assert group.fire(1, Timer.NEW_VIEW) == []
    assert Timer.NEW_VIEW not in group.timers[1]


def test_tl_9_a_message_alone_tells_where_the_numbers_begin() -> None:
    group = fresh_member()
    assert delivered(group.receive(3, group.bcast(7, first=7), 1)) == [7]
    late = group.receive(3, NewView(VIEW, 7), 1)
    assert sent(late, NewViewAck) == [NewViewAck(VIEW)]


def test_tl_9_the_source_does_not_tell_it_with_each_message() -> None:
    group = Group(2, first_in_bcast=False).together()
    assert [b.first for b in broadcasts(group.submit(1, b"a"), Bcast)] == [0]


# --- isolation --------------------------------------------------------------------------------


def test_tl_31_frames_of_another_view_are_dropped() -> None:
    group = Group(3).together()
    old = ViewId(4, 1)
    for frame in (
        group.bcast(1, view=old),
        NewView(old, 1),
        Status(old, 3, 2),
        CumSeqAck(old, 1),
        Resend(old, (1,)),
    ):
        assert drops(group.receive(3, frame, 1)) == ["a frame of another view"]
    assert group[3].numbers.got == 0


def test_g_4_frames_of_the_view_to_come_wait_for_it() -> None:
    group = Group(3).together()
    group.gone(1)  # 2 proposes (12,2)
    group.run(lambda: group[3].proposed == ViewId(12, 2))
    early = group.bcast(1, origin=2, view=ViewId(12, 2), body=b"early")
    assert group.receive(3, early, 2) == []
    assert group[3].snapshot()["early"] == 1
    group.run(lambda: group[3].view == ViewId(12, 2))
    assert bodies(group.log[3]) == [b"early"]


def test_g_4_frames_of_another_incarnation_are_dropped() -> None:
    group = Group(3).together()
    frame = Received(1, 77, group.bcast(1))
    assert drops(group.handle(3, frame)) == ["a frame of another incarnation"]


def test_g_3_own_frames_are_dropped_and_an_impostor_is_found_out() -> None:
    group = Group(3).together()
    assert drops(group.receive(3, group.bcast(1), 3)) == ["own frame"]
    effects = group.handle(3, Received(3, 99, group.bcast(1)))
    assert [e.reason for e in effects if isinstance(e, Stop)] == [
        "another processor uses the id 3 (total A2)"
    ]


def test_g_6_alone_a_start_serves_nobody_before_others_had_time_to_be_found() -> None:
    group = Group(1)
    group.start(1)
    assert bodies(group.submit(1, b"a")) == []
    assert group.timers[1][Timer.JOIN] == group.config.join_us
    assert bodies(group.fire(1, Timer.JOIN)) == [b"a"]
    assert group[1].phase is Phase.ACTIVE


def test_malformed_frames_are_dropped() -> None:
    group = Group(3).together()
    empty = group.bcast(1)
    for frame in (
        group.bcast(3, first=4),
        group.bcast(3, stable=3),
        group.bcast(0),
        group.request(1, lowest=2),
        group.request(1, lowest=0),
        NewView(VIEW, 0),
        Status(VIEW, 3, 4),
    ):
        assert drops(group.receive(3, frame, 1)) == ["malformed frame"]
    assert empty.contents.bodies
