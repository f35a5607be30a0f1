"""The heartbeat detector: who is silent, with a patience that learns."""

from __future__ import annotations

import pytest
from wire import Wire, sent, words

from ringcast.blocks.detector import (
    FADING,
    MARGIN,
    MOST_REMEMBERED,
    Detector,
    Heartbeat,
    Limit,
    Settings,
    Suspects,
    Timer,
    Trusts,
)
from ringcast.core.ids import ViewId

SETTINGS = Settings(beat_us=100, suspect_us=300, suspect_max_us=4_000)
VIEW = ViewId(8, 1)


def watching(n: int = 2) -> Wire:
    """1 watches the others, which are not there."""
    wire = Wire(n, lambda node: Detector(node, SETTINGS))
    wire.start(1)
    boots = {node: wire.boot(node) for node in wire.ids}
    wire.call(1, wire[1].watch, VIEW, boots)
    return wire


def beat(wire: Wire, *heard: int) -> list[object]:
    """One period, in which these are heard; what is said at its end."""
    before = len(wire.said[1])
    for node in heard:
        wire.receive(1, node, Heartbeat(VIEW))
    wire.fire(1, Timer.BEAT)
    return wire.said[1][before:]


def test_each_beat_tells_the_view() -> None:
    """D1."""
    wire = watching()
    assert sent(wire.fire(1, Timer.BEAT), Heartbeat) == [Heartbeat(VIEW)]
    assert wire.timers[1][Timer.BEAT] == wire.now_us + 100


def test_the_silent_are_suspected_together_and_once() -> None:
    wire = watching(4)
    said = [beat(wire, 3) for _ in range(5)]
    assert said == [[], [], [], [Suspects((2, 4))], []]
    assert wire[1].suspected == {2, 4}


def test_whoever_is_heard_again_is_trusted() -> None:
    wire = watching()
    for _ in range(6):
        beat(wire)
    assert beat(wire, 2) == [Trusts(2)]
    assert wire[1].suspected == set()


def test_a_mistake_makes_patient_and_the_memory_fades() -> None:
    wire = watching()
    for _ in range(6):
        beat(wire)
    beat(wire, 2)
    silence_us = 7 * 100 - 100  # it was heard just before the seventh beat
    assert wire[1].patience_us(2) == MARGIN * silence_us
    for _ in range(5):
        beat(wire)
    assert wire[1].suspected == set()
    for _ in range(6 * FADING):
        beat(wire, 2)
    assert wire[1].patience_us(2) <= MARGIN * 100 + 300


def test_patience_has_a_limit() -> None:
    wire = watching()
    for _ in range(60):
        beat(wire)
    beat(wire, 2)
    assert wire[1].patience_us(2) == 4_000


def test_owners_may_write_down_other_signs_of_life() -> None:
    """D1."""
    wire = watching()
    for _ in range(10):
        wire[1].heard[2] = wire.now_us
        assert beat(wire) == []


def test_another_incarnation_is_no_sign_of_life() -> None:
    wire = watching()
    for _ in range(4):
        wire.receive(1, 2, Heartbeat(VIEW), boot=7)
        wire.fire(1, Timer.BEAT)
    assert wire[1].suspected == {2}


def test_a_newcomer_has_time_and_who_stays_keeps_its_opinion() -> None:
    wire = watching(3)
    for _ in range(4):
        beat(wire)
    assert wire[1].suspected == {2, 3}
    wire.call(1, wire[1].watch, VIEW, {2: wire.boot(2), 3: 999})
    assert wire[1].suspected == {2}
    assert beat(wire) == beat(wire) == []
    wire.call(1, wire[1].watch, VIEW, {})
    assert wire[1].suspected == set()
    assert words(wire.said[1], Suspects) == [Suspects((2, 3))]


def test_what_is_remembered_is_bounded() -> None:
    wire = Wire(1, lambda node: Detector(node, SETTINGS))
    wire.start(1)
    for node in range(2, MOST_REMEMBERED + 50):
        wire.call(1, wire[1].watch, VIEW, {node: 1})
        wire.now_us += 1
        wire.receive(1, node, Heartbeat(VIEW), boot=1)
        wire.fire(1, Timer.BEAT)
    assert len(wire[1]._silence) == MOST_REMEMBERED


# --- two limits ---------------------------------------------------------------------------------

TWO = Settings(
    beat_us=100, suspect_us=300, suspect_max_us=2_000, exclude_us=1_000, exclude_max_us=8_000
)


def cautious(n: int = 3) -> Wire:
    """1 watches the others with two limits."""
    wire = Wire(n, lambda node: Detector(node, TWO))
    wire.start(1)
    wire.call(1, wire[1].watch, VIEW, {node: wire.boot(node) for node in wire.ids})
    return wire


def test_d2_the_aggressive_limit_comes_first_and_implies_nothing_more() -> None:
    wire = cautious()
    said = [word for _ in range(11) for word in beat(wire, 3)]
    assert said == [Suspects((2,), Limit.AGGRESSIVE), Suspects((2,), Limit.CONSERVATIVE)]
    assert wire[1].suspected == wire[1].excludable == {2}
    assert wire.now_us == 1_100


def test_d2_after_a_long_pause_of_ours_both_limits_are_reached_in_order() -> None:
    wire = cautious(2)
    wire.now_us = 5_000
    assert beat(wire) == [Suspects((2,), Limit.AGGRESSIVE), Suspects((2,), Limit.CONSERVATIVE)]


def test_d2_limits_that_could_be_reached_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match="would be reached first"):
        Settings(suspect_us=300, exclude_us=200, exclude_max_us=5_000_000)
    with pytest.raises(ValueError, match="exclude_max_us = 1000000 must not be below"):
        Settings(exclude_us=900_000, exclude_max_us=1_000_000)


def test_d3_a_sign_of_life_ends_both_suspicions_and_raises_both_limits() -> None:
    wire = cautious(2)
    for _ in range(12):
        beat(wire)
    assert wire[1].excludable == {2}
    assert beat(wire, 2) == [Trusts(2)]
    assert wire[1].suspected == wire[1].excludable == set()
    silence_us = 12 * 100
    assert wire[1].patience_us(2, Limit.AGGRESSIVE) == 2_000  # its bound
    assert wire[1].patience_us(2, Limit.CONSERVATIVE) == MARGIN * silence_us


def test_d4_last_heard_times_are_kept_for_all_so_interest_may_begin_late() -> None:
    """An owner that begins to care for a peer finds what is known of it, in the same step."""
    wire = cautious(4)
    for _ in range(4):
        beat(wire, 2, 3)
    assert 4 in wire[1].suspected


def test_d4_exclusion_alone_makes_it_forget() -> None:
    wire = cautious(2)
    for _ in range(12):
        beat(wire)
    wire.call(1, wire[1].watch, ViewId(9, 1), {2: wire.boot(2)})
    assert wire[1].excludable == {2}
    wire.call(1, wire[1].watch, ViewId(10, 1), {})
    assert wire[1].excludable == set()


def test_with_one_limit_nobody_asks_for_the_other() -> None:
    wire = watching()
    with pytest.raises(ValueError, match="no conservative limit"):
        wire[1].patience_us(2, Limit.CONSERVATIVE)


def test_d7_whatever_happens_it_sends_nothing_but_heartbeats() -> None:
    wire = cautious()
    sends = []
    for at in range(40):
        for node in (2, 3) if at % 7 else ():
            sends += sent(wire.receive(1, node, Heartbeat(VIEW)), object)
        sends += sent(wire.fire(1, Timer.BEAT), object)
    assert set(map(type, sends)) == {Heartbeat} and len(sends) == 40


def test_d2_a_limit_may_be_noticed_when_it_is_reached() -> None:
    """Between two beats, without a heartbeat of our own; so that all who heard a member last at the
    same time suspect it together."""
    settings = Settings(
        beat_us=320, suspect_us=1_000, suspect_max_us=1_000, exclude_us=9_000,
        exclude_max_us=9_000, at_once=True,
    )  # fmt: skip
    wire = Wire(2, lambda node: Detector(node, settings))
    wire.start(1)
    wire.call(1, wire[1].watch, VIEW, {2: wire.boot(2)})
    beats = 0
    while not wire.said[1]:
        wire.now_us = wire.timers[1][Timer.BEAT]
        beats += len(sent(wire.fire(1, Timer.BEAT), Heartbeat))
    assert (wire.now_us, beats) == (1_001, 3)
    assert wire.said[1] == [Suspects((2,))]
    assert wire.timers[1][Timer.BEAT] == 4 * 320, "and the next beat is not put off"


def test_d1_a_clock_that_is_a_little_fast_does_not_make_a_beat_two() -> None:
    settings = Settings(beat_us=320, at_once=True)
    wire = Wire(2, lambda node: Detector(node, settings))
    wire.start(1)
    for _ in range(3):
        wire.now_us = wire.timers[1][Timer.BEAT] - 9
        assert len(sent(wire.fire(1, Timer.BEAT), Heartbeat)) == 1
