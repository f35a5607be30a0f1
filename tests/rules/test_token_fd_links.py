"""token-fd: one copy of the token, requests under suspicion, lossy links (TF-34 to TF-39)."""

from __future__ import annotations

from driver import drops, set_timers
from fd import PAPER, Group, tokens, told

from ringcast.core.effects import Effect, Send
from ringcast.protocols.token_fd.messages import Token, TokenAck, TokenReq
from ringcast.protocols.token_fd.state import Phase, Timer


def requests(effects: list[Effect]) -> dict[int, int]:
    """Who is asked for a token newer than which."""
    return {
        e.to: e.message.seen
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, TokenReq)
    }


def test_tf_34_tf_36_without_suspicion_one_frame_a_hop() -> None:
    group = Group(7, hold_us=0).up()
    group.submit(2, b"a")
    group.quiet()
    group.until_hop(20)
    sent = [e for log in group.log.values() for e in log if isinstance(e, Send)]
    hops = [e.message.hop for e in sent if isinstance(e.message, Token)]
    assert sorted(hops) == list(range(21))
    assert not any(isinstance(e.message, TokenReq | TokenAck) for e in sent)
    assert told(group.log[5]) == [b"a"]


def test_tf_34_who_suspects_asks_the_f_before_the_predecessor_again_and_again() -> None:
    group = Group(7, request_us=30).up(4)
    group.receive(4, group.token(1), src=2)
    effects = group.suspect(4)
    assert tokens(effects), "what had come by chance is taken"
    assert requests(effects) == {2: 1, 1: -14}
    assert set_timers(effects)[Timer.REQUEST] == 30
    assert requests(group.fire(4, Timer.REQUEST)) == {2: 1, 1: -14}
    group.receive(4, group.token(2), src=3)
    assert group[4].phase is Phase.TRUSTING
    assert Timer.REQUEST not in group.timers[4]


def test_tf_34_the_last_token_is_sent_if_it_is_newer() -> None:
    group = Group(7).up(2)
    asked = TokenReq(group.config.group, -13)
    assert not tokens(group.receive(2, asked, src=4)), "nothing to send yet"
    sent = tokens(group.receive(2, group.token(0), src=1))
    assert sent.keys() == {3, 4}, "ext: it was remembered"
    assert tokens(group.receive(2, asked, src=4)) == {4: sent[3]}
    newer = TokenReq(group.config.group, 1)
    assert not tokens(group.receive(2, newer, src=4))
    assert tokens(group.receive(2, group.token(7), src=1)).keys() == {3, 4}
    assert tokens(group.receive(2, group.token(14), src=1)).keys() == {3}, "once"


def test_tf_34_after_a_token_taken_across_a_gap_the_next_is_asked_for_at_once() -> None:
    group = Group(3).up(3)
    group.suspect(3)
    effects = group.receive(3, group.token(0), src=1)
    assert tokens(effects).keys() == {1}
    assert requests(effects) == {1: 0}


def test_tf_34_nobody_else_is_answered() -> None:
    group = Group(7).up(1)
    effects = group.receive(1, TokenReq(group.config.group, -13), src=5)
    assert drops(effects) == ["a request from farther than f+1"]


def test_tf_34_all_answers_teach_whichever_is_taken() -> None:
    group = Group(7).up(4)
    group.suspect(4)
    group.receive(4, group.body(1, 1, b"a"), src=2)
    first = group.receive(4, group.token(0), src=1)
    assert tokens(first) and not told(first)
    assert told(group.receive(4, group.token(1, adeliv=(1, 1)), src=2)) == [b"a"]


def test_tf_34_copies_make_requests_needless() -> None:
    group = Group(7, PAPER).up(4)
    assert not requests(group.suspect(4))


def test_tf_35_the_first_last_token_of_the_last_f_is_a_dummy() -> None:
    group = Group(7).up(5, 6, 7)
    assert not any(tokens(group.log[node]) for node in (5, 6, 7)), "not sent by itself"
    assert not tokens(group.receive(5, TokenReq(group.config.group, -14), src=7))
    for node, hop in ((6, -2), (7, -1)):
        (dummy,) = tokens(group.receive(node, TokenReq(group.config.group, -14), src=1)).values()
        assert (dummy.hop, dummy.votes, dummy.proposal, dummy.length) == (hop, 0, (), 0)


def test_tf_14_tf_23_with_copies_dummies_are_sent_to_the_first_f_but_p_0() -> None:
    group = Group(7, PAPER)
    assert tokens(group.start(5)) == {}
    assert tokens(group.start(6)).keys() == {2}
    assert tokens(group.start(7)).keys() == {2, 3}
    assert tokens(group.fire(7, Timer.RESEND)).keys() == {2, 3}


def test_tf_39_a_token_is_sent_again_until_it_is_known_to_have_arrived() -> None:
    group = Group(7, PAPER, resend_us=11).up(1)
    assert set_timers(group.log[1])[Timer.RESEND] == 11
    assert tokens(group.fire(1, Timer.RESEND)).keys() == {2, 3, 4}
    group.receive(1, TokenAck(group.config.group, 0), src=3)
    group.receive(1, TokenAck(group.config.group, -7), src=2)
    assert tokens(group.fire(1, Timer.RESEND)).keys() == {2, 4}
    group.receive(1, TokenAck(group.config.group, 0), src=2)
    group.receive(1, TokenAck(group.config.group, 0), src=4)
    assert Timer.RESEND not in group.timers[1]


def test_tf_39_the_next_token_takes_its_place() -> None:
    group = Group(3).up(1)
    group.receive(1, group.token(2), src=3)
    (again,) = tokens(group.fire(1, Timer.RESEND)).values()
    assert again.hop == 3
