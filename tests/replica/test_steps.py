"""One member of three, step by step, with a disk that may be at work: rules of docs/replication.md
that a run as a whole does not show, because what follows makes up for a step that is missing."""

from __future__ import annotations

from one_copy import ENDED, FOUNDED, LATER, OLD, VOTERS, Copy, of_the_group, primary, some, status

from ringcast.core.ids import ViewId
from ringcast.replica.effects import Apply, Phase, Restore
from ringcast.replica.log import Adopt, Image, ReplicaLog
from ringcast.replica.progress import PATIENCE
from ringcast.replica.words import (
    Ack,
    Action,
    Again,
    Entries,
    Epoch,
    Ready,
    Run,
    Snapshot,
    Ticket,
    after,
)

RUNS = (Run(OLD, 1, 3), Run(LATER, 4, 6))


def applied(copy: Copy) -> list[int]:
    return [each.index for each in copy.effects if isinstance(each, Apply)]


def restored(copy: Copy) -> list[tuple[int, bytes]]:
    return [(each.at, each.state) for each in copy.effects if isinstance(each, Restore)]


def test_rs_3_what_a_disk_says_is_green_is_applied_at_once() -> None:
    assert applied(Copy(*FOUNDED)) == [1, 2]
    compacted = Copy(*FOUNDED, Image(1, b"one"))
    assert (restored(compacted), applied(compacted)) == ([(1, b"one")], [2])


def test_rs_8_a_state_is_taken_over_with_what_follows_it() -> None:
    copy = of_the_group()
    copy.hear(3, status(log_epoch=LATER, length=6, green=5, trimmed=5, runs=(Run(LATER, 6, 6),)))
    assert copy.phase() is Phase.TRANSFER
    copy.hear(3, Snapshot(ENDED, 5, 0, b"five", True), some(6))
    assert (restored(copy), copy.engine.applied) == ([(5, b"five")], 5)
    copy.hear(3, Ready(ENDED))
    assert applied(copy) == [1, 2, 6]


def test_rs_8_what_was_green_stays_so_whatever_the_holder_knows() -> None:
    """A state that is taken of what is not green would make a status of the disk that cannot be."""
    copy = of_the_group()
    copy.hear(3, status(log_epoch=LATER, length=6, green=0, runs=RUNS))
    copy.hear(3, some(4, 3))
    (adopted,) = copy.written(Adopt)
    assert adopted.green == copy.engine.log.green == 2


def test_rs_8_it_is_said_from_where_the_first_lacks_something() -> None:
    holder = of_the_group()
    holder.hear(2, ReplicaLog().status(ENDED, VOTERS, 3, 6))
    holder.hear(3, status(length=2, runs=(Run(OLD, 1, 2),)))
    assert [word.first for word in holder.said(Entries)] == [1]


def test_rs_9_nobody_is_ready_before_the_log_is_on_disk() -> None:
    """Or what no quorum's disks have would be green."""
    copy = of_the_group()
    copy.hangs = []
    copy.hear(3, status(log_epoch=LATER, length=6, green=2, runs=RUNS))
    copy.hear(3, some(4, 3))
    assert copy.written(Adopt) and not copy.said(Ready)
    copy.hear(2, Ready(ENDED))
    copy.hear(3, Ready(ENDED))
    assert copy.phase() is Phase.READY and applied(copy) == [1, 2]
    copy.engine.synced(copy.hangs.pop())
    copy.run()
    assert copy.said(Ready) and copy.phase() is Phase.PRIMARY


def test_rs_9_the_log_that_a_quorum_has_is_green_without_another_word() -> None:
    assert applied(primary()) == [1, 2, 3]


def test_rs_11_a_command_whose_entry_was_lost_is_said_again_and_no_other_one() -> None:
    """It was delivered in an epoch that others did not go on from; whoever submitted it waits."""
    for theirs, times in ((Epoch(9, 2), 2), (ENDED, 1)):
        copy = primary()
        copy.engine.submit(b"x")
        copy.run()
        assert copy.engine.log.length == 4 and applied(copy) == [1, 2, 3]
        copy.engine.on_view(ViewId(10, 1), transitional=False)
        copy.run()
        now = Epoch(10, 1)
        copy.hear(3, status(epoch=now, log_epoch=theirs, green=3), Ready(now))
        assert copy.phase() is Phase.PRIMARY
        assert len(copy.said(Action)) == times
        assert copy.engine.log.entry(4).command == b"x"


def test_rs_12_a_voter_whose_others_say_nothing_speaks_after_a_tick() -> None:
    """Or its command would wait for as long as the disks of the others hang."""
    copy = primary()
    copy.hear(3, Ready(ENDED))
    copy.engine.submit(b"x")
    copy.run()
    copy.tick()
    assert not copy.said(Ack)
    copy.tick()
    assert [word.length for word in copy.said(Ack)] == [4]


def test_rs_13_an_acknowledgement_of_another_epoch_tells_nothing() -> None:
    """What was under way when a ring broke is delivered on the next one."""
    copy = primary()
    copy.hear(2, Action(Ticket(2, 6, 1), b"x"))
    assert copy.engine.log.length == 4
    copy.hear(2, Ack(OLD, 4, 0))
    assert applied(copy) == [1, 2, 3]
    copy.hear(2, Ack(ENDED, 4, 0))
    assert applied(copy) == [1, 2, 3, 4]


def test_rs_16_disks_that_are_slower_than_our_patience_are_waited_for_in_the_end() -> None:
    """With syncs of 2.5 s at a majority, a member with a fast disk had all begin anew for ever."""
    copy, epoch = of_the_group(), ENDED
    for attempt in range(5):
        copy.hear(2, status(epoch=epoch))
        assert copy.phase() is Phase.READY
        copy.tick(PATIENCE * 2**attempt - 1)
        assert copy.engine.epoch == epoch
        copy.tick()
        assert copy.said(Again)[-1] == Again(epoch)
        epoch = after(epoch)
        assert copy.engine.epoch == epoch
    epoch = Epoch(10, 1)  # the next view begins as the first one
    copy.engine.on_view(ViewId(10, 1), transitional=False)
    copy.run()
    copy.hear(2, status(epoch=epoch))
    copy.tick(PATIENCE)
    assert copy.said(Again)[-1] == Again(epoch)


def test_rs_15_a_state_that_was_overtaken_by_a_later_one_is_not_kept() -> None:
    copy = primary()
    copy.engine.compact(Image(3, b"three"))
    copy.engine.compact(Image(2, b"two"))
    copy.run()
    assert copy.written(Image) == [Image(3, b"three")] and copy.engine.log.trimmed == 3
