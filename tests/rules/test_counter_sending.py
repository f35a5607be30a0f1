"""Sending, stamping and flow control of the counter-based protocol."""

from __future__ import annotations

from cb import Group, msgs, tokens

from ringcast.core.ids import Level
from ringcast.protocols.counter.messages import Req


def test_cb_1_a_message_is_stamped_numbered_kept_and_broadcast() -> None:
    """§3.1: a message is sent at any time, with the cycle of its sender and the next number."""
    group = Group().up()
    first, second = msgs(group.submit(2, b"a")), msgs(group.submit(2, b"b"))
    assert [(m.sender, m.p, m.k) for m in (*first, *second)] == [(2, 0, 1), (2, 0, 2)]
    assert first[0].key in group[2].holding.data


def test_cb_1_ext_no_more_is_under_way_than_the_window() -> None:
    group = Group(window=2, packing=False).up()
    assert len(msgs(group.submit(1, b"a", b"b", b"c", b"d"))) == 2
    group.pass_on(16)
    assert group.told(2) == [b"a", b"b", b"c", b"d"]


def test_cb_2_what_the_owner_sends_is_listed_at_its_next_ownership() -> None:
    """CB-T15: the cycle of an owner is the new one already."""
    group = Group().up()
    assert group.owner() == 1
    (message,) = msgs(group.submit(1, b"a"))
    assert message.p == 1
    (token,) = tokens(group.pass_on())
    assert token.S == ()
    (token,) = tokens(group.pass_on(3))
    assert [(e.sender, e.cycle, e.ids) for e in token.S] == [(1, 1, (1, 1))]


def test_cb_13_answers_and_tokens_are_sent_while_others_are_to_wait() -> None:
    """An overloaded network stops new messages, and neither answers nor tokens."""
    group = Group(most_listed=1, packing=False).up()
    group.submit(1, b"a", b"b", b"c")
    group.pass_on(4)
    assert group[3].sending.overloaded is not None
    assert not msgs(group.submit(3, b"later"))
    (answer,) = msgs(group.receive(1, Req(group.config.group, 1, (1, 1, 1)), 3))
    assert answer == group[1].holding.data[1, 1, 1]


def test_cb_28_the_owner_says_whether_its_buffer_is_nearly_full_and_the_token_too() -> None:
    group = Group(most_held=2, most_listed=2, packing=False).up()
    group.submit(1, b"a", b"b", b"c")
    group.quiet()
    (first,) = tokens(group.pass_on())
    assert first.local == (1,) and first.local_c == (1,)
    (second,) = tokens(group.pass_on(3))
    assert second.global_c == 2
    (later,) = tokens(group.pass_on(9))
    assert later.local == () and later.global_c == 0


def test_cb_29_a_late_old_token_does_not_resume() -> None:
    """A17, CB-T18: the remembered cycle protects against it, and a later token resumes."""
    group = Group().up()
    group[3].P = 7
    group.receive(3, group.token(2, 1, 7, 20, local=(2,), local_c=(7,)), 2)
    assert not msgs(group.submit(3, b"a"))
    group.receive(3, group.token(1, 2, 7, 21), 1)
    assert not msgs(group.submit(3, b"b"))
    effects = group.receive(3, group.token(2, 1, 8, 23), 2)
    assert [m.contents.bodies for m in msgs(effects)] == [(b"a", b"b")]


def test_cb_29_an_overloaded_network_stops_everybody_until_a_later_cycle() -> None:
    """CB-T19."""
    group = Group().up()
    group[3].P = 7
    group.receive(3, group.token(2, 1, 7, 20, global_c=7), 2)
    assert not msgs(group.submit(3, b"a"))
    group.receive(3, group.token(1, 2, 7, 21), 1)
    assert group[3].sending.overloaded == 7
    assert msgs(group.receive(3, group.token(2, 1, 8, 23), 2))


def test_cb_30_submissions_wait_in_order_and_flags_of_the_gone_are_cleared() -> None:
    group = Group().up()
    group[3].P = 7
    group.receive(3, group.token(2, 1, 7, 20, local=(2,), local_c=(7,)), 2)
    group.submit(3, b"a")
    group.submit(3, b"b", level=Level.SAFE)
    gone = (group.list(1, 3, no=2, first=8),)
    sent = msgs(group.receive(3, group.token(1, 1, 7, 21, lists=gone), 1))
    assert [m.contents.bodies for m in sent] == [(b"a",), (b"b",)]
