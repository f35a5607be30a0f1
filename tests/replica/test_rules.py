"""Rules of docs/replication.md that a few statuses show: who decides, and what goes on."""

from __future__ import annotations

from ringcast.replica.exchange import IncomingBase, decide, lacking, misfit, pieces
from ringcast.replica.log import Adopt, Append, Image, Promise, Record, ReplicaLog, common
from ringcast.replica.words import NEVER, Entries, Epoch, LogEntry, Run, Snapshot, Status, Ticket

NOW = Epoch(12, 1)
OLD, NEW = Epoch(4, 1), Epoch(8, 2)
VOTERS = (1, 2, 3)


def status(log_epoch: Epoch = NEVER, length: int = 0, boot: int = 1, green: int = 0) -> Status:
    """What a member says; with an epoch, of a group that was founded."""
    founder = 7 if log_epoch > NEVER else 0
    runs = (Run(log_epoch, 1, length),) if length else ()
    return Status(NOW, founder, VOTERS, 3, log_epoch, length, green, 0, runs, boot)


def entry(epoch: Epoch, number: int) -> LogEntry:
    return LogEntry(epoch, Ticket(1, 1, number), b"%d" % number)


def test_rs_6_the_log_of_the_latest_epoch_goes_on_however_short_it_is() -> None:
    said = {1: status(OLD, 10), 2: status(NEW, 3)}
    decision = decide(said, said[2], VOTERS, 3)
    assert decision is not None
    assert (decision.holder, decision.founder) == (2, 7)


def test_rs_6_of_logs_of_one_epoch_the_longest_goes_on() -> None:
    said = {1: status(NEW, 3), 3: status(NEW, 5)}
    decision = decide(said, said[3], VOTERS, 3)
    assert decision is not None and decision.holder == 3


def test_rs_6_less_than_a_majority_decides_nothing() -> None:
    said = {1: status(NEW, 3)}
    assert decide(said, said[1], VOTERS, 3) is None


def test_rs_2_a_blank_disk_takes_part_in_no_quorum() -> None:
    said = {1: status(NEW, 3), 2: status()}
    assert decide(said, said[2], VOTERS, 3) is None
    said[3] = status()
    assert decide(said, said[3], VOTERS, 3) is None  # all are there, but one has entries


def test_rs_2_a_group_is_founded_by_all_its_voters_with_nothing_on_disk() -> None:
    said = {1: status(boot=5), 2: status(boot=6)}
    assert decide(said, said[2], VOTERS, 3) is None
    said[3] = status(boot=7)
    decision = decide(said, said[3], VOTERS, 3)
    assert decision is not None and decision.voters == VOTERS
    said[3] = status(boot=8)
    other = decide(said, said[3], VOTERS, 3)
    assert other is not None and other.founder != decision.founder


def test_rs_2_a_founding_that_was_interrupted_begins_anew() -> None:
    said = {1: status(OLD, 0), 2: status(), 3: status()}
    assert decide(said, said[3], VOTERS, 3) is not None


def test_rs_2_those_who_found_a_group_were_configured_alike() -> None:
    """Or each would count by voters of its own: here 1 and 4 by theirs, and 2 and 3 by others."""
    blank = {"founder": 0, "log_epoch": NEVER, "length": 0, "green": 0, "trimmed": 0, "runs": ()}
    number = {n: Status(NOW, voters=(), count=3, boot=n, **blank) for n in (1, 4)}  # type: ignore[arg-type]
    names = {n: Status(NOW, voters=VOTERS, count=3, boot=n, **blank) for n in (2, 3)}  # type: ignore[arg-type]
    said = {1: number[1], 4: number[4], 2: names[2], 3: names[3]}
    for upto in range(1, 5):
        heard = dict(list(said.items())[:upto])
        last = list(heard.values())[-1]
        assert decide(heard, last, (), 3) is None
        assert decide(heard, last, VOTERS, 3) is None
    assert lacking(number[1], said, False) == "here members is 3, at others (1, 2, 3)"
    assert lacking(names[2], said, False) == "here members is (1, 2, 3), at others 3"


def test_what_is_lacking_with_blank_disks() -> None:
    """Nobody else tells a user why two of three do not go on."""
    said = {1: status(NEW, 3), 3: status()}
    for mine in said.values():
        text = lacking(mine, said, False)
        assert text.endswith("[1, 2, 3], and has [1, 3], where the disks of [3] are blank")


def test_rs_6_other_members_or_another_group_stop_the_replica() -> None:
    said = {1: status(NEW, 3), 2: status(NEW, 3)}
    decision = decide(said, said[2], (1, 2, 4), 3)
    assert decision is not None
    assert "founded with [1, 2, 3]" in misfit(decision, ReplicaLog(), (1, 2, 4), 3)
    assert "founded with [1, 2, 3]" in misfit(decision, ReplicaLog(), (), 5)
    strange = ReplicaLog.replay([Adopt(OLD, 99, VOTERS, 0, (entry(OLD, 1),), 0)])
    assert "another group" in misfit(decision, strange, VOTERS, 3)
    assert misfit(decision, ReplicaLog(), VOTERS, 3) == ""


def test_rs_7_logs_are_one_up_to_the_last_entry_they_share() -> None:
    mine = Status(NOW, 7, VOTERS, 3, OLD, 9, 2, 0, (Run(OLD, 1, 9),), 1)
    base = Status(NOW, 7, VOTERS, 3, NEW, 8, 5, 0, (Run(OLD, 1, 6), Run(NEW, 7, 8)), 1)
    assert common(mine, base) == 6
    apart = Status(NOW, 7, VOTERS, 3, NEW, 8, 2, 0, (Run(NEW, 1, 8),), 1)
    assert common(mine, apart) == 2  # what is green is in every base


def test_rs_3_a_disk_tells_what_was_promised_up_to_any_of_its_records() -> None:
    records: list[Record] = [
        Promise(OLD),
        Adopt(OLD, 7, VOTERS, 0, (), 0),
        Append((entry(OLD, 1), entry(OLD, 2)), 0),
        Promise(NEW),
        Adopt(NEW, 7, VOTERS, 1, (entry(NEW, 9),), 1),
    ]
    lengths = [ReplicaLog.replay(records[:upto]).length for upto in range(len(records) + 1)]
    assert lengths == [0, 0, 0, 2, 2, 2]
    log = ReplicaLog.replay(records)
    assert (log.epoch, log.promised, log.green) == (NEW, NEW, 1)
    assert [each.command for each in log.entries] == [b"1", b"9"]


def test_rs_8_what_is_lacking_comes_in_pieces_the_state_first() -> None:
    log = ReplicaLog.replay(
        [
            Adopt(NEW, 7, VOTERS, 0, tuple(entry(NEW, n) for n in range(1, 9)), 5),
            Image(4, b"a state of some length"),
        ]
    )
    base = Status(NOW, 7, VOTERS, 3, NEW, 8, 5, 4, log.runs(), 1)
    behind = status(OLD, 2, green=1)
    words = pieces(log, base, common(behind, base), NOW, size=40)
    incoming = IncomingBase(behind, base)
    for word in words:
        assert not incoming.complete
        if isinstance(word, Snapshot):
            incoming.on_snapshot(word)
        elif isinstance(word, Entries):
            incoming.on_entries(word)
    assert incoming.complete and incoming.keep == 4
    assert incoming.image == Image(4, b"a state of some length")
    assert [each.command for each in incoming.entries] == [b"5", b"6", b"7", b"8"]


def test_rs_8_a_state_with_a_piece_missing_is_none() -> None:
    base = Status(NOW, 7, VOTERS, 3, NEW, 4, 4, 4, (), 1)
    incoming = IncomingBase(status(), base)
    for offset, body, last in ((0, b"one", False), (6, b"three", True), (3, b"two", False)):
        incoming.on_snapshot(Snapshot(NOW, 4, offset, body, last))
    assert not incoming.complete
    incoming.on_snapshot(Snapshot(NOW, 4, 6, b"three", True))
    assert incoming.complete and incoming.image == Image(4, b"onetwothree")


def test_rs_15_a_compacted_log_says_the_same() -> None:
    log = ReplicaLog.replay(
        [
            Promise(NEW),
            Adopt(NEW, 7, VOTERS, 0, tuple(entry(NEW, n) for n in range(1, 6)), 3),
            Image(3, b"state"),
        ]
    )
    again = ReplicaLog.replay(log.records())
    assert vars(again) == vars(log)
