"""token-fd: how much of the order a token tells, and members that lag (TF-37, TF-38)."""

from __future__ import annotations

import msgspec
import pytest
from driver import drops, set_timers, stops
from fd import PAPER, Group, bodies_sent, tokens, told

from ringcast.core.effects import Effect, Send
from ringcast.protocols.token_fd.messages import Fetch, LogRep, LogReq, Token, malformed
from ringcast.protocols.token_fd.order import DecidedOrder
from ringcast.protocols.token_fd.state import Timer


def asked(effects: list[Effect]) -> dict[int, int]:
    return {
        e.to: e.message.length
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, LogReq)
    }


def answers(effects: list[Effect]) -> list[LogRep]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, LogRep)]


def decided(group: Group, node: int, *runs: tuple[int, int]) -> None:
    """Let ``node`` know so many decisions, one after another, bodies and all."""
    counts = list(group[node].order.counts)
    for place, count in runs:
        for number in range(counts[place] + 1, counts[place] + count + 1):
            group.receive(node, group.body(place, number), src=place + 1)
        base = tuple(group[node].order.counts)
        hop = group[node].tokens.last_hop + len(group.ids) - 1
        told = group.token(hop, base=base, adeliv=(place, count))
        group.receive(node, told, src=group[node].ring.predecessor)
        counts[place] += count


def test_tf_37_a_token_tells_only_what_not_all_are_known_to_have_delivered() -> None:
    group = Group(3).up(2)
    decided(group, 2, (0, 2), (2, 1))
    base = (2, 0, 1)
    (sent,) = tokens(group.receive(2, group.token(9, base=base, known=(3, 3, 1)), 1)).values()
    assert sent.known == (3, 3, 1)
    assert (sent.base, sent.adeliv) == ((1, 0, 0), (0, 1, 2, 1)), "in the middle of a run"
    assert sent.length == 3
    (sent,) = tokens(group.receive(2, group.token(12, base=base, known=(3, 3, 3)), 1)).values()
    assert (sent.base, sent.adeliv, sent.length) == ((2, 0, 1), (), 3)


def test_tf_37_bodies_that_all_have_delivered_are_let_go() -> None:
    group = Group(3).up(2)
    decided(group, 2, (0, 2), (2, 1))
    assert group[2].snapshot()["kept"] == 3
    group.receive(2, group.token(9, base=(2, 0, 1), known=(3, 3, 2)), src=1)
    assert group[2].snapshot()["kept"] == 1
    group.receive(2, group.token(12, base=(2, 0, 1), known=(3, 3, 3)), src=1)
    assert group[2].snapshot()["kept"] == 0


def test_tf_38_no_more_than_the_limit_is_told_however_far_somebody_lags() -> None:
    group = Group(3, lag_limit=4).up(2)
    decided(group, 2, *[(0, 1), (2, 2)] * 5)
    sent = group[2].sent
    assert sent is not None
    assert sent.known[2] == 0
    assert (sent.base, sent.adeliv) == ((3, 0, 6), (0, 1, 2, 2) * 2)


def test_tf_38_who_lacks_what_is_not_told_asks_and_takes_no_token_before() -> None:
    group = Group(3, fetch_us=8).up(2, 3)
    decided(group, 2, (0, 1), (2, 2), (0, 1))
    later = group.token(10, base=(1, 0, 2), adeliv=(0, 1))
    effects = group.receive(3, later, src=2)
    assert asked(effects) == {2: 0}
    assert not tokens(effects)
    assert set_timers(effects)[Timer.FETCH] == 8
    again = group.token(13, base=(1, 0, 2), adeliv=(0, 1))
    assert not asked(group.receive(3, again, src=2)), "once, until the time is over"
    assert asked(group.fire(3, Timer.FETCH)) in ({1: 0}, {2: 0}), "then others are asked"
    (answer,) = answers(group.receive(2, LogReq(group.config.group, 0), src=3))
    assert (answer.base, answer.adeliv) == ((0, 0, 0), (0, 1, 2, 2, 0, 1))
    (sent,) = tokens(group.receive(3, answer, src=2)).values()
    assert (sent.hop, sent.length) == (14, 4)
    bodies = [group.body(0, 1), group.body(2, 1), group.body(2, 2), group.body(0, 2)]
    assert [told(group.receive(3, body, src=2)) for body in bodies] == [
        [b"0.1"], [b"2.1"], [b"2.2"], [b"0.2"],
    ]  # fmt: skip


def test_tf_38_a_token_that_came_too_early_is_learned_from_before_it_is_taken() -> None:
    """Found by a swarm: another token closed the gap, and I3 was broken."""
    group = Group(7).up(5)
    group.receive(5, group.token(10, base=(4,) + (0,) * 6, adeliv=(0, 2)), src=4)
    assert group[5].order.length == 0
    effects = group.receive(5, group.token(9, adeliv=(0, 4)), src=3)
    (sent,) = tokens(effects).values()
    assert (sent.hop, sent.length) == (11, 6)


def test_tf_38_bodies_that_came_too_early_are_kept_when_their_token_is_taken() -> None:
    """Or else a vote counts for a holder that is none: with the other one the body is gone."""
    group = Group(3, PAPER, lag_limit=1, history_bytes=60_000 * 12).up(2)
    bodies = tuple(group.body(0, number) for number in (8, 9))
    early = group.token(30, (0, 1), base=(7, 0, 0), adeliv=(0, 1), bodies=bodies)
    assert asked(group.receive(2, early, src=1)) == {1: 0}
    assert group[2].frames[0] == {}, "too far ahead"
    order = LogRep(group.config.group, (0, 0, 0), (0, 1) * 7, (9, 0, 0) * 3)
    (sent,) = set(tokens(group.receive(2, order, src=3)).values())
    assert (sent.hop, sent.length) == (31, 9), "decided with the vote of 2"
    assert group[2].frames[0].keys() == {8, 9}
    assert [body.number for body in sent.bodies] == [9], "they go on, though 1 to 7 are missing"


def test_tf_38_an_older_token_is_taken_if_only_the_suspected_one_knows_what_came_before() -> None:
    """Found by a swarm: it decided, told only what comes after, and crashed."""
    group = Group(7).up(4)
    group.receive(4, group.token(14, (0, 1), votes=1), src=1)
    group.receive(4, group.token(15, (0, 1), votes=2), src=2)
    effects = group.receive(4, group.token(16, base=(1,) + (0,) * 6, adeliv=(1, 1)), src=3)
    assert asked(effects) == {3: 0}
    assert not tokens(effects)
    (sent,) = set(tokens(group.suspect(4)).values())
    assert (sent.hop, sent.after, sent.proposal, sent.votes) == (17, 15, (0, 1), 1)


def test_tf_38_an_answer_says_who_holds_what_it_tells_of() -> None:
    """Found by a swarm: a token that spoke of frames without a holder was malformed (I5)."""
    group = Group(3).up(2, 3)
    decided(group, 2, (0, 3))
    group.receive(3, group.token(4, base=(1, 0, 0), held={(0, 0): 1}), src=2)
    (answer,) = answers(group.receive(2, LogReq(group.config.group, 0), src=3))
    (sent,) = tokens(group.receive(3, answer, src=2)).values()
    assert sent.length == 3
    assert malformed(sent, 3, 2) is None


def test_tf_38_an_answer_ends_where_a_decision_ends() -> None:
    """Or else a member would go on from the middle of a decision, and others from its end."""
    order = DecidedOrder(2)
    order.append((0, 1, 1, 1))
    order.append((1, 1, 0, 1))
    order.append((0, 5))
    assert order.after(0, most=1) == ((0, 0), (0, 1, 1, 1))
    assert order.after(2, most=1) == ((1, 1), (1, 1, 0, 1))
    assert order.after(2, most=3) == ((1, 1), (1, 1, 0, 1, 0, 5))
    assert order.after(9, most=3) == ((7, 2), ())


def test_tf_38_whoever_lags_beyond_what_is_kept_stops_and_says_why() -> None:
    group = Group(3, each_time=1, lag_limit=3, history_bytes=1460 * 12).up(2, 3)
    decided(group, 2, *[(0, 1)] * 18)
    (answer,) = answers(group.receive(2, LogReq(group.config.group, 0), src=3))
    assert sum(answer.base) == 6, "twelve are kept"
    effects = group.receive(3, answer, src=2)
    assert drops(effects) == ["what we lack is no longer kept there"]
    assert not stops(effects), "one may be wrong"
    (reason,) = stops(group.receive(3, answer, src=1))
    assert reason.startswith("fell behind: the others no longer keep what comes after position 0")


def test_tf_38_whoever_knows_the_order_and_asks_for_its_bodies_too_late_stops_as_well() -> None:
    """Or else it would ask for ever, deliver nothing, and not say why."""
    group = Group(3, each_time=1, lag_limit=3, history_bytes=1460 * 12).up(2, 3)
    decided(group, 2, *[(0, 1)] * 18)
    group.receive(3, group.body(0, 1), src=1)
    group.receive(3, group.token(1, adeliv=(0, 18)), src=2)
    assert (group[3].order.length, group[3].order.delivered) == (18, 1)
    wanted = Fetch(group.config.group, (0, 2, 2))
    (refusal,) = answers(group.receive(2, wanted, src=3))
    assert (refusal.base, refusal.adeliv) == ((6, 0, 0), ())
    assert not answers(group.receive(2, Fetch(group.config.group, (0, 7, 7)), src=3)), "it is kept"
    assert not stops(group.receive(3, refusal, src=2)), "one may be wrong"
    (reason,) = stops(group.receive(3, refusal, src=1))
    assert reason.startswith("fell behind: the others no longer keep what comes after position 1,")


def test_tf_38_one_that_waits_for_the_only_members_that_may_help_says_so() -> None:
    """One refused, and the other does not answer: it may be cut off and still keep the body."""
    group = Group(3, each_time=1, lag_limit=3, history_bytes=1460 * 12).up(3)
    group.receive(3, group.body(0, 1), src=1)
    group.receive(3, group.token(1, adeliv=(0, 18)), src=2)
    refusal = LogRep(group.config.group, (6, 0, 0), (), (18, 0, 0) * 3)
    assert group[3].blocked == ""
    group.receive(3, refusal, src=2)
    assert group[3].blocked == (
        "2 no longer keep what comes after position 1; waiting for 1 (token-fd TF-38)"
    )
    group.receive(3, group.body(0, 2), src=1)
    assert group[3].blocked == ""


def test_tf_38_refusals_of_different_bodies_do_not_add_up() -> None:
    """What the first one did not keep came from the second, which lacks something else later."""
    group = Group(3, each_time=1, lag_limit=3, history_bytes=1460 * 12).up(3)
    group.receive(3, group.token(1, adeliv=(0, 18)), src=2)
    refusal = LogRep(group.config.group, (6, 0, 0), (), (18, 0, 0) * 3)
    assert not stops(group.receive(3, refusal, src=2))
    group.receive(3, group.body(0, 1), src=1)
    assert not stops(group.receive(3, refusal, src=1)), "member 2 was not asked for this one"


def test_tf_38_a_refusal_that_comes_when_the_bodies_have_come_changes_nothing() -> None:
    group = Group(3).up(3)
    decided(group, 3, (0, 3))
    late = LogRep(group.config.group, (3, 0, 0), (), (3, 0, 0) * 3)
    assert not stops(group.receive(3, late, src=2) + group.receive(3, late, src=1))


def test_tf_38_a_member_keeps_more_than_one_decision_may_bring() -> None:
    """Or else who decides it forgets its beginning before anybody else knows it."""
    why = r"keeps 27 frames, too few for 7 members with each_time = 1: give 40880 or more"
    with pytest.raises(ValueError, match=why):
        Group(7, each_time=1, history_bytes=40_879)
    assert Group(7, each_time=1, history_bytes=40_880).config.history == 28


@pytest.mark.parametrize(("n", "f"), [(3, 1), (40, 1), (64, 0), (64, 7)])
def test_tf_38_whatever_the_group_a_token_that_tells_all_it_may_can_be_read(n: int, f: int) -> None:
    """Found by review: a crashed member of forty, with f = 1, and nobody could read it any more."""
    group = Group(n, f=f).up(2)
    p = group[2]
    for _ in range(3000):
        p.order.append((0, 1, 1, 1))
    p.held = [3000] * (n * n)
    (sent,) = tokens(group.receive(2, group.token(0), src=1)).values()
    assert len(sent.adeliv) == 2 * group.config.lag
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Token) == sent


def far_behind() -> Group:
    """Member 3 is seven frames behind, of twelve kept, and has just moved; 2 has to send."""
    group = Group(3, each_time=1, history_bytes=1460 * 12).up(2)
    decided(group, 2, *[(0, 1)] * 8)
    group.now_us = 5_000_000
    group.receive(2, group.token(30, base=(8, 0, 0), known=(8, 8, 1)), src=1)
    assert not bodies_sent(group.submit(2, b"a"))
    return group


def test_tf_38_ext_senders_wait_for_one_who_is_far_behind_until_it_is_near() -> None:
    group = far_behind()
    near = group.token(33, base=(8, 0, 0), known=(8, 8, 2))
    assert len(bodies_sent(group.receive(2, near, src=1))) == 1


def test_tf_38_ext_one_who_does_not_move_may_have_crashed_and_is_not_waited_for() -> None:
    group = far_behind()
    group.now_us += group.config.suspect_most_us + 1
    still = group.token(33, base=(8, 0, 0), known=(8, 8, 1))
    assert len(bodies_sent(group.receive(2, still, src=1))) == 1


def test_order_what_is_beyond() -> None:
    order = DecidedOrder(3)
    order.append((0, 2, 1, 1))
    assert order.beyond((0, 0, 0), (0, 2, 1, 1)) == ()
    assert order.beyond((0, 0, 0), (0, 2, 1, 1, 2, 4)) == (2, 4)
    assert order.beyond((1, 0, 0), (0, 1, 1, 1, 2, 4)) == (2, 4)
    assert order.beyond((0, 0, 0), (0, 2)) == (), "it is shorter"
    assert order.beyond((2, 1, 0), (1, 1)) == (1, 1)
    assert order.beyond((2, 1, 1), ()) is None, "there is a gap"
    assert order.crc != 0
