"""One engine alone, step by step: what comes together is written together, and who speaks."""

from __future__ import annotations

from ringcast.core.ids import ViewId
from ringcast.replica.effects import BarrierPassed, Effect, Phase, Say, Sync, Write
from ringcast.replica.engine import Engine
from ringcast.replica.log import Append, Image, Promise, ReplicaLog
from ringcast.replica.tally import Tally
from ringcast.replica.words import Ack, Action, Barrier, Epoch, Lift, Ready, Ticket, after

VIEW, NEXT = ViewId(4, 1), ViewId(8, 1)


def carry_out(engine: Engine) -> list[Effect]:
    """A disk that is fast and a group of one: everything the engine asked for on the way."""
    found: list[Effect] = []
    while engine.pending:
        for effect in engine.take():
            found.append(effect)
            if isinstance(effect, Sync):
                engine.synced(effect.ticket)
            elif isinstance(effect, Say):
                engine.on_word(engine.me, effect.word)
    return found


def primary() -> Engine:
    """The only voter, in its first primary component."""
    engine = Engine(1, 7, frozenset({1}), ReplicaLog())
    engine.on_view(VIEW, transitional=False)
    carry_out(engine)
    assert engine.phase is Phase.PRIMARY
    return engine


def action(number: int) -> Action:
    return Action(Ticket(2, 9, number), b"%d" % number)


def test_rs_10_commands_that_come_together_are_one_record_and_wait_for_one_sync() -> None:
    engine = primary()
    for number in (1, 2, 3):
        engine.on_word(2, action(number))
    first, second = engine.take()
    assert isinstance(first, Write) and isinstance(first.record, Append)
    assert [entry.command for entry in first.record.entries] == [b"1", b"2", b"3"]
    assert isinstance(second, Sync)
    engine.on_word(2, action(4))  # while that sync is under way
    (third,) = engine.take()
    assert isinstance(third, Write)
    engine.synced(second.ticket)
    said = [each.word for each in engine.take() if isinstance(each, Say)]
    assert [word.length for word in said if isinstance(word, Ack)] == [3]
    assert engine.applied == 3


def test_rs_5_what_came_together_with_the_end_of_a_view_is_synced_in_its_name() -> None:
    """In the next epoch the log may be a shorter one, and the sync would tell of the longer."""
    engine = primary()
    engine.on_word(2, action(1))
    engine.on_view(VIEW, transitional=True)
    engine.on_view(NEXT, transitional=False)
    records = [each.record for each in engine.take() if isinstance(each, Write)]
    assert [type(record) for record in records] == [Append, Promise]
    assert {epoch.seq for what, epoch, _ in engine._syncs.values() if what == "append"} == {4}


def test_rs_4_no_epoch_is_promised_twice() -> None:
    """Two quorums of one epoch would share a member, and could append different entries in it."""
    log = ReplicaLog()
    log.take(Promise(Epoch(VIEW.seq, VIEW.rep)))
    engine = Engine(1, 7, frozenset({1, 2, 3}), log)
    engine.on_view(VIEW, transitional=False)
    effects = engine.take()
    assert [each.word for each in effects if isinstance(each, Say)] == [Lift(log.promised)]
    assert not any(isinstance(each, Write) for each in effects)
    promised = log.promised
    engine.on_word(1, Lift(promised))
    assert engine.epoch == after(promised)
    assert [each.record for each in engine.take() if isinstance(each, Write)] == [
        Promise(engine.epoch)
    ]


def test_rs_4_a_status_waits_for_the_sync_of_its_own_promise() -> None:
    engine = Engine(1, 7, frozenset({1, 2, 3}), ReplicaLog())
    synced = []
    for view in (VIEW, NEXT):
        engine.on_view(view, transitional=False)
        synced += [each.ticket for each in engine.take() if isinstance(each, Sync)]
    engine.synced(synced[0])
    assert not any(isinstance(each, Say) for each in engine.take())
    engine.synced(synced[1])
    assert [type(each) for each in engine.take()] == [Say]


def test_rs_15_nothing_is_compacted_while_logs_are_compared() -> None:
    """The status that was said would be another one than this log's."""
    engine = primary()
    engine.on_word(2, action(1))
    carry_out(engine)
    assert engine.applied == 1
    engine.on_view(NEXT, transitional=False)
    engine.compact(Image(1, b"state"))
    assert engine.log.trimmed == 0
    carry_out(engine)
    engine.compact(Image(1, b"state"))
    assert engine.phase is Phase.PRIMARY and engine.log.trimmed == 1


def test_rs_14_a_barrier_before_a_member_goes_on_counts() -> None:
    """Or the others' word that they saw that one would be taken for the next."""
    engine = Engine(2, 7, frozenset({1, 2, 3}), ReplicaLog())
    engine.on_view(VIEW, transitional=False)
    *_, promised = engine.take()
    assert isinstance(promised, Sync)
    engine.synced(promised.ticket)
    for member in (1, 2, 3):
        engine.on_word(member, engine.status())
    adopted = engine.take()[-1]
    assert isinstance(adopted, Sync)
    for member in (1, 3):
        engine.on_word(member, Ready(engine.epoch))
    engine.on_word(1, Barrier(Ticket(1, 7, 1)))
    engine.synced(adopted.ticket)
    assert engine.phase is Phase.PRIMARY
    ticket = engine.read()
    assert ticket is not None
    engine.on_word(2, Barrier(ticket))
    engine.take()
    for member in (1, 3):
        engine.on_word(member, Ack(engine.epoch, 0, 1))
    assert not any(isinstance(each, BarrierPassed) for each in engine.take())
    engine.on_word(3, Ack(engine.epoch, 0, 2))
    assert BarrierPassed(ticket, 0) in engine.take()


def test_rs_9_whoever_has_no_vote_makes_no_quorum() -> None:
    tally = Tally((1, 2, 3))
    tally.ready |= {1, 4, 5}
    assert not tally.enough_ready
    tally.ready.add(3)
    assert tally.enough_ready


def test_rs_13_half_of_the_voters_are_no_quorum() -> None:
    tally = Tally((1, 2, 3, 4))
    for member in (1, 2):
        tally.acknowledge(member, 5)
        tally.ready.add(member)
    assert (tally.on_disk, tally.enough_ready) == (0, False)
    tally.acknowledge(4, 3)
    tally.ready.add(4)
    assert (tally.on_disk, tally.enough_ready) == (3, True)


def test_rs_12_who_could_make_no_difference_says_nothing() -> None:
    tally = Tally((1, 2, 3))
    assert tally.counts(3, 5, 1)
    tally.acknowledge(1, 5, 1)
    tally.acknowledge(3, 5, 1)  # nobody else knows that
    assert tally.counts(3, 5, 1)
    tally.acknowledge(2, 5, 0)
    assert tally.counts(3, 5, 1)
    tally.acknowledge(2, 5, 1)
    assert not tally.counts(3, 5, 1)
    assert tally.counts(3, 6, 1)
    assert not Tally((1, 2, 3)).counts(4, 5, 1)  # it has no vote


def of_three(*ready: int) -> Tally:
    tally = Tally((1, 2, 3))
    tally.ready.update(ready)
    return tally


def test_rs_12_of_its_own_commands_alone_a_voter_says_nothing() -> None:
    """Whoever submitted counts its own disk by itself, and the others hear of each other's."""
    tally = of_three(1, 2, 3)
    assert not tally.must_say(1, 5)
    tally.wanted = 6  # somebody else's command
    assert tally.must_say(1, 6)
    assert not tally.must_say(1, 6) and not tally.must_say(1, 7)
    tally.wanted = 9
    assert tally.must_say(1, 8)  # it may be behind others that are not synced yet …
    assert tally.must_say(1, 9)  # … and is not forgotten for that


def test_rs_12_with_too_few_others_it_says_what_it_has() -> None:
    """Or a follower, which has no other disk to count, would never apply it."""
    assert of_three(1, 2).must_say(1, 5)


def test_rs_12_a_barrier_of_somebody_else_is_answered_and_ones_own_is_not() -> None:
    tally = of_three(1, 2, 3)
    tally.pass_barrier(1, Ticket(1, 7, 1), 0)
    assert not tally.must_say(1, 0)
    tally.pass_barrier(1, None, 0)
    assert tally.must_say(1, 0)


def test_rs_12_a_voter_relies_on_the_others_for_a_tick_and_not_again() -> None:
    tally = of_three(1, 2, 3)
    assert not tally.relied_in_vain(1, 5)
    assert not tally.must_say(1, 5)
    tally.acknowledge(2, 5)  # 3 is ready, and its disk does not answer
    assert tally.relied_in_vain(1, 6)
    assert tally.must_say(1, 6) and tally.must_say(1, 7)
    served = of_three(1, 2, 3)
    assert not served.relied_in_vain(1, 5)
    for other in (2, 3):
        served.acknowledge(other, 5)
    assert not served.relied_in_vain(1, 6)
    assert not served.must_say(1, 6)


def test_rs_12_what_a_voter_has_said_does_not_make_it_doubt_the_others() -> None:
    tally = of_three(1, 2, 3)
    tally.wanted = 5
    assert not tally.relied_in_vain(1, 5)
    assert tally.must_say(1, 5)
    assert not tally.relied_in_vain(1, 5)
    assert not tally.must_say(1, 6)
