"""The machines that are there to be compared: what they cost, what they order, what they undo."""

from __future__ import annotations

from typing import Any

import pytest
from driver import Wires, only, sent

from ringcast.blocks.packing import Contents
from ringcast.core.effects import Broadcast, Deliver, Note, Send, Stop
from ringcast.core.ids import Level, NodeId
from ringcast.core.inputs import Leaving
from ringcast.core.machine import Machine
from ringcast.core.registry import protocol
from ringcast.protocols.compared.messages import (
    Ack,
    BatchToken,
    Data,
    FastToken,
    Final,
    Nack,
    Propose,
    Rollback,
)

NAMES = ("centralised", "two-phase", "optimistic", "fast-message")
each = pytest.mark.parametrize("name", NAMES)


class Compared(Wires[Any]):
    """Members ``1 .. n`` of one of the four; a token rests until its owner's timer fires."""

    def __init__(self, name: str, n: int = 3, **settings: Any) -> None:
        sheet = protocol(name)
        config = sheet.for_group(sheet.config(**settings), range(1, n + 1))

        def make(node: NodeId) -> Machine:
            return sheet.make(node, config)

        super().__init__(n, make)
        for node in self.ids:
            self.start(node)

    def turn(self) -> NodeId:
        """Whoever has the token passes it on, and everybody hears of it."""
        self.quiet()
        owner = next(node for node in self.ids if self[node].held is not None)
        self.fire(owner, "compared owner")
        self.quiet()
        return owner

    def settle(self) -> None:
        while self.broadcasts or self.unicasts:
            self.step()

    def frames(self) -> list[str]:
        """Of all that was sent, what kind it was."""
        return [
            type(effect.message).__name__
            for node in self.ids
            for effect in self.log[node]
            if isinstance(effect, (Send, Broadcast))
        ]

    def told(self, node: NodeId) -> list[bytes]:
        return [body for e in only(self.log[node], Deliver) for body in e.batch.bodies]

    def notes(self, node: NodeId, what: str) -> list[tuple[int, ...]]:
        return [note.data for note in only(self.log[node], Note) if note.what == what]


def test_centralised_takes_two_frames_and_delivers_by_places() -> None:
    group = Compared("centralised")
    group.submit(2, b"a")
    group.submit(1, b"b")
    group.settle()
    assert sorted(group.frames()) == ["Ack", "Ack", "Data", "Data"]
    assert group.told(1) == group.told(2) == group.told(3)
    assert sorted(group.told(1)) == [b"a", b"b"]


def test_centralised_on_links_sends_the_body_to_the_site_which_passes_it_on() -> None:
    group = Compared("centralised", relay=True)
    (data,) = only(group.submit(2, b"a"), Send)
    assert data.to == 1
    group.settle()
    assert group.frames() == ["Data", "Data"]
    assert group.told(3) == [b"a"]


def test_centralised_asks_the_site_for_what_is_missing() -> None:
    group = Compared("centralised")
    group.cut = {(1, 3)}
    group.submit(2, b"a")
    group.settle()
    group.cut.clear()
    group.submit(2, b"b")
    group.settle()
    assert group.told(3) == []
    assert not sent(group.fire(3, "centralised repair"), Nack), "it may be on its way"
    (nack,) = sent(group.fire(3, "centralised repair"), Nack)
    assert nack.places == (1,)
    group.settle()
    assert group.told(3) == group.told(1) == [b"a", b"b"]


def test_centralised_repeats_what_got_no_place_and_asks_who_lags() -> None:
    group = Compared("centralised")
    group.submit(2, b"a")
    group.lose()
    assert not sent(group.fire(2, "centralised repair"), Data)
    assert sent(group.fire(2, "centralised repair"), Data)
    group.settle()
    group.fire(1, "centralised repair")
    (ack,) = sent(group.fire(1, "centralised repair"), Ack)
    assert ack.asks
    group.settle()
    assert group[1].data == {}


def test_two_phase_takes_a_frame_for_each_destination_and_one() -> None:
    group = Compared("two-phase", 4)
    group.submit(2, b"a")
    group.settle()
    assert sorted(group.frames()) == ["Data", "Final", "Propose", "Propose", "Propose"]
    assert [group.told(node) for node in group.ids] == [[b"a"]] * 4


def test_two_phase_delivers_nothing_that_another_may_precede() -> None:
    """What has no final priority yet holds up what has a higher one."""
    group = Compared("two-phase", 2)
    group.submit(1, b"a")
    group.submit(2, b"b")
    group.quiet()
    for to, frame in list(group.unicasts):
        if to == 1:
            group.unicasts.remove((to, frame))
            effects = group.handle(to, frame)
    (final,) = sent(effects, Final)
    group.quiet()
    group.settle()
    assert group.told(1) == group.told(2)
    assert final.priority > 1 << 8


def test_two_phase_takes_messages_of_a_sender_in_its_order() -> None:
    group = Compared("two-phase", 2)
    (first,) = sent(group.submit(1, b"a"), Data)
    (second,) = sent(group.submit(1, b"b"), Data)
    group.lose()
    assert not sent(group.receive(2, second, 1), Propose)
    assert [p.k for p in sent(group.receive(2, first, 1), Propose)] == [1, 2]


def test_two_phase_repeats_what_is_lost() -> None:
    group = Compared("two-phase", 2)
    group.submit(1, b"a")
    group.lose()
    for _ in range(2):  # at first it may be on its way
        group.fire(1, "two-phase repair")
    group.quiet()
    group.lose()  # the proposal
    group.fire(1, "two-phase repair")
    group.quiet()
    group.step()
    group.lose()  # the final one
    for _ in range(2):
        group.fire(2, "two-phase repair")
    group.settle()
    assert group.told(1) == group.told(2) == [b"a"]


def test_fast_message_sends_one_a_visit_and_delivers_what_all_have() -> None:
    """Safe: after a whole rotation has confirmed it."""
    group = Compared("fast-message", packing=False)
    for body in (b"a", b"b"):
        group.submit(2, body)
    group.turn()
    assert [data.seq for data in sent(group.log[2], Data)] == [1]
    group.turn()
    group.turn()
    assert group.told(2) == []
    group.turn()
    assert group.told(1) == group.told(2) == group.told(3) == [b"a"]
    assert [data.seq for data in sent(group.log[2], Data)] == [1, 2]


def test_fast_message_sends_again_what_the_token_asks_for() -> None:
    group = Compared("fast-message")
    group.cut = {(2, 3)}
    group.submit(2, b"a")
    group.turn()
    group.cut.clear()
    group.turn()
    group.turn()
    (token,) = sent(group.log[3], FastToken)
    assert token.rtr == (1,) and token.have[2] == 0
    assert sent(group.log[1], Data)
    for _ in range(4):
        group.turn()
    assert group.told(3) == [b"a"]


@pytest.mark.parametrize("name", ["optimistic", "fast-message"])
def test_a_lost_token_is_sent_again_and_an_old_one_is_answered(name: str) -> None:
    group = Compared(name)
    group.fire(1, "compared owner")
    (effect,) = only(group.log[1], Broadcast)
    token = effect.message
    assert isinstance(token, (FastToken, BatchToken))
    group.lose()
    assert [b.message for b in only(group.fire(1, "compared repair"), Broadcast)] == [token]
    group.turn()
    group.now_us += 1_000_000
    (again,) = only(group.receive(2, token, 1), Broadcast)
    assert isinstance(again.message, (FastToken, BatchToken)) and again.message.hop == token.hop + 1


def test_optimistic_delivers_tentatively_and_commits_what_all_have() -> None:
    group = Compared("optimistic")
    group.submit(2, b"a")
    group.quiet()
    assert group.notes(3, "tentative") == [(2, 1, 1)]
    assert group.told(3) == []
    for _ in range(4):
        group.turn()
    assert group.told(1) == group.told(2) == group.told(3) == [b"a"]
    assert not any(group.notes(node, "rollback") for node in group.ids)


def test_optimistic_undoes_an_order_that_was_another() -> None:
    """p3 has b before a, and the token lists a before b."""
    group = Compared("optimistic")
    (a,) = sent(group.submit(1, b"a"), Data)
    (b,) = sent(group.submit(2, b"b"), Data)
    group.lose()
    for node, data in ((1, b), (2, a), (3, b), (3, a)):
        group.receive(node, data, data.sender)
    for _ in range(5):
        group.turn()
    assert group.notes(3, "rollback") == [(2,)]
    assert group.notes(3, "tentative") == [(2, 1, 1), (1, 1, 1), (1, 1, 1), (2, 1, 1)]
    assert group.told(3) == group.told(1) == [b"a", b"b"]


def test_optimistic_asks_all_to_roll_back_for_what_is_lost() -> None:
    group = Compared("optimistic")
    group.cut = {(2, 3)}
    group.submit(2, b"a")
    group.submit(1, b"b")
    group.quiet()
    group.cut.clear()
    group.turn()
    (lost,) = sent(group.log[3], Rollback)
    assert lost.lost[1:] == (2, 1)
    assert group.notes(1, "rollback") == [(2,)], "all of it, though nothing was wrong here"
    for _ in range(5):
        group.turn()
    assert group.told(3) == group.told(1)
    assert sorted(group.told(3)) == [b"a", b"b"]


@each
def test_alone_a_message_comes_back(name: str) -> None:
    group = Compared(name, 1)
    group.submit(1, b"a", level=Level.SAFE)
    for _ in range(4):
        if "compared owner" in group.timers[1]:
            group.fire(1, "compared owner")
    assert group.told(1) == [b"a"]


@each
def test_a_member_that_crashed_stays_out_and_who_leaves_ends(name: str) -> None:
    group = Compared(name)
    assert "stays out" in only(group.start(2), Stop)[0].reason
    assert only(group.handle(3, Leaving()), Stop)


@each
def test_bad_frames_are_dropped(name: str) -> None:
    group = Compared(name)
    number, contents = group[1].group, Contents(1, (b"a",))
    for frame, src in (
        (Data(number + 1, 2, 1, Level.AGREED, contents, 1), 2),
        (Data(number, 9, 1, Level.AGREED, contents, 1), 2),
        (Data(number, 2, 0, Level.AGREED, contents, 1), 2),
        (Data(number, 2, 1, Level.AGREED, contents, 1), 9),
        (FastToken(number, 9, 2, 1, 0, (0, 0), ()), 2),
        (BatchToken(number, 9, 2, 1, 0, (9, 1), (0, 0, 0), (0, 0, 0)), 2),
        (Rollback(number, (1, 2)), 2),
    ):
        effects = group.receive(1, frame, src)
        assert [type(effect) for effect in effects] == [Note], effects
