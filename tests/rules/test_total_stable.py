"""TOTAL, acknowledgements, stability and uniform mode (dossier 2.7): TL-25 to TL-29."""

from __future__ import annotations

from typing import Any

from total import Group, bodies, broadcasts, delivered, drops, sent, unicasts

from ringcast.core.ids import Level, ViewId
from ringcast.protocols.total.messages import Bcast, CumSeqAck, Status
from ringcast.protocols.total.state import Timer

VIEW = ViewId(8, 1)


def assigned(count: int, **settings: Any) -> Group:
    """The sequencer has given out so many numbers, and nobody has acknowledged one."""
    group = Group(3, **settings).together()
    for _ in range(count):
        group.submit(1, b"x")
    group.lose()
    return group


def test_tl_25_every_k_numbers_are_acknowledged() -> None:
    group = Group(3, ack_every=3).together()
    acks = []
    for seq in range(1, 8):
        acks += unicasts(group.receive(3, group.bcast(seq), 1), CumSeqAck)
    assert acks == [(1, CumSeqAck(VIEW, 3)), (1, CumSeqAck(VIEW, 6))]


def test_tl_25_what_is_left_is_acknowledged_after_a_while() -> None:
    group = Group(3).together()
    group.receive(3, group.bcast(1), 1)
    assert group.timers[3][Timer.ACK] == group.config.ack_us
    assert sent(group.fire(3, Timer.ACK), CumSeqAck) == [CumSeqAck(VIEW, 1)]


def test_tl_25_only_what_has_no_hole_counts() -> None:
    group = Group(3, ack_every=1).together()
    assert sent(group.receive(3, group.bcast(2), 1), CumSeqAck) == []
    assert sent(group.receive(3, group.bcast(1), 1), CumSeqAck) == [CumSeqAck(VIEW, 2)]


def test_tl_25_the_last_word_is_repeated_until_all_is_known_to_be_stable() -> None:
    group = Group(3).together()
    group.receive(3, group.bcast(1), 1)
    group.fire(3, Timer.ACK)
    waits = []
    for _ in range(4):
        began_us, group.now_us = group.now_us, group.timers[3][Timer.ACK]
        waits.append(group.now_us - began_us)
        assert sent(group.fire(3, Timer.ACK), CumSeqAck) == [CumSeqAck(VIEW, 1)]
    step = 2 * group.config.status_us
    assert waits == [step, 2 * step, 4 * step, 8 * step]
    group.receive(3, Status(VIEW, 1, 1), 1)
    assert group.fire(3, Timer.ACK) == []
    assert Timer.ACK not in group.timers[3]


def test_tl_25_stable_is_the_least_that_all_have_and_the_rest_is_kept() -> None:
    group = assigned(9)
    group.receive(1, CumSeqAck(VIEW, 9), 2)
    group.receive(1, CumSeqAck(VIEW, 6), 3)
    assert group[1].numbers.stable == 6
    assert sorted(group[1].numbers.store) == [7, 8, 9]
    assert drops(group.receive(1, CumSeqAck(VIEW, 5), 3)) == [
        "an acknowledgement that is old, or ahead of the numbers"
    ]
    assert group[1].numbers.stable == 6


def test_tl_25_what_was_not_given_out_cannot_be_acknowledged() -> None:
    group = assigned(2)
    assert drops(group.receive(1, CumSeqAck(VIEW, 3), 3)) == [
        "an acknowledgement that is old, or ahead of the numbers"
    ]
    office = group[1].office
    assert office is not None and office.acked[3] == 0


def test_tl_26_status_while_somebody_lacks_something_then_once_more_then_silence() -> None:
    group = assigned(2)
    assert group.timers[1][Timer.STATUS] == group.config.status_us
    assert broadcasts(group.fire(1, Timer.STATUS), Status) == [Status(VIEW, 2, 0)]
    for node in (2, 3):
        group.receive(1, CumSeqAck(VIEW, 2), node)
    assert broadcasts(group.fire(1, Timer.STATUS), Status) == [Status(VIEW, 2, 2)]
    assert group.fire(1, Timer.STATUS) == []
    assert Timer.STATUS not in group.timers[1]


def test_tl_26_unanswered_it_is_said_less_and_less_often() -> None:
    group = assigned(1)
    waits = []
    for _ in range(6):
        began_us, group.now_us = group.now_us, group.timers[1][Timer.STATUS]
        waits.append(group.now_us - began_us)
        group.fire(1, Timer.STATUS)
    step = group.config.status_us
    assert waits == [step, step, 2 * step, 4 * step, 8 * step, 16 * step]


def test_tl_26_who_missed_the_last_word_gets_it_when_it_asks_again() -> None:
    group = assigned(1)
    for node in (2, 3):
        group.receive(1, CumSeqAck(VIEW, 1), node)
    effects = group.receive(1, CumSeqAck(VIEW, 1), 3)
    assert unicasts(effects, Status) == [(3, Status(VIEW, 1, 1))]


def test_tl_26_a_word_that_tells_nothing_new_is_not_answered() -> None:
    group = assigned(1)
    group.receive(1, CumSeqAck(VIEW, 1), 3)
    assert sent(group.receive(1, CumSeqAck(VIEW, 1), 3), Status) == []


def test_tl_27_a_message_is_kept_until_it_is_delivered_and_stable() -> None:
    group = Group(3).together()
    group.receive(3, group.bcast(1), 1)
    group.receive(3, group.bcast(2, level=Level.SAFE), 1)
    assert sorted(group[3].numbers.store) == [1, 2]  # delivered, not stable; neither
    group.receive(3, Status(VIEW, 2, 1), 1)
    assert sorted(group[3].numbers.store) == [2]
    group.receive(3, group.bcast(3, stable=2), 1)
    assert sorted(group[3].numbers.store) == [3]


def test_tl_29_in_uniform_mode_nothing_goes_up_before_all_have_it() -> None:
    group = Group(3, mode="uniform").together()
    effects = group.submit(1, b"a")
    assert bodies(effects) == []
    assert [b.level for b in broadcasts(effects, Bcast)] == [Level.SAFE]
    assert bodies(group.receive(1, CumSeqAck(VIEW, 1), 2)) == []
    effects = group.receive(1, CumSeqAck(VIEW, 1), 3)
    assert bodies(effects) == [b"a"]
    assert broadcasts(effects, Status) == [Status(VIEW, 1, 1)]  # the others wait for this


def test_tl_29_a_member_delivers_what_it_is_told_to_be_stable() -> None:
    group = Group(3, mode="uniform").together()
    safe = Level.SAFE
    effects = group.receive(3, group.bcast(1, level=safe), 1)
    assert delivered(effects) == []
    assert sent(effects, CumSeqAck) == [CumSeqAck(VIEW, 1)]  # at once: others wait for it
    assert delivered(group.receive(3, group.bcast(2, level=safe, stable=1), 1)) == [1]
    assert delivered(group.receive(3, Status(VIEW, 2, 2), 1)) == [2]


def test_tl_29_one_such_acknowledgement_is_under_way_at_a_time() -> None:
    group = Group(3, mode="uniform").together()
    acks = []
    for seq in (1, 2, 3):
        effects = group.receive(3, group.bcast(seq, level=Level.SAFE), 1)
        acks += sent(effects, CumSeqAck)
    assert acks == [CumSeqAck(VIEW, 1)]
    effects = group.receive(3, Status(VIEW, 3, 1), 1)
    assert sent(effects, CumSeqAck) == [CumSeqAck(VIEW, 3)]


def test_tl_29_a_safe_message_waits_and_holds_up_what_follows_in_agreed_mode() -> None:
    group = Group(3).together()
    assert delivered(group.receive(3, group.bcast(1), 1)) == [1]
    assert delivered(group.receive(3, group.bcast(2, level=Level.SAFE), 1)) == []
    assert delivered(group.receive(3, group.bcast(3), 1)) == []
    assert delivered(group.receive(3, Status(VIEW, 3, 2), 1)) == [2, 3]


def test_tl_29_alone_ones_own_count_is_everybodys() -> None:
    for mode in ("agreed", "uniform"):
        group = Group(1, mode=mode)
        group.start(1)
        group.fire(1, Timer.JOIN)
        assert bodies(group.submit(1, b"a")) == [b"a"]


def test_tl_29_a_word_about_what_was_not_received_proves_nothing() -> None:
    group = Group(3, mode="uniform").together()
    group.receive(3, group.bcast(1, level=Level.SAFE), 1)
    group.receive(3, Status(VIEW, 9, 9), 1)
    assert group[3].numbers.stable == 1
