"""token-fd: the token, its votes and decisions, with whole messages in it (TF-6 to TF-9, TF-22
to TF-31).
"""

from __future__ import annotations

import pytest
from driver import drops, set_timers, stops
from fd import PAPER, Group, bodies_sent, tokens, told

from ringcast.core.effects import Deliver, Originate, Send
from ringcast.core.ids import Level
from ringcast.core.inputs import Leaving
from ringcast.protocols.token_fd.messages import TokenAck
from ringcast.protocols.token_fd.state import Phase, Timer
from ringcast.protocols.token_fd.tokens import carry_on


def test_tf_6_a_token_goes_to_the_next_f_plus_1_members() -> None:
    group = Group(7, PAPER)
    first = tokens(group.start(1))
    assert first.keys() == {2, 3, 4}
    assert len(set(map(id, first.values()))) == 1


def test_tf_7_a_backup_is_taken_the_moment_suspicion_starts() -> None:
    group = Group(7, PAPER).up(4)
    assert not tokens(group.receive(4, group.token(1), src=2))
    effects = group.suspect(4)
    assert group[4].phase is Phase.SUSPECTING
    sent = set(tokens(effects).values())
    assert [(token.hop, token.after) for token in sent] == [(3, 1)]


def test_tf_7_not_if_trust_has_returned() -> None:
    group = Group(7, PAPER).up(4)
    group.suspect(4)
    group.receive(4, group.token(-5), src=3)
    assert group[4].phase is Phase.TRUSTING
    assert not tokens(group.receive(4, group.token(1), src=2))


def test_tf_8_a_member_that_was_passed_by_skips_the_rounds_it_missed() -> None:
    group = Group(7, PAPER).up(5)
    (sent,) = set(tokens(group.receive(5, group.token(17), src=4)).values())
    assert sent.hop == 18
    assert not tokens(group.receive(5, group.token(10), src=4))
    assert group[5].snapshot()["hop"] == 18


def test_tf_9_even_a_token_that_may_not_be_taken_teaches() -> None:
    group = Group(7, PAPER).up(5)
    body = group.body(1, 1, b"a")
    effects = group.receive(5, group.token(2, adeliv=(1, 1), bodies=(body,)), src=3)
    assert told(effects) == [b"a"]
    assert not tokens(effects)
    assert told(group.receive(5, group.token(-5, adeliv=(1, 1), bodies=(body,)), src=3)) == []


def test_tf_22_the_token_tells_all_bodies_that_it_speaks_of() -> None:
    group = Group(3, PAPER).up()
    group.submit(2, b"a")
    group.until_hop(1)
    token = group[2].sent
    assert token is not None
    assert (token.hop, token.votes, token.proposal, token.adeliv) == (1, 1, (1, 1), ())
    assert [body.contents.bodies for body in token.bodies] == [(b"a",)]


def test_tf_24_submissions_wait_for_the_turn_and_are_numbered_in_order() -> None:
    group = Group(3, PAPER, each_time=2, packing=False).up()
    assert not bodies_sent(group.submit(3, b"a", b"b", b"c"))
    assert [group[3].frames[2][k].contents.bodies for k in (1, 2)] == [(b"a",), (b"b",)]
    assert 3 not in group[3].frames[2], "two may be under way"
    group.until_hop(8)
    assert told(group.log[1]) == [b"a", b"b", b"c"]


def test_tf_24_a_submission_over_the_bounds_is_refused() -> None:
    group = Group(3, max_queue=2, min_queue=1, each_time=1, max_message=10).up()
    assert drops(group.submit(1, bytes(11))) == ["a submission over the bounds"]
    assert not drops(group.submit(1, b"a"))
    group.submit(1, b"b")
    group.submit(1, b"c")
    assert not group[1].ready
    assert drops(group.submit(1, b"d")) == ["a submission over the bounds"]


def test_tf_25_what_a_token_proposes_and_nominates_is_known_afterwards() -> None:
    group = Group(3, PAPER).up(3)
    bodies = (group.body(0, 1), group.body(1, 1))
    token = group.token(1, proposal=(1, 1), held={(0, 0): 1, (1, 1): 1}, bodies=bodies)
    effects = group.receive(3, token, src=2)
    (sent,) = set(tokens(effects).values())
    assert told(effects) == [b"1.1"]
    assert sent.proposal == (0, 1), "nominated, known, and not delivered"


def test_tf_26_a_token_that_is_behind_loses_its_proposal() -> None:
    group = Group(3, PAPER).up(2)
    bodies = (group.body(1, 1, b"a"), group.body(2, 1, b"b"))
    group.receive(2, group.token(2, (2, 1), adeliv=(1, 1), bodies=bodies), src=3)
    assert carry_on(group.token(3, (1, 1)), 1, length=1) == ((), 0)
    (sent,) = set(tokens(group.receive(2, group.token(3, (1, 1), bodies=bodies[:1]), 1)).values())
    assert (sent.hop, sent.votes, sent.proposal, sent.adeliv) == (4, 1, (2, 1), (1, 1))


@pytest.mark.parametrize(
    ("votes", "proposal", "distance", "left", "counted"),
    [
        (1, (0, 1), 1, (0, 1), 2),
        (2, (0, 1), 1, (0, 1), 3),
        (2, (0, 1), 2, (0, 1), 1),  # across a gap, from one again
        (1, (), 1, (), 1),  # A11: never for nothing
        (5, (), 1, (), 1),
    ],
)
def test_tf_27_votes(
    votes: int, proposal: tuple[int, ...], distance: int, left: tuple[int, ...], counted: int
) -> None:
    token = Group(7).token(8, proposal, votes)
    assert carry_on(token, distance, length=0) == (left, counted)


def test_tf_27_f_plus_1_votes_deliver_and_fewer_do_not() -> None:
    group = Group(7, PAPER).up(3, 4)
    body = (group.body(1, 1, b"a"),)
    effects = group.receive(3, group.token(1, (1, 1), 1, bodies=body), src=2)
    assert not told(effects)
    (sent,) = set(tokens(effects).values())
    assert (sent.votes, sent.proposal) == (2, (1, 1))
    effects = group.receive(4, sent, src=3)
    assert told(effects) == [b"a"]
    (sent,) = set(tokens(effects).values())
    assert (sent.votes, sent.proposal, sent.adeliv) == (1, (), (1, 1))


def test_tf_28_an_empty_proposal_is_filled_with_all_that_is_known() -> None:
    group = Group(3, PAPER).up(2)
    group.submit(2, b"mine")
    (sent,) = set(
        tokens(
            group.receive(2, group.token(0, held={(0, 0): 1}, bodies=(group.body(0, 1),)), 1)
        ).values()
    )
    assert (sent.votes, sent.proposal) == (1, (1, 1, 0, 1))


def test_tf_29_deliveries_come_after_the_token_has_left() -> None:
    group = Group(3, PAPER).up(2)
    group.submit(2, b"a")
    group.receive(2, group.token(0), src=1)
    effects = group.receive(2, group.token(3, adeliv=(1, 1)), src=1)
    kinds = [type(effect) for effect in effects if not isinstance(effect, Send)]
    sent = max(at for at, effect in enumerate(effects) if isinstance(effect, Send))
    assert kinds[-2:] == [Originate, Deliver]
    assert sent < len(effects) - 2
    batch = effects[-1].batch  # type: ignore[union-attr]
    assert (batch.ring, batch.seq, batch.sender, batch.level) == (group[2].view, 1, 2, Level.AGREED)


def test_tf_29_an_order_that_is_not_ours_stops_the_member() -> None:
    """A10, I6: with the same length, the counts of the senders differ."""
    group = Group(3, PAPER).up(2)
    group.receive(2, group.token(0, adeliv=(0, 1)), src=1)
    effects = group.receive(2, group.token(2, adeliv=(1, 1)), src=3)
    assert stops(effects) == [
        "broken invariant: two orders, its order is another one (token-fd I6)"
    ]


def test_tf_30_the_proposer_orders_its_own_messages_first_and_nobody_sorts_them_again() -> None:
    group = Group(3, PAPER).up(2, 3)
    bodies = tuple(group.body(place, 1) for place in range(3))
    nominated = group.token(0, held={(place, place): 1 for place in range(3)}, bodies=bodies)
    (sent,) = set(tokens(group.receive(2, nominated, src=1)).values())
    assert sent.proposal == (1, 1, 2, 1, 0, 1)
    assert told(group.receive(3, sent, src=2)) == [b"1.1", b"2.1", b"0.1"]


def test_tf_31_an_idle_token_rests_until_there_is_something_to_do() -> None:
    group = Group(3, hold_us=7).up(2)
    assert tokens(group.receive(2, group.token(0), src=1)), "the first one is news"
    effects = group.receive(2, group.token(3), src=1)
    assert not tokens(effects)
    assert set_timers(effects)[Timer.HOLD] == 7
    assert tokens(group.submit(2, b"a")), "a message of our own"
    group.receive(2, group.token(6, held={(1, 1): 1}), src=1)
    assert not tokens(group.receive(2, group.token(9, held={(1, 1): 1}), src=1))
    assert tokens(group.receive(2, group.body(2, 1), src=3)), "a message of another"
    assert group[2].sent.hop == 10  # type: ignore[union-attr]


def test_tf_31_the_rest_ends_by_itself_and_the_token_is_not_sent_again_too_soon() -> None:
    group = Group(3, hold_us=7, resend_us=10).up(2)
    active = group.receive(2, group.token(0), src=1)
    group.receive(2, group.token(3), src=1)
    effects = group.fire(2, Timer.HOLD)
    assert tokens(effects).keys() == {3}
    assert set_timers(active)[Timer.RESEND] == 10
    assert set_timers(effects)[Timer.RESEND] == 10 + 3 * 7


def test_tf_31_a_token_does_not_rest_with_one_who_leaves() -> None:
    group = Group(3, hold_us=7).up(2)
    group.receive(2, group.token(0), src=1)
    group.receive(2, group.token(3), src=1)
    effects = group.handle(2, Leaving())
    assert tokens(effects).keys() == {3}
    assert stops(effects) == ["left"]


def test_tf_40_copies_and_old_tokens_do_no_harm() -> None:
    group = Group(3, PAPER).up(2)
    token = group.token(0, (0, 1), bodies=(group.body(0, 1),))
    assert tokens(group.receive(2, token, src=1))
    again = group.receive(2, token, src=1)
    assert [e for e in again if isinstance(e, Send)] == [Send(1, TokenAck(group.config.group, 0))]
    group.receive(2, group.token(3, adeliv=(0, 1)), src=1)
    assert drops(group.receive(2, token, src=1)) == ["an old token"]
    assert told(group.log[2]) == [b"0.1"]


def test_a20_one_member_alone_delivers_at_once() -> None:
    group = Group(1, PAPER, hold_us=1000).up()
    assert told(group.submit(1, b"a", b"b")) == [b"a", b"b"]
    assert not group.unicasts
    group = Group(1).up()
    assert told(group.submit(1, b"c")) == [b"c"]


def test_a20_two_members_bear_no_crash_and_one_vote_decides() -> None:
    group = Group(2, PAPER).up()
    assert group.config.faults == 0
    group.submit(1, b"a")
    group.until_hop(3)
    assert told(group.log[2]) == [b"a"]
