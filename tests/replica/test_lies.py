"""Words that no honest replica says, from a member of the group: they are refused, and the others
go on, write nothing that they could not read, and keep no more than they must."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from one_copy import (
    ENDED,
    FOUNDED,
    LATER,
    OLD,
    VIEW,
    VOTERS,
    Copy,
    entry,
    of_the_group,
    primary,
    some,
    status,
)

from ringcast.core.ids import LIMIT
from ringcast.replica import engine as engines
from ringcast.replica import progress, words
from ringcast.replica.effects import Apply, Phase
from ringcast.replica.engine import PIECE
from ringcast.replica.exchange import MOST_ENTRIES, lacking, pieces, sound
from ringcast.replica.log import Adopt, Append, Image, Promise, Record, ReplicaLog
from ringcast.replica.progress import GRACE, PATIENCE, REACH
from ringcast.replica.words import (
    LAST_ROUND,
    MOST_IN_WORD,
    MOST_RUNS,
    NEVER,
    Ack,
    Action,
    Again,
    Barrier,
    Entries,
    Epoch,
    Lift,
    Ready,
    Run,
    Snapshot,
    Status,
    Ticket,
    after,
)

# --- epochs --------------------------------------------------------------------------------


def test_rs_4_one_member_lifts_no_attempt_out_of_reach() -> None:
    """The last epoch there is went to the disks of all, and none could follow it."""
    copy = primary()
    beyond = Epoch(VIEW.seq + REACH + 1, 0)
    copy.hear(2, Lift(beyond), Lift(Epoch(LIMIT, 0)))
    assert (copy.engine.epoch, copy.phase()) == (ENDED, Phase.PRIMARY)
    assert copy.engine.refused == {2: 2}
    assert copy.engine.log.promised == ENDED


def test_rs_4_within_reach_one_member_s_word_is_enough() -> None:
    """It may be the only one whose disk was not lost."""
    copy = primary()
    promised = Epoch(VIEW.seq + REACH, 7, 12)
    copy.hear(3, Lift(promised))
    assert copy.engine.epoch == copy.engine.log.promised == Epoch(promised.seq, 7, 13)


def test_rs_4_what_two_members_have_promised_is_followed() -> None:
    """Should it be on their disks all the same."""
    copy = primary()
    copy.hear(2, Lift(Epoch(2**62, 1)))
    copy.hear(3, Lift(Epoch(2**61, 1)))
    assert copy.engine.epoch == Epoch(2**61, 1, 1)
    copy.view()
    copy.hear(3, Lift(Epoch(2**62, 1)))
    assert copy.engine.epoch < Epoch(2**62, 1), "2 said it in an earlier view"


def test_rs_4_a_disk_out_of_reach_goes_on_with_another_one() -> None:
    copy = Copy(*FOUNDED, Promise(Epoch(2**62, 1)))
    copy.view()
    assert copy.said(Lift) == [Lift(Epoch(2**62, 1))]
    assert copy.engine.epoch == ENDED
    copy.hear(2, Lift(Epoch(2**62, 1)))
    assert copy.engine.epoch == Epoch(2**62, 1, 1)
    assert copy.said(Status)


def test_rs_4_numbers_of_attempts_do_not_run_out() -> None:
    assert after(Epoch(5, 1, LAST_ROUND - 1)) == Epoch(5, 1, LAST_ROUND)
    assert after(Epoch(5, 1, LIMIT)) == Epoch(6, 1) > Epoch(5, 1, LIMIT)


# --- statuses ------------------------------------------------------------------------------

LIES: dict[str, dict[str, Any]] = {
    "green_beyond_the_end": {"green": LIMIT},
    "trimmed_behind_green": {"trimmed": 3, "runs": ()},
    "without_end": {"length": 2**40, "runs": (Run(OLD, 1, 2**40),)},
    "of_this_attempt": {"log_epoch": ENDED},
    "of_no_epoch": {"log_epoch": NEVER},
    "blank_with_entries": {"founder": 0},
    "blank_with_an_epoch": {"founder": 0, "length": 0, "green": 0, "runs": ()},
    "voters_twice": {"voters": (1, 1, 3)},
    "voters_in_no_order": {"voters": (3, 2, 1)},
    "fewer_voters": {"count": 4},
    "no_voters": {"voters": ()},
    "no_runs": {"runs": ()},
    "a_run_beyond_the_end": {"runs": (Run(OLD, 1, 4),)},
    "a_run_too_short": {"runs": (Run(OLD, 1, 2),)},
    "a_run_before_the_log": {"runs": (Run(OLD, 0, 3),)},
    "a_run_too_late": {"runs": (Run(OLD, 2, 3),)},
    "a_run_backwards": {"runs": (Run(OLD, 1, 3), Run(LATER, 4, 3))},
    "a_gap": {"runs": (Run(NEVER, 1, 1), Run(OLD, 3, 3))},
    "epochs_that_descend": {"runs": (Run(OLD, 1, 1), Run(Epoch(3, 1), 2, 3))},
    "an_epoch_after_the_log_s": {"runs": (Run(OLD, 1, 1), Run(LATER, 2, 3))},
}


@pytest.mark.parametrize("lie", LIES)
def test_rs_6_a_disk_that_cannot_be_is_no_status(lie: str) -> None:
    """What is green, of a log that was shorter, went to the disks of the others: they ended with
    an IndexError, and could not be opened again."""
    copy = of_the_group()
    copy.hear(3, status(**LIES[lie]))
    assert copy.phase() is Phase.EXCHANGE
    assert copy.engine.refused == {3: 1}
    copy.hear(2, status(), Ready(ENDED))
    assert copy.phase() is Phase.PRIMARY
    assert not copy.halted


def test_rs_6_disks_that_can_be() -> None:
    assert sound(status())
    blank = ReplicaLog().status(ENDED, (), 3, 6)
    assert sound(blank) and sound(replace(blank, voters=VOTERS))
    trimmed = ReplicaLog.replay([*FOUNDED, Image(2, b"state")])
    assert sound(trimmed.status(ENDED, VOTERS, 3, 6))
    many = tuple(Run(Epoch(n, 1), n + 9, n + 9) for n in range(1, MOST_RUNS + 1))
    length = MOST_RUNS + 9
    cut = status(log_epoch=Epoch(9999, 1), epoch=Epoch(9999, 2), length=length, runs=many)
    assert sound(cut), "of a log with more runs its end is told"
    assert not sound(replace(cut, runs=many[1:]))
    most = status(length=MOST_ENTRIES, runs=(Run(OLD, 1, MOST_ENTRIES),))
    assert sound(most)
    assert not sound(replace(most, length=MOST_ENTRIES + 1))


def test_rs_6_a_status_in_one_s_own_name_is_none() -> None:
    """Whoever takes it for its own would send a log that it does not have."""
    copy = of_the_group()
    copy.engine.statuses.clear()
    copy.hear(1, status(boot=5, log_epoch=LATER, length=9, runs=(Run(OLD, 1, 3), Run(LATER, 4, 9))))
    assert copy.engine.refused == {1: 1}
    copy.hear(1, copy.engine.status())
    assert copy.engine.statuses.keys() == {1}


def test_rs_8_what_a_member_lacks_is_sent_once_in_an_attempt() -> None:
    """Each repetition of a few bytes asked for the whole log."""
    copy = of_the_group()
    copy.hear(2, status())
    blank = ReplicaLog().status(ENDED, VOTERS, 3, 6)
    copy.hear(3, blank, blank, replace(blank, boot=7))
    assert len(copy.said(Entries)) == 1
    assert copy.engine.refused == {3: 2}


# --- voters --------------------------------------------------------------------------------


def test_rs_6_the_word_of_one_member_about_voters_ends_nobody() -> None:
    """Members went by the voters that the last speaker named, and halted: founded with [4]."""
    copy = primary()
    again = after(ENDED)
    lie = status(epoch=again, founder=99, voters=(4,), count=1)
    copy.hear(4, Again(ENDED), lie)
    assert not copy.halted
    copy.hear(2, status(epoch=again, log_epoch=ENDED), Ready(again))
    assert copy.phase() is Phase.PRIMARY
    assert copy.engine.log.voters == VOTERS


def test_rs_6_a_voter_that_names_other_voters_of_the_group_ends_nobody() -> None:
    copy = of_the_group()
    copy.hear(3, status(voters=(1, 3, 4)))
    assert (copy.halted, copy.phase()) == ([], Phase.EXCHANGE)
    copy.hear(2, status(), Ready(ENDED))
    assert (copy.engine.log.voters, copy.phase()) == (VOTERS, Phase.PRIMARY)


def test_rs_6_who_was_founded_by_one_is_named_to_those_who_wait_for_three() -> None:
    copy = Copy(members=3)
    copy.view()
    copy.hear(2, status(voters=(2,), count=1))
    text = lacking(copy.engine.status(), copy.engine.statuses, False)
    assert (text, copy.halted) == ("here members is 3, at others (2,)", [])


def test_rs_6_who_founded_alone_is_not_taken_into_another_group() -> None:
    alone = Copy(Adopt(OLD, 7, (1,), 0, (), 0), members=1)
    alone.engine.on_view(VIEW, False)
    alone.hear(4, Status(ENDED, 99, (4,), 1, LATER, 0, 0, 0, (), 6))
    alone.run()
    assert (alone.phase(), alone.engine.log.founder) == (Phase.PRIMARY, 7)
    assert not alone.halted


def test_rs_6_voters_that_a_majority_names_or_ones_own_disk_still_end_a_replica() -> None:
    copy = Copy(members=5)
    copy.view()
    copy.hear(2, status(log_epoch=OLD))
    assert not copy.halted
    copy.hear(3, status(log_epoch=OLD))
    assert copy.halted == ["members = 5, but the group was founded with [1, 2, 3]"]
    alone = Copy(Adopt(OLD, 7, (1,), 0, (), 0))
    alone.view()
    assert alone.halted == ["members = [1, 2, 3], but the group was founded with [1]"]


# --- what others submit --------------------------------------------------------------------


def test_rs_14_a_barrier_or_command_with_another_s_ticket_is_refused() -> None:
    """The one whose ticket it was ended with a KeyError."""
    copy = primary()
    length, ticket = copy.engine.log.length, Ticket(1, 5, 2**40)
    copy.hear(2, Barrier(ticket), Action(ticket, b"x"), Ack(ENDED, length, 1))
    assert copy.engine.refused == {2: 2}
    assert copy.engine.log.length == length
    assert [type(e).__name__ for e in copy.effects if "Passed" in type(e).__name__] == []


def test_rs_10_a_command_that_no_transfer_could_send_is_refused() -> None:
    """Whoever holds the log ended when somebody lacked it."""
    copy = primary()
    length = copy.engine.log.length
    copy.hear(2, Action(Ticket(2, 9, 4), bytes(1001)))
    assert (copy.engine.log.length, copy.engine.refused) == (length, {2: 1})
    copy.hear(2, Action(Ticket(2, 9, 4), bytes(1000)))
    assert copy.engine.log.length == length + 1


def test_rs_10_who_gave_the_transfer_up_is_in_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It did not listen to its own word. Commands without a body count, too."""
    monkeypatch.setattr(engines, "MOST_QUEUED", 1000)
    copy = behind()
    copy.hear(2, status(length=9, runs=(Run(OLD, 1, 9),)), Ready(ENDED))
    copy.hear(3, Ready(ENDED))
    copy.hear(2, *(Action(Ticket(2, 9, n), b"") for n in range(100)))
    assert copy.said(Again) == [Again(ENDED)]
    assert (copy.phase(), copy.engine.epoch) == (Phase.EXCHANGE, after(ENDED))
    copy.view(transitional=True)
    copy.hear(2, Again(after(ENDED)))
    assert copy.phase() is Phase.APART, "a view that ends begins nothing"


# --- transfers -----------------------------------------------------------------------------


def behind(length: int = 100, **more: Any) -> Copy:
    """In an attempt that goes on from 3's log of so many entries, which is said to be later."""
    copy = Copy(*FOUNDED, **more)
    copy.view()
    copy.hear(3, claim(length))
    assert copy.phase() is Phase.TRANSFER
    return copy


def claim(length: int) -> Status:
    runs = (Run(OLD, 1, 3), Run(LATER, 4, length))
    return status(log_epoch=LATER, length=length, runs=runs)


def test_rs_16_a_transfer_that_drips_is_given_up() -> None:
    """Each word, however small, and of a log however long, began the waiting anew."""
    copy = behind(length=MOST_ENTRIES)
    ticks = 0
    while not copy.said(Again):
        copy.hear(3, some(4 + ticks))
        copy.tick()
        ticks += 1
        assert ticks <= GRACE + 1


def test_rs_16_a_transfer_that_brings_nothing_is_given_up() -> None:
    copy = behind()
    copy.tick(PATIENCE - 1)
    assert not copy.said(Again)
    copy.tick()
    assert copy.said(Again) == [Again(ENDED)]


def test_rs_16_a_slow_transfer_of_anything_goes_on() -> None:
    """At those who lack it, and at those who wait for them: the holder began anew every 1.5 s."""
    lacks = behind(length=500, piece=2000)
    holds = Copy(*FOUNDED, piece=2000)
    holds.view()
    holds.hear(2, replace(ReplicaLog().status(ENDED, VOTERS, 3, 6), log_epoch=NEVER))
    holds.hear(3, status())
    assert (holds.phase(), holds.engine.status().length) == (Phase.READY, 3)
    assert holds.engine._decision is not None and holds.engine._decision.holder == 1
    for first in range(4, 300):
        lacks.hear(3, some(first, size=1000))
        if first % 2:
            holds.hear(1, Snapshot(ENDED, 1, 0, bytes(2000), False))
            lacks.tick(PATIENCE - 1)
            holds.tick(PATIENCE - 1)
    assert not lacks.said(Again) and not holds.said(Again)
    assert lacks.engine.epoch == holds.engine.epoch == ENDED


def test_rs_8_more_than_anybody_has_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MOST_BASE", 10_000)
    copy = behind()
    copy.hear(3, *(some(first, size=500) for first in range(4, 24)))
    assert copy.engine._incoming is None
    assert copy.said(Again) == [Again(ENDED)]
    trimmed = Copy(*FOUNDED)
    trimmed.view()
    trimmed.hear(3, status(log_epoch=LATER, length=9, green=9, trimmed=9, runs=()))
    trimmed.hear(3, *(Snapshot(ENDED, 9, 0, b"", False) for _ in range(200)))
    assert trimmed.engine._incoming is None
    assert trimmed.said(Again) == [Again(ENDED)]


@pytest.mark.parametrize(
    "word",
    [
        some(4, 3, epoch=Epoch(3, 1)),
        some(4, 3, epoch=ENDED),
        some(4, 3, size=1001),
        some(4, 4),
        some(5, 2),
    ],
    ids=["epochs_descend", "an_epoch_to_come", "too_large", "too_many", "a_gap"],
)
def test_rs_8_entries_that_cannot_be_of_the_base_are_not_written(word: Entries) -> None:
    """Once on disk, they would make a status of it that nobody takes."""
    copy = behind(length=6)
    copy.hear(3, word)
    assert not copy.written(Adopt)
    assert copy.phase() is Phase.TRANSFER
    copy.tick(PATIENCE)
    assert copy.said(Again) == [Again(ENDED)]
    copy.hear(2, status(epoch=after(ENDED)), Ready(after(ENDED)))
    assert copy.phase() is Phase.PRIMARY


def test_rs_8_the_right_entries_are() -> None:
    copy = behind(length=6)
    copy.hear(2, some(4, 3))
    assert copy.engine.refused == {2: 1}, "it is not the holder"
    copy.hear(3, some(4, 3))
    (adopted,) = copy.written(Adopt)
    assert [each.ticket.number for each in adopted.entries] == [4, 5, 6]
    again = ReplicaLog.replay([*FOUNDED, Promise(ENDED), adopted])
    assert sound(again.status(after(ENDED), VOTERS, 3, 6))


def test_rs_5_nothing_is_taken_over_in_a_view_that_ends() -> None:
    copy = behind(length=6)
    copy.view(transitional=True)
    copy.hear(3, some(4, 3))
    assert copy.phase() is Phase.APART
    assert not copy.written(Adopt)


def test_rs_6_a_log_that_lacks_what_was_confirmed_ends_the_replica_and_nothing_is_written() -> None:
    """Also if it is not applied yet: it ended with an IndexError, behind the end of the log."""
    copy = Copy(*FOUNDED[:3])
    copy.engine.log.green = 2
    copy.view()
    copy.hear(3, status(log_epoch=LATER, length=1, green=0, runs=(Run(OLD, 1, 1),)))
    (why,) = copy.halted
    assert "contradicts what was confirmed before" in why
    assert not copy.written(Adopt)
    assert not [e for e in copy.effects if isinstance(e, Apply)]


# --- what is decoded, and what is replayed ---------------------------------------------------


def test_a_word_with_very_many_entries_is_not_decoded() -> None:
    most = tuple(entry(n, size=0) for n in range(MOST_IN_WORD))
    assert words.decode(words.encode(Entries(ENDED, 1, most)))
    with pytest.raises(msgspec.ValidationError):
        words.decode(words.encode(Entries(ENDED, 1, (*most, entry(1)))))


def test_rs_8_no_replica_says_so_many() -> None:
    log = ReplicaLog.replay(
        [Adopt(OLD, 7, VOTERS, 0, tuple(entry(n, size=0) for n in range(1, 10_000)), 0)]
    )
    base = log.status(ENDED, VOTERS, 3, 6)
    said = pieces(log, base, 0, ENDED, PIECE)
    assert max(len(word.entries) for word in said if isinstance(word, Entries)) <= MOST_IN_WORD
    for word in said:
        assert words.decode(words.encode(word)) == word


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (Append((), LIMIT), "entries 1 to 3, and is confirmed up to entry 9223372036854775807"),
        (Adopt(LATER, 7, VOTERS, 4, (), 0), "entries 1 to 3, and goes on from 4"),
        (Adopt(LATER, 7, VOTERS, 1, (), 0), "entries 1 to 1, and is confirmed up to entry 2"),
        (Adopt(LATER, 7, VOTERS, 5, (), 0, Image(6, b"")), "and goes on from 5"),
        (Adopt(LATER, 7, VOTERS, 3, (entry(4, ENDED),), 0), "its epochs do not ascend"),
        (Append((entry(4, Epoch(3, 1)),), 0), "its epochs do not ascend"),
        (Promise(Epoch(3, 1)), "its epochs do not ascend"),
    ],
)
def test_rs_3_records_that_contradict_each_other(record: Record, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ReplicaLog.replay([*FOUNDED, record])


def test_rs_3_a_log_goes_on_from_no_place_before_its_state() -> None:
    with pytest.raises(ValueError, match="entries 3 to 3, and goes on from 1"):
        ReplicaLog.replay([*FOUNDED, Image(2, b""), Image(1, b"")])
    with pytest.raises(ValueError, match="entries 3 to 3, and goes on from 1"):
        ReplicaLog.replay([*FOUNDED, Image(2, b""), Adopt(LATER, 7, VOTERS, 1, (), 0)])


def test_rs_16_who_waits_for_its_own_disk_gives_no_attempt_up() -> None:
    """The others began anew every 1.5 s as long as it hung; and each time it had another promise to
    write, so that with syncs of 1.5 s it never came to say what it had."""
    copy = Copy(*FOUNDED)
    copy.hangs = []
    copy.view()
    copy.hear(2, status(), Ready(ENDED))
    copy.hear(3, status(), Ready(ENDED))
    assert copy.phase() is Phase.TRANSFER
    copy.tick(100)
    assert not copy.said(Again)
    hung, copy.hangs = copy.hangs, None
    for ticket in hung:
        copy.engine.synced(ticket)
    copy.run()
    assert copy.phase() is Phase.PRIMARY
