"""TOTAL, retransmission (dossier 2.6): TL-17 to TL-21, TL-23, TL-24."""

from __future__ import annotations

from typing import Any

from total import Group, broadcasts, delivered, drops, sent, unicasts

from ringcast.core.effects import Effect
from ringcast.core.ids import ViewId
from ringcast.protocols.total.messages import Bcast, CumSeqAck, Resend, Status
from ringcast.protocols.total.state import Timer

VIEW = ViewId(8, 1)


def lacking(*arrive: int, **settings: Any) -> Group:
    """Member 3 has received these numbers."""
    group = Group(3, **settings).together()
    for seq in arrive:
        group.receive(3, group.bcast(seq), 1)
    return group


def tick(group: Group, node: int = 3) -> list[int]:
    """Let the member look for what is missing; what it asks for."""
    group.now_us = group.timers[node][Timer.RESEND]
    return resends(group.fire(node, Timer.RESEND))


def resends(effects: list[Effect]) -> list[int]:
    """The numbers that are asked for."""
    return [number for frame in sent(effects, Resend) for number in frame.numbers]


def assigned(count: int, **settings: Any) -> Group:
    """The sequencer has given out so many numbers, and nobody has acknowledged one."""
    group = Group(3, **settings).together()
    for _ in range(count):
        group.submit(1, b"x")
    group.lose()
    return group


def test_tl_17_a_hole_that_lasts_for_a_tick_is_asked_for() -> None:
    group = lacking(1, 3)
    assert group.timers[3][Timer.RESEND] == group.config.tick_us
    assert tick(group) == [2]


def test_tl_17_a_hole_that_closes_in_time_is_not() -> None:
    group = lacking(1, 3, 2)
    assert tick(group) == []
    assert Timer.RESEND not in group.timers[3]


def test_tl_17_holes_between_what_waits_are_asked_for_too_up_to_a_limit() -> None:
    assert tick(lacking(1, 5, 8)) == [2, 3, 4, 6, 7]
    assert tick(lacking(1, 5, 8, resend_window=3)) == [2, 3, 4]


def test_tl_18_no_number_is_asked_for_again_within_its_time() -> None:
    group = lacking(1, 3)
    assert tick(group) == [2]
    asked_us = group.now_us
    assert tick(group) == [2]
    assert group.now_us - asked_us >= group.config.resend_us
    group.receive(3, group.bcast(6), 1)
    again_us = group.now_us
    group.timers[3][Timer.RESEND] = again_us + group.config.tick_us
    assert tick(group) == [4, 5]  # 2 was asked for too lately


def test_tl_19_an_answer_comes_from_what_is_kept_to_who_asks() -> None:
    group = assigned(3)
    effects = group.receive(1, Resend(VIEW, (2, 3)), 3)
    assert [(to, b.seq) for to, b in unicasts(effects, Bcast)] == [(3, 2), (3, 3)]


def test_tl_19_what_two_ask_for_goes_to_all() -> None:
    group = assigned(3)
    group.receive(1, Resend(VIEW, (2,)), 3)
    effects = group.receive(1, Resend(VIEW, (2, 3)), 2)
    assert [b.seq for b in broadcasts(effects, Bcast)] == [2]
    assert [(to, b.seq) for to, b in unicasts(effects, Bcast)] == [(2, 3)]
    group.now_us += group.config.resend_us
    effects = group.receive(1, Resend(VIEW, (2,)), 3)
    assert [(to, b.seq) for to, b in unicasts(effects, Bcast)] == [(3, 2)]


def test_tl_19_what_does_not_exist_or_all_have_is_ignored() -> None:
    group = assigned(9)
    for node in (2, 3):
        group.receive(1, CumSeqAck(VIEW, 6), node)
    effects = group.receive(1, Resend(VIEW, (3, 20)), 3)
    assert drops(effects) == ["a RESEND of a number that is not kept"] * 2
    assert sent(effects, Bcast) == []


def test_tl_20_asking_cannot_find_a_lost_suffix() -> None:
    group = lacking(1, 2)
    assert Timer.RESEND not in group.timers[3]
    assert group[3].numbers.holes(10) == []


def test_tl_23_the_last_number_known_finds_it() -> None:
    group = lacking(1, 2)
    group.receive(3, Status(VIEW, 4, 0), 1)
    assert tick(group) == [3, 4]


def test_tl_23_an_acknowledgement_tells_the_sequencer_who_lacks_it() -> None:
    group = assigned(4)
    group.receive(1, CumSeqAck(VIEW, 4), 2)
    group.receive(1, CumSeqAck(VIEW, 2), 3)
    assert group[1].numbers.stable == 2
    group.now_us = group.timers[1][Timer.STATUS]
    effects = group.fire(1, Timer.STATUS)
    assert broadcasts(effects, Status) == [Status(VIEW, 4, 2)]


def intervals(group: Group, times: int) -> list[int]:
    """How long the member waits between asking for number 2."""
    found = []
    for _ in range(times):
        asked_us = group.now_us
        assert tick(group) == [2]
        found.append(group.now_us - asked_us)
    return found


def test_tl_21_each_number_backs_off_by_itself_with_jitter_and_a_cap() -> None:
    group = lacking(1, 3)
    tick(group)
    for wait, least in zip(
        intervals(group, 6), (10_000, 20_000, 40_000, 80_000, 160_000, 200_000), strict=True
    ):
        assert least <= wait <= least * 5 // 4


def test_tl_21_the_first_wait_is_twice_the_time_an_answer_takes() -> None:
    group = lacking(1, 3)
    tick(group)
    group.now_us += 30_000
    group.receive(3, group.bcast(2), 1)
    assert group[3].trip_us == 30_000
    group.receive(3, group.bcast(5), 1)
    group.timers[3][Timer.RESEND] = group.now_us + 1
    assert tick(group) == [4]
    assert group[3].asked[4].due_us - group.now_us >= 2 * group[3].trip_us


def test_tl_21_an_arrival_frees_its_place_in_the_window() -> None:
    group = lacking(1, 9, resend_window=2)
    assert tick(group) == [2, 3]
    assert resends(group.receive(3, group.bcast(2), 1)) == [4]


def test_tl_21_answers_and_not_the_tick_set_the_pace() -> None:
    """200 numbers are there after four windows of answers, without a timer in between."""
    group = lacking(1, 202)
    due = tick(group)
    rounds = 0
    while due:
        rounds += 1
        assert len(due) <= 64
        due = [n for seq in due for n in resends(group.receive(3, group.bcast(seq), 1))]
    assert group[3].numbers.got == 202
    assert rounds < 8


def test_tl_21_what_has_just_come_out_of_order_is_not_asked_for_at_once() -> None:
    group = lacking(1, 9, resend_window=2)
    assert tick(group) == [2, 3]
    group.receive(3, group.bcast(12), 1)
    effects = [e for seq in range(2, 9) for e in group.receive(3, group.bcast(seq), 1)]
    assert set(resends(effects)) <= set(range(4, 9))


def test_tl_24_numbers_that_cannot_be_kept_are_not_asked_for_at_once() -> None:
    """They would come, be dropped, and be asked for again without end: in seed 100422 the sequencer
    had no time for anything else."""
    group = lacking(1, 9, resend_window=4, queue_size=2)
    assert tick(group) == [2, 3]
    assert resends(group.receive(3, group.bcast(3), 1)) == []
    assert resends(group.receive(3, group.bcast(2), 1)) == [4, 5]


def test_tl_24_numbers_too_far_ahead_are_fetched_later() -> None:
    group = lacking(1, 3, 4, queue_size=2)
    assert group[3].snapshot()["queue"] == (3,)
    assert tick(group) == [2]
    effects = group.receive(3, group.bcast(2), 1)
    assert delivered(effects) == [2, 3] and resends(effects) == [4]
    assert delivered(group.receive(3, group.bcast(4), 1)) == [4]


def test_tl_24_before_the_first_number_is_known_what_waits_is_bounded() -> None:
    group = Group(3, queue_size=2, first_in_bcast=False).together()
    group[3].numbers = type(group[3].numbers)(2, 2**20)
    effects: list[Effect] = []
    for seq in (7, 8, 9):
        effects = group.receive(3, group.bcast(seq, first=0), 1)
    assert drops(effects) == ["a number that is here, or too far ahead"]
    assert group[3].numbers.store.keys() == {7, 8}
