"""RBP: losses are repaired, and a ring that stands still is noticed (R9 to R11, R18 to R23)."""

from __future__ import annotations

from driver import drops, sent, set_timers
from rbp import Group, Phase, Timer, acks

from ringcast.core.effects import Broadcast, Send
from ringcast.protocols.rbp.epochs import Data, Ids
from ringcast.protocols.rbp.messages import Ask, Invite


def lagging(n: int = 4) -> Group:
    """Member 4 has missed a body of 1 and everything after; the token rests elsewhere."""
    group = Group(n).up().token_at(2)
    group.cut = {(a, 4) for a in (1, 2, 3)}
    return group


def test_r9_a_gap_is_asked_for_after_a_short_time_and_again() -> None:
    """R9: numbers by range, bodies by id; whoever is not next waits a little first."""
    group = Group(5).up().token_at(2)
    group.submit(1, b"a")
    held = group[5].log.held
    group.lose()
    group.receive(5, group.ack(held + 2, 3, Ids(1, 1, 1)), 3)
    assert Timer.NACK in group.timers[5]
    (ask,) = sent(group.fire(5, Timer.NACK), Ask)
    assert (ask.first, ask.last) == (held + 1, held + 1)
    group.receive(5, group.ack(held + 1, 2), 2)
    (ask,) = sent(group.fire(5, Timer.NACK), Ask)
    assert ask.last == 0 and ask.bodies == (Ids(1, 1, 1),)
    (ask,) = sent(group.fire(5, Timer.NACK), Ask)
    assert ask.bodies == (Ids(1, 1, 1),), "until it comes"


def test_r10_whoever_the_token_waits_for_asks_at_once() -> None:
    """R10, G4: numbers and bodies in one request, the very last number included."""
    group = Group().up().token_at(2)
    number = group[3].log.held + 1
    (ask,) = sent(group.receive(3, group.ack(number, 2, Ids(1, 1, 1)), 2), Ask)
    assert ask.bodies == (Ids(1, 1, 1),)


def test_r11_answers_are_the_original_frames() -> None:
    """R11, G14: an ACK that comes as an answer passes the token as the first copy would have."""
    group = Group().up().token_at(2)
    group.cut = {(2, 3)}
    group.submit(2, b"a")
    group.settle()
    (ack,) = [a for a in group[2].ring.acks.values() if a.ids]
    body = group.data(2, 1, b"a")
    ask = Ask(group.config.group, ack.epoch, ack.number, ack.number, body.view, (Ids(2, 1, 1),))
    effects = group.receive(1, ask, 3)
    assert acks(effects) == [ack]
    assert [each.contents for each in sent(effects, Data)] == [body.contents]
    group.receive(3, sent(effects, Data)[0], 1)
    answer = group.receive(3, ack, 1)
    assert [a.number for a in acks(answer)] == [ack.number + 1], "3 was next, and goes on"


def test_r11_the_issuer_is_asked_first_then_the_holder_then_all() -> None:
    """G19."""
    group = Group(5).up().token_at(2)
    held = group[5].log.held
    group.receive(5, group.ack(held + 2, 3), 3)
    asked = []
    for _ in range(3):
        effects = group.fire(5, Timer.NACK)
        (one,) = [e for e in effects if isinstance(e, Send | Broadcast)]
        asked.append(one.to if isinstance(one, Send) else 0)
    assert asked == [3, 4, 0]


def test_r18_only_a_higher_number_counts_as_progress() -> None:
    """R18, G18: a holder that repeats for ever does not hide that nothing goes on."""
    group = Group().up().token_at(2)
    number = group[3].ring.seen + 1
    ack = group.ack(number, 2, Ids(1, 1, 1))
    assert Timer.ACT in set_timers(group.receive(3, ack, 2))
    group.now_us += 1000
    assert Timer.ACT not in set_timers(group.receive(3, ack, 2))
    effects = group.fire(3, Timer.ACT)
    assert sent(effects, Invite) and group[3].phase is Phase.FROZEN


def test_r19_the_holder_suspects_a_next_that_never_answers() -> None:
    """R19."""
    group = Group(retries=2).up().token_at(2)
    group.crash(3)
    group.submit(2, b"a")
    for _ in range(2):
        assert not sent(group.fire(2, Timer.TOKEN), Invite)
    assert sent(group.fire(2, Timer.TOKEN), Invite)
    assert group[2].chooser.forming.suspects == {3}


def test_r20_whoever_is_next_gives_up_on_an_entry_that_nobody_has() -> None:
    """R20: not before all were asked, and only if nobody answered."""
    group = Group(retries=1).up().token_at(2)
    number = group[3].log.held + 1
    group.receive(3, group.ack(number, 2, Ids(2, 1, 1)), 2)
    group.lose()
    asked = 0
    while not (effects := group.fire(3, Timer.NACK)) or not sent(effects, Invite):
        asked += len([e for e in effects if isinstance(e, Broadcast)])
        group.lose()
        assert asked < 20
    assert asked >= 2
    assert group[3].phase is Phase.FROZEN


def test_r21_whoever_is_not_due_may_be_gone() -> None:
    """R21: ordering goes on until it is its turn."""
    group = Group(4).up().token_at(2)
    group.crash(1)
    group.submit(2, b"a")
    group.settle()
    assert group[4].ring.seen == group[2].ring.seen == group[2].ring.issued + 2
    assert all(group[n].phase is Phase.MEMBER for n in (2, 3, 4))


def test_r22_a_token_that_nobody_knows_of_is_found_lost() -> None:
    """R22: holder and next gone together: only the passive watch is left, and it is enough."""
    group = Group(5).up().token_at(2)
    group.crash(2)
    group.crash(3)
    for node in (1, 4, 5):
        group.timers[node].pop(Timer.TOKEN, None)  # nobody is suspected
    group.reform(4)
    group.votes_in(4)
    assert group.list(1).members == (1, 4, 5)
    group.submit(5, b"a")
    group.settle()
    assert [group.told(node) for node in (1, 4, 5)] == [[b"a"]] * 3


def test_r23_a_number_that_some_heard_survives_and_one_that_nobody_heard_is_void() -> None:
    """R23: the suspected process may have issued either."""
    for heard in (True, False):
        group = Group(4).up().token_at(2)
        group.cut = {(2, other) for other in (1, 3, 4)}
        group.submit(2, b"a")
        group.settle()
        number = group[2].ring.issued
        if heard:
            group.receive(4, group.data(2, 1, b"a"), 2)
            group.receive(4, group[2].ring.acks[number], 2)
        group.crash(2)
        group.reform(1)
        group.votes_in(1)
        assert group.list(3).start == (number if heard else number - 1)
        assert [group.told(node) for node in (1, 3, 4)] == [[b"a"] if heard else []] * 3


def test_r16_a_request_of_another_epoch_is_not_answered() -> None:
    group = Group().up()
    old = Ask(group.config.group, group.ack(1, 1, epoch=group.list(1).base).epoch, 1, 1, *NO_BODIES)
    assert "a request of another epoch" in drops(group.receive(2, old, 3))


NO_BODIES = (Group().data(1, 1).view, ())
