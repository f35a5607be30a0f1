"""Reliable broadcast: all correct members hand up what one of them does, once."""

from __future__ import annotations

import msgspec
import pytest
from wire import Wire, drops, sent, words

from ringcast.blocks import reliable_broadcast
from ringcast.blocks.reliable_broadcast import HandedUp, Relay, ReliableBroadcast


class Word(msgspec.Struct, frozen=True, array_like=True, tag=1):
    text: str


def group(n: int = 4) -> Wire:
    ids = tuple(range(1, n + 1))
    wire = Wire(n, lambda node: ReliableBroadcast(node, ids))
    wire.start()
    return wire


def say(wire: Wire, node: int, key: str, text: str = "x") -> None:
    wire.call(node, wire[node].broadcast, key, Word(text))


def test_b1_at_first_sight_it_is_passed_on_and_then_handed_up_once() -> None:
    wire = group()
    say(wire, 1, "a")
    assert wire.said[1] == [HandedUp(1, "a", Word("x"))]
    effects = wire.receive(2, 1, Relay(1, "a", Word("x")))
    assert sent(effects, Relay) == [Relay(1, "a", Word("x"))] * 2
    wire.run()
    assert all(wire.said[node] == [HandedUp(1, "a", Word("x"))] for node in wire.ids)


@pytest.mark.parametrize("reached", [2, 3, 4])
def test_b2_one_correct_member_that_has_it_is_enough(reached: int) -> None:
    """The sender crashes when one member has got it."""
    wire = group()
    wire.cut = {(1, other) for other in wire.ids if other != reached}
    say(wire, 1, "a")
    wire.crash(1)
    wire.run()
    assert all(len(wire.said[node]) == 1 for node in (2, 3, 4))


def test_b2_a_member_that_does_not_pass_it_on_leaves_others_without() -> None:
    """What the test above would show of a broadcast that is not reliable."""
    wire = group()
    wire.cut = {(1, 3), (1, 4)}
    say(wire, 1, "a")
    wire.crash(1)
    wire[2].members = (1, 2)
    wire.run()
    assert [len(wire.said[node]) for node in (2, 3, 4)] == [1, 0, 0]


def test_b3_who_asks_for_the_same_under_one_key_asks_once() -> None:
    wire = group()
    for node in wire.ids:
        say(wire, node, "change 3.1 regular", f"from {node}")
    wire.run()
    assert all(len(wire.said[node]) == 1 for node in wire.ids)


def test_b3_keys_are_forgotten_at_the_second_view_after() -> None:
    wire = group(2)
    say(wire, 1, "a")
    for expected in (1, 1, 2):
        say(wire, 1, "a")
        assert len(words(wire.said[1], HandedUp)) == expected
        wire.call(1, wire[1].among, wire.ids)


def test_b3_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reliable_broadcast, "MOST_KEYS", 3)
    wire = group(2)
    for number in range(5):
        effects = wire.receive(1, 2, Relay(2, f"k{number}", Word("x")))
    assert drops(effects) == ["a key over the bound"]
    assert wire[1].snapshot() == {"keys": 3}


def test_b4_nobody_gets_it_back() -> None:
    wire = group(3)
    assert sent(wire.receive(3, 2, Relay(1, "a", Word("x"))), Relay) == []
    assert len(wire.said[3]) == 1


def test_strangers_are_not_heard() -> None:
    wire = group(3)
    assert drops(wire.receive(1, 9, Relay(9, "a", Word("x")), boot=1)) == [
        "a relay of somebody who is no member"
    ]
    assert wire.said[1] == []


@pytest.mark.parametrize(("n", "crashes"), [(3, 1), (4, 1), (4, 2)])
def test_b2_whenever_senders_crash_the_correct_members_agree(n: int, crashes: int) -> None:
    """After any number of frames the sender, and then one that passed it on, is gone, with what it
    was sending."""
    for steps in range(2 * n * n):
        wire = group(n)
        say(wire, 1, "a")
        for dead in range(1, crashes + 1):
            for _ in range(min(steps // dead, len(wire.frames))):
                wire.step(-1)
            wire.crash(dead)
            wire.frames = [(to, frame) for to, frame in wire.frames if frame.src != dead]
        wire.run()
        correct = [node for node in wire.ids if node > crashes]
        assert len({len(wire.said[node]) for node in correct}) == 1
