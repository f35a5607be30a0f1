"""Messages that come, and requests for those that are missing."""

from __future__ import annotations

from cb import Group, Timer, msgs
from driver import sent

from ringcast.core.effects import Broadcast, Send
from ringcast.protocols.counter.messages import Req


def test_cb_8_what_is_here_or_committed_or_for_others_is_not_kept() -> None:
    group = Group().up()
    group.receive(3, group.msg(1, 0, 1), 1)
    group.receive(3, group.msg(1, 0, 1, b"again"), 1)
    group.receive(3, group.msg(1, 0, 2, to=(2,)), 1)
    group.receive(3, group.msg(2, 9, 1), 2)
    assert list(group[3].holding.data) == [(1, 0, 1)]
    assert group[3].holding.data[1, 0, 1].contents.bodies == (b"1.1",)
    group[3].committed = 0
    group.receive(3, group.msg(1, 0, 3), 1)
    assert (1, 0, 3) not in group[3].holding.data


def test_cb_8_what_is_larger_than_any_frame_of_the_group_is_not_kept() -> None:
    """The buffer is counted in frames: one member had another keep 40 times the bytes."""
    group = Group(max_packet=600).up()
    group.receive(3, group.msg(1, 0, 1, bytes(601)), 1)
    assert not group[3].holding.data
    group.receive(3, group.msg(1, 0, 1, bytes(500)), 1)
    assert list(group[3].holding.data) == [(1, 0, 1)]


def test_cb_9_everything_missing_is_asked_for_at_once_whatever_its_cycle() -> None:
    """A8, A9: each of its sender, of all entries and not only of cycle t-1."""
    group = Group().up()
    entries = (group.entry(1, 0, (1, 2)), group.entry(2, 3, (5, 5)))
    group[3].P = 4
    effects = group.receive(3, group.token(1, 2, 5, 10, *entries), 1)
    asked = [(e.to, e.message) for e in effects if isinstance(e, Send)]
    assert [(to, r.wanted) for to, r in asked if isinstance(r, Req)] == [
        (1, (0, 1, 1, 0, 2, 1)),
        (2, (3, 5, 1)),
    ]
    again = group.receive(3, group.token(2, 3, 5, 11, *entries), 2)
    assert not sent(again, Req)


def test_cb_10_what_is_still_missing_is_asked_for_with_a_higher_number() -> None:
    """CB-T7; what has come is not."""
    group = Group().up()
    group.receive(3, group.token(1, 2, 1, 1, group.entry(1, 0, (1, 2))), 1)
    group.receive(3, group.msg(1, 0, 1), 1)
    group.now_us += group.config.request_us
    (again,) = sent(group.fire(3, Timer.REQUEST), Req)
    assert again.wanted == (0, 2, 2)
    group.receive(3, group.msg(1, 0, 2), 1)
    assert Timer.REQUEST not in group.timers[3]


def test_cb_11_a_request_is_answered_once_for_each_number_of_each_requester() -> None:
    """CB-T7, CB-T8: the message goes out unchanged, to all."""
    group = Group().up()
    (message,) = msgs(group.submit(1, b"a"))
    ask = Req(group.config.group, 1, (1, 1, 1))
    effects = group.receive(1, ask, 2)
    assert [e.message for e in effects if isinstance(e, Broadcast)] == [message]
    assert not msgs(group.receive(1, ask, 2))
    assert msgs(group.receive(1, ask, 3))
    assert msgs(group.receive(1, Req(group.config.group, 1, (1, 1, 2)), 2))
    assert not msgs(group.receive(1, ask, 2))


def test_cb_12_an_entry_with_a_hole_stays_and_is_not_counted() -> None:
    """CB-T6."""
    group = Group().up()
    entry = group.entry(1, 0, (1, 2))
    group.receive(2, group.msg(1, 0, 1), 1)
    group.receive(2, group.token(1, 2, 1, 1, entry), 1)
    effects = group.fire(2, Timer.OWNER)
    assert group[2].newest is not None and (entry,) == group[2].newest.S
    assert effects


def test_cb_15_any_holder_answers_for_a_sender_that_is_gone_each_in_its_turn() -> None:
    """A10, CB-T25: the first at once, the others only if nobody did."""
    group = Group(4).up()
    lists = (group.list(), group.list(1, 2, 3, no=2, first=2))
    token = group.token(3, 1, 1, 4, group.entry(4, 0, (1, 1)), lists=lists)
    for node in (1, 2):
        group.receive(node, group.msg(4, 0, 1), 4)
    for node, src in ((2, 3), (3, 2)):
        effects = group.receive(node, token, src)
    (ask,) = [e.message for e in effects if isinstance(e, Broadcast)]
    assert isinstance(ask, Req) and ask.sender == 4
    group.receive(1, token, 3)
    assert msgs(group.receive(1, ask, 3))
    assert not msgs(group.receive(2, ask, 3))
    group.now_us += group.config.answer_us
    assert msgs(group.fire(2, Timer.ANSWER))
    group.receive(2, Req(group.config.group, 4, (0, 1, 2)), 3)
    group.receive(2, group.msg(4, 0, 1), 1)
    group.now_us += group.config.answer_us
    assert not msgs(group.fire(2, Timer.ANSWER))
