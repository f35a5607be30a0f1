"""The heartbeat detector: who is silent, with a patience that learns."""

from __future__ import annotations

from wire import Wire, sent, words

from ringcast.blocks.detector import (
    FADING,
    MARGIN,
    MOST_REMEMBERED,
    Detector,
    Heartbeat,
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
