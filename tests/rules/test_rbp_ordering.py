"""RBP without failures: bodies, numbers and the token (R1 to R8, R12 to R17)."""

from __future__ import annotations

from driver import drops, only_dropped, sent, set_timers
from rbp import FIRST, Group, Phase, Timer, acks, said

from ringcast.core.effects import Broadcast, Send
from ringcast.core.ids import ViewId
from ringcast.protocols.rbp.epochs import Data, Epoch, Ids
from ringcast.protocols.rbp.messages import Ordered


def test_r1_a_body_is_repeated_under_the_same_id() -> None:
    """R1, G3: the id is fixed once; a repeat is the identical frame."""
    group = Group().up()
    (first,) = sent(group.submit(1, b"a"), Data)
    assert (first.source, first.counter, first.view) == (1, 1, FIRST.view)
    group.lose()
    assert sent(group.fire(1, Timer.DATA), Data) == [first]


def test_r2_an_ack_ends_the_repeats_and_the_body_is_kept_until_delivered() -> None:
    """R2, G20, G44: a void entry is not the end of a message: it is sent again in the next list."""
    group = Group().up().token_at(2)
    group.cut = {(2, 3), (2, 1)}
    group.submit(1, b"a")
    group.settle()  # 2 gives it number, heard by nobody
    group.receive(1, next(iter(group[2].ring.acks[n] for n in sorted(group[2].ring.acks)[-1:])), 2)
    assert not sent(group.fire(1, Timer.DATA), Data)
    assert len(group[1].sending.mine) == 1
    group.cut = {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if 2 in (a, b)}
    group[1].log.cut(group[3].log.held)  # as if 1 had not heard it
    group.reform(3)
    group.votes_in(3)
    assert group.list(1).members == (1, 3)
    while group.told(1) != [b"a"]:
        group.pass_on()
    group.pass_on(2)
    assert group.told(3) == [b"a"]


def test_r3_a_body_is_kept_though_its_ack_came_first() -> None:
    """R3, G8: the literal rule throws it away, and the token stops for ever."""
    group = Group().up().token_at(2)
    number = group[3].log.held + 1
    group.receive(3, group.ack(number, 2, Ids(1, 1, 1)), 2)
    assert group[3].log.held == number - 1
    effects = group.receive(3, group.data(1, 1), 1)
    assert group[3].log.held == number + 1
    assert [ack.number for ack in acks(effects)] == [number + 1], "it was next, and goes on"


def test_r4_the_holder_alone_answers_a_repeat() -> None:
    """R4: with the original ACK, and with ORDERED once it is let go."""
    group = Group(idle_us=0).up()
    group.submit(1, b"a")
    group.settle()
    data = group.data(1, 1, b"a")
    holder = group.holder()
    other = next(n for n in group.ids if n not in (1, holder))
    if holder == 1:
        group.pass_on()
        holder = group.holder()
        other = next(n for n in group.ids if n not in (1, holder))
    (answer,) = acks(group.receive(holder, data, 1))
    assert answer.ids == (Ids(1, 1, 1),)
    assert only_dropped(group.receive(other, data, 1))
    group[holder].ring.acks.pop(answer.number)
    assert sent(group.receive(holder, data, 1), Ordered) == [
        Ordered(group.config.group, FIRST.view, 1)
    ]
    group.receive(1, Ordered(group.config.group, FIRST.view, 1), holder)
    assert group[1].sending.named == 1


def test_r5_one_frame_tells_the_source_gives_the_number_and_passes_the_token() -> None:
    """R5."""
    group = Group().up().token_at(2)
    effects = group.submit(2, b"a")
    (ack,) = acks(effects)
    assert (ack.issuer, ack.next, ack.ids) == (2, 3, (Ids(2, 1, 1),))
    assert group[2].sending.named == 1
    group.settle()
    assert group[3].ring.acks[ack.number + 1].issuer == 3, "it has accepted the token"


def test_r6_nothing_is_issued_before_all_before_is_held() -> None:
    """R6, G7: the named process lacks a body, so it does not go on."""
    group = Group().up().token_at(2)
    number = group[3].log.held + 1
    effects = group.receive(3, group.ack(number, 2, Ids(1, 1, 1)), 2)
    assert not acks(effects)
    assert not group[3].holds_token


def test_r6_a_token_copy_issues_no_second_number() -> None:
    """R6, G13: an old token falls through to nothing."""
    group = Group().up().token_at(2)
    group.submit(2, b"a")
    (ack,) = [a for a in group[2].ring.acks.values() if a.ids]
    group.settle()
    seen = group[3].ring.seen
    effects = group.receive(3, ack, 2)
    assert not [a for a in acks(effects) if a.number > seen]
    assert group[3].ring.seen == seen


def test_r7_oldest_first_and_by_counter_within_a_batch() -> None:
    """R7: a later counter that came first waits for the earlier one; one ACK names so many."""
    group = Group(batch=3).up().token_at(2)
    machine = group[3]
    for source, counter in ((1, 2), (2, 1), (1, 1), (2, 2)):
        group.receive(3, group.data(source, counter), source)
    assert machine.log.select(3) == (Ids(1, 1, 2), Ids(2, 1, 1))
    assert machine.log.select(1) == (Ids(1, 1, 1),)
    assert machine.log.select(64) == (Ids(1, 1, 2), Ids(2, 1, 2))


def test_r8_the_identical_frame_is_repeated_until_a_higher_number() -> None:
    """R8."""
    group = Group().up().token_at(2)
    (ack,) = acks(group.submit(2, b"a"))
    group.lose()
    effects = group.fire(2, Timer.TOKEN)
    assert acks(effects) == [ack]
    assert Timer.TOKEN in set_timers(effects)
    group.settle()
    assert group[2].ring.seen > ack.number
    assert Timer.TOKEN not in group.timers[2] or group[2].ring.issued > ack.number


def test_r12_the_addressee_and_the_holder_tell_an_issuer_that_repeats() -> None:
    """R12, G12, G17: with the ACK that follows and the newest; nobody else says anything."""
    group = Group(4).up().token_at(2)
    (ack,) = acks(group.submit(2, b"a"))
    group.settle()
    group.pass_on(2)
    newest = group[4].ring.seen
    group.now_us += group.config.token_us
    holder = group.holder()
    answers = acks(group.receive(holder, ack, 2))
    assert [a.number for a in answers] == sorted({ack.number + 1, newest})
    silent = next(n for n in group.ids if n not in (2, ack.next, holder))
    assert only_dropped(group.receive(silent, ack, 2))
    group.now_us += 1
    assert not acks(group.receive(holder, ack, 2)), "an answer is no repeat for ever"


def test_r13_delivery_is_in_number_order_and_nulls_are_silent() -> None:
    """R13, G16."""
    group = Group().up().token_at(1)
    group.submit(1, b"a")
    group.settle()
    group.submit(2, b"b")
    group.settle()
    group.pass_on(3)
    assert [group.told(node) for node in group.ids] == [[b"a", b"b"]] * 3
    assert group[1].delivered > 2, "nulls count, and say nothing"


def test_r14_the_first_member_begins_without_a_frame() -> None:
    """R14, G6: it holds the token with k = start, and issues at once so that all learn of it."""
    group = Group().up()
    first = group[1].ring.acks[1]
    assert (first.number, first.issuer, first.next, first.ids) == (1, 1, 2, ())


def test_r15_any_frame_may_come_any_number_of_times() -> None:
    """R15: everything that was ever said is said again; nothing changes."""
    group = Group().up()
    group.submit(1, b"a")
    group.submit(3, b"b")
    group.settle()
    group.pass_on(3)
    said_once = [group.told(node) for node in group.ids]
    frames = [
        (node, effect.message)
        for node in group.ids
        for effect in group.log[node]
        if isinstance(effect, Broadcast | Send) and isinstance(effect.message, Data)
    ]
    for src, frame in frames * 2:
        for node in group.ids:
            if node != src:
                group.receive(node, frame, src)
    for node in group.ids:
        for ack in list(group[node].ring.acks.values()):
            for other in group.ids:
                if other != node:
                    group.receive(other, ack, node)
    group.settle()
    assert [group.told(node) for node in group.ids] == said_once


def test_r16_a_frame_of_another_epoch_has_no_effect() -> None:
    """R16, G15: the tag is looked at before anything else."""
    group = Group().up().token_at(2)
    before = group[3].snapshot()
    old = Epoch(ViewId(0, 1))
    effects = group.receive(3, group.ack(9, 2, Ids(1, 1, 1), epoch=old), 2)
    assert drops(effects) == ["an ACK of another epoch"]
    effects = group.receive(3, group.data(1, 5, view=old.view), 1)
    assert drops(effects) == ["a body of another view"]
    assert group[3].snapshot() == before


def test_r17_an_idle_token_rests_and_a_burst_is_drained() -> None:
    """R17, G51: nulls follow at once while something is undelivered, then one in each T_idle."""
    group = Group().up().token_at(1)
    group.submit(1, b"a")
    group.settle()
    assert [group.told(node) for node in group.ids] == [[b"a"]] * 3, "without a timer"
    holder = group.holder()
    assert group[holder].ring.resting
    effects = group.fire(holder, Timer.IDLE)
    assert [ack.ids for ack in acks(effects)] == [()]


def test_r17_a_group_of_one_needs_no_frames() -> None:
    """A6, T16: five broadcasts, delivered at once; no null goes round."""
    group = Group(1).up()
    effects = [e for i in range(5) for e in group.submit(1, b"%d" % i)]
    assert said(effects) == [b"0", b"1", b"2", b"3", b"4"]
    assert not sent(effects, Data) and not acks(effects)
    assert not group.timers[1]
    assert group[1].phase is Phase.MEMBER
