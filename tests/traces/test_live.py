"""Files of several members become one trace: order, clocks, killed processes, cuts, damage."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.checks import Verdict, suite
from ringcast.core.ids import Level, ViewId
from ringcast.core.to_some import SubmittedTo
from ringcast.core.trace import (
    Crashed,
    Delivered,
    Ended,
    Faulted,
    Noted,
    Originated,
    Restarted,
    Submit,
    TraceEvent,
)
from ringcast.runtime.tracelog import TraceLog
from ringcast.traces import Claims, TraceError, live
from ringcast.traces.live import late_clocks, live_claims, read_live
from ringcast.traces.text import parse

STORY = """
ring(8,1){1,2,3}
p1: o1 o2s d1
p2: d1 o3
p3: d1 d2 d3
p1: d2 d3
p2: d2 d3
p1: down
p2: down
p3: down
end
"""
EVENTS = list(parse(STORY))


def record(
    folder: Path, node: int, boot: int, events: Iterable[TraceEvent], back_us: int = 0
) -> None:
    """Write a member's file as its process would, with its clock set back."""
    log = TraceLog(folder, node, boot)
    for event in events:
        log(msgspec.structs.replace(event, t_us=event.t_us - back_us))
    log.close()


def record_all(folder: Path, back_us: dict[int, int]) -> None:
    for node in (1, 2, 3):
        mine = [event for event in EVENTS if getattr(event, "node", 0) == node]
        record(folder, node, 1, mine, back_us.get(node, 0))


def test_one_clock_gives_back_the_trace(tmp_path: Path) -> None:
    record_all(tmp_path, {})
    assert list(read_live([tmp_path]))[:-1] == EVENTS[:-1]


@given(st.dictionaries(st.sampled_from([1, 2, 3]), st.integers(-(10**9), 10**9)))
def test_clocks_that_disagree_change_no_verdict(
    tmp_path_factory: pytest.TempPathFactory, back_us: dict[int, int]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    record_all(folder, back_us)
    checks = suite(["D1", "D3", "D9", "D12", "total-order", "fifo", "causal"])
    originated = set()
    count = 0
    for event in read_live([folder]):
        checks.feed(event)
        count += 1
        if isinstance(event, Originated):
            originated.add((event.ring, event.seq))
        if isinstance(event, Delivered):
            assert (event.ring, event.seq) in originated
    assert count == len(EVENTS)
    assert checks.violations == []


def test_messages_say_how_late_a_clock_is(tmp_path: Path) -> None:
    record_all(tmp_path, {3: 1_000_000})
    late = {path.stem: us for path, us in late_clocks(sorted(tmp_path.iterdir())).items()}
    assert late["1-1"] == late["2-1"] == 0
    assert 1_000_000 - 10 <= late["3-1"] < 1_000_000


def test_who_knows_a_place_before_the_sender_does_is_not_late(tmp_path: Path) -> None:
    """Members that vote on the order: each may deliver the other's message before the other."""
    ring = ViewId(1, 1)
    for node, other in ((1, 2), (2, 1)):
        record(
            tmp_path,
            node,
            1,
            [
                Restarted(node, 1, 90, 1),
                Submit(node, 2, 100, 1, 1, Level.AGREED, (1, 1), (6, 6)),
                Delivered(node, 3, 5_000, ring, ring, other, other, Level.AGREED, 2, (6,)),
                Originated(node, 4, 9_000, ring, node, Level.AGREED, 2, (6,)),
            ],
        )
    assert set(late_clocks(tmp_path.iterdir()).values()) == {0}


RING = ViewId(1, 1)


def record_lives(folder: Path, *lives: tuple[int, tuple[int, ...]], early_us: int = 0) -> None:
    """Processor 1 sends a message to 2 in each life, which begins then, with these contents; both
    had lost their storage. 2 delivers it early, by its clock."""
    for boot, (t_us, told) in enumerate(lives, 1):
        sizes = (1,) * len(told)
        sent: list[TraceEvent] = [
            Restarted(1, 1, t_us, 1),
            Submit(1, 2, t_us + 10, 1, 1, Level.AGREED, sizes, told),
            Originated(1, 3, t_us + 500, RING, 7, Level.AGREED, 1, told),
            Delivered(1, 4, t_us + 600, RING, RING, 7, 1, Level.AGREED, 1, told),
        ]
        at_us = t_us + 600 - early_us
        got: list[TraceEvent] = [
            Restarted(2, 1, t_us, 1),
            Delivered(2, 2, at_us, RING, RING, 7, 1, Level.AGREED, 1, told),
        ]
        record(folder, 1, boot, sent)
        record(folder, 2, boot, got)


@pytest.mark.parametrize("again", [(6,), (5,), (6, 6)], ids=["the same", "another", "longer"])
@pytest.mark.parametrize("first", [1, 2])
def test_a_place_that_is_given_again_puts_no_clock_forward(
    first: int, again: tuple[int, ...], tmp_path: Path
) -> None:
    """Members that lost their storage count rings and places anew. Whose logs come first must not
    matter: the earlier life was put forward to the later one, as if its clocks were late."""
    record_lives(tmp_path, (1_000, (6,)), (20_000_000, again))
    paths = sorted(tmp_path.iterdir(), key=lambda path: path.stem)
    assert set(late_clocks(paths if first == 1 else paths[::-1]).values()) == {0}


def test_a_late_clock_is_found_though_places_are_given_again(tmp_path: Path) -> None:
    record_lives(tmp_path, (10_000_000, (6,)), (30_000_000, (6,)), early_us=5_000)
    late = {path.stem: us for path, us in late_clocks(tmp_path.iterdir()).items()}
    assert late == {"1-1": 0, "1-2": 0, "2-1": 4_410, "2-2": 4_410}


def test_a_late_clock_is_not_compared_with_another_message_of_the_place(tmp_path: Path) -> None:
    """By its clock 2 delivers the second message nearer to the first one."""
    record_lives(tmp_path, (10_000_000, (5,)), (20_000_000, (6,)), early_us=9_000_000)
    late = {path.stem: us for path, us in late_clocks(tmp_path.iterdir()).items()}
    assert late == {"1-1": 0, "1-2": 0, "2-1": 8_999_410, "2-2": 8_999_410}


@pytest.mark.parametrize("again", [(6,), (5,)], ids=["the same", "another"])
def test_a_delivery_waits_for_the_origination_of_its_own_life(
    again: tuple[int, ...], tmp_path: Path
) -> None:
    """The clock is late by less than messages waited to be sent, so nothing shows it."""
    record_lives(tmp_path, (1_000, (6,)), (20_000_000, again), early_us=200)
    told = [event for event in read_live([tmp_path]) if isinstance(event, Originated | Delivered)]
    kinds = [(type(event), event.node) for event in told]
    assert kinds == [(Originated, 1), (Delivered, 2), (Delivered, 1)] * 2


def test_a_killed_process_has_crashed_by_its_next_start(tmp_path: Path) -> None:
    record(tmp_path, 1, 90, [Restarted(1, 1, 100, 1)])
    record(tmp_path, 1, 100, [Restarted(1, 9, 200, 2), Crashed(1, 10, 210, "closed")])
    record(tmp_path, 1, 101, [Restarted(1, 20, 300, 3)])
    assert list(read_live([tmp_path])) == [
        Restarted(1, 1, 100, 1),
        Crashed(1, 2, 100, "not told"),
        Restarted(1, 9, 200, 2),
        Crashed(1, 10, 210, "closed"),
        Restarted(1, 20, 300, 3),
    ]


def test_lives_and_events_are_counted_on_after_storage_was_lost(tmp_path: Path) -> None:
    """Otherwise two lives of a processor would be told as one, its events mixed by number."""

    def life(t_us: int, incarnation: int, n: int) -> list[TraceEvent]:
        return [
            Restarted(1, n, t_us, incarnation),
            Submit(1, n + 1, t_us + 1, incarnation, 1, Level.AGREED, (4,), (7,)),
            SubmittedTo((1, 2), incarnation, 2, Level.AGREED, (8,)).noted(1, n + 2, t_us + 2),
        ]

    record(tmp_path, 1, 90, life(100, 1, 1))
    record(tmp_path, 1, 91, life(200, 2, 50))
    record(tmp_path, 1, 92, life(300, 1, 1))
    record(tmp_path, 1, 93, life(400, 2, 50))
    told = list(read_live([tmp_path]))
    starts = [event for event in told if isinstance(event, Restarted)]
    assert [(e.t_us, e.incarnation, e.storage_kept) for e in starts] == [
        (100, 1, True),
        (200, 2, True),
        (300, 3, False),
        (400, 4, True),
    ]
    assert [e.incarnation for e in told if isinstance(e, Submit)] == [1, 2, 3, 4]
    some = [SubmittedTo.read(e) for e in told if isinstance(e, Noted)]
    assert [each.incarnation for each in some if each] == [1, 2, 3, 4]
    numbers = [event.n for event in told if not isinstance(event, Ended)]
    assert numbers == sorted(set(numbers))


def test_what_comes_after_the_cut_is_left_out(tmp_path: Path) -> None:
    record(tmp_path, 1, 1, [Restarted(1, 1, 100, 1), Crashed(1, 2, 200, "closed")])
    assert list(read_live([tmp_path], (1,), 150)) == [Restarted(1, 1, 100, 1), Ended(150, (1,))]


def test_a_delivery_that_nobody_originated_comes_last(tmp_path: Path) -> None:
    events = [event for event in EVENTS if not (isinstance(event, Originated) and event.seq == 1)]
    for node in (1, 2, 3):
        own = [e for e in events if not isinstance(e, Ended) and e.node == node]
        record(
            tmp_path,
            node,
            1,
            [msgspec.structs.replace(event, n=n) for n, event in enumerate(own, 1)],
        )
    checks = suite(["D1"])
    for event in read_live([tmp_path], (1, 2, 3)):
        checks.feed(event)
    assert [violation.property for violation in checks.violations] == ["D1"]


@pytest.mark.parametrize("lost", [slice(5, 6), slice(20, 60), slice(119, 120)])
def test_a_log_with_records_taken_out_is_damaged(lost: slice, tmp_path: Path) -> None:
    """Whatever they told, and though the last word is there."""
    events = list(parse(LONG))
    for node in (1, 2):
        own = [e for e in events if not isinstance(e, Ended) and e.node == node]
        if node == 1:
            del own[lost]
        record(tmp_path, node, 1, own)
    with pytest.raises(
        TraceError, match=r"1-1\.trace is damaged at byte \d+: event \d+ follows event"
    ):
        list(read_live([tmp_path], (1, 2)))


def test_a_record_that_is_told_twice_is_damage(tmp_path: Path) -> None:
    own = [e for e in parse(LONG) if not isinstance(e, Ended) and e.node == 1]
    record(tmp_path, 1, 1, [*own, own[-1]])
    with pytest.raises(TraceError, match="records were removed or repeated"):
        list(read_live([tmp_path], (1,)))


@pytest.mark.parametrize("lost", [1, 10, 120])
def test_a_log_that_does_not_begin_with_a_start_is_damaged(lost: int, tmp_path: Path) -> None:
    """What is left is numbered without a gap, and has its last word."""
    for node in (1, 2):
        own = [e for e in parse(LONG) if not isinstance(e, Ended) and e.node == node]
        record(tmp_path, node, 1, own[lost:] if node == 1 else own)
    with pytest.raises(
        TraceError,
        match=rf"1-1\.trace is damaged at byte \d+: begins with event {lost + 1} .*removed",
    ):
        list(read_live([tmp_path], (1, 2)))


def test_a_log_without_events_is_no_damage(tmp_path: Path) -> None:
    """Of a process that was killed as soon as it had said what it claims."""
    record(tmp_path, 1, 1, [])
    assert list(read_live([tmp_path])) == []


def test_the_log_of_the_world_tells_of_everybody(tmp_path: Path) -> None:
    """Of a crash, too, which the process itself could not write down."""
    faults = [Faulted(node, n, 10 * n, "pause") for n, node in enumerate((0, 2, 1), 1)]
    crashes = [Crashed(2, 9, 40), Crashed(1, 7, 50)]
    record(tmp_path, 0, 1, [*faults, *crashes])
    assert list(read_live([tmp_path]))[:-1] == [*faults, *crashes]


@pytest.mark.parametrize(
    "names", [{1: 2, 2: 1}, {2: 4}, {1: 0}], ids=["exchanged", "copied", "as the world's"]
)
def test_a_log_that_is_called_after_another_processor_is_named(
    names: dict[int, int], tmp_path: Path
) -> None:
    """Two that were exchanged passed, and one that was copied gave an error in a file that nobody
    knew of."""
    record_all(tmp_path, {})
    data = {node: (tmp_path / f"{node}-1.trace").read_bytes() for node in names}
    for node, name in names.items():
        (tmp_path / f"{name}-1.trace").write_bytes(data[node])
    wrong = {name: node for node, name in names.items()}
    name = min(wrong)
    with pytest.raises(
        TraceError,
        match=rf"{name}-1\.trace tells of processor {wrong[name]} .* processor {name};",
    ):
        list(read_live([tmp_path]))


def test_files_that_are_no_traces_are_named(tmp_path: Path) -> None:
    (tmp_path / "notes.trace").write_bytes(b"")
    with pytest.raises(TraceError, match=r"is not called <node>-<boot>\.trace"):
        list(read_live([tmp_path]))
    (tmp_path / "notes.trace").rename(tmp_path / "1-1.trace")
    (tmp_path / "1-1.trace").write_bytes((3).to_bytes(4, "big") + b"abc")
    with pytest.raises(TraceError, match=r"1-1\.trace is no log of this version of ringcast"):
        list(read_live([tmp_path]))


CRASHED = msgspec.msgpack.encode(Crashed(1, 1, 5, "killed"))
NO_TEXT = CRASHED.replace(b"killed", b"k\xfflled")
TOO_DEEP = b"\x81\xa1x" + b"\x91" * 5000
"""A table with a list in a list in a list, and so on."""


@pytest.mark.parametrize("content", [NO_TEXT, TOO_DEEP], ids=["no text", "too deep"])
def test_a_record_whose_checksum_is_right_may_be_damaged(content: bytes, tmp_path: Path) -> None:
    """Reading it ended in UnicodeDecodeError or RecursionError."""
    data = live.MAGIC + live.record(msgspec.msgpack.encode(None)) + live.record(content)
    (tmp_path / "1-1.trace").write_bytes(data)
    with pytest.raises(TraceError, match=r"1-1\.trace is damaged at byte"):
        list(read_live([tmp_path]))


@pytest.mark.parametrize(
    "content", [b"\x81\xa4tags\x91\xa2\xff\xfe", TOO_DEEP], ids=["text", "deep"]
)
def test_claims_whose_checksum_is_right_may_be_damaged(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "1-1.trace").write_bytes(live.MAGIC + live.record(content))
    with pytest.raises(TraceError, match=r"1-1\.trace: what it says of claims cannot be read"):
        live_claims([tmp_path])


LONG = "ring(8,1){1,2}\np1: o1-60 d1-60 down\np2: d1-60 down"


@pytest.mark.parametrize("lost", [0, 1, 2, 51])
def test_a_log_that_stops_before_the_others_leaves_no_end(lost: int, tmp_path: Path) -> None:
    """Fifty deliveries and its last word are missing at one member, or the last word alone: nobody
    can tell what else is."""
    events = list(parse(LONG))
    for node in (1, 2):
        own = [e for e in events if getattr(e, "node", 0) == node]
        record(tmp_path, node, 1, own[: len(own) - (lost if node == 2 else 0)])
    checks = suite(["D2", "D4", "D9"])
    for event in read_live([tmp_path]):
        checks.feed(event)
    assert set(checks.verdicts().values()) == {Verdict.UNKNOWN if lost else Verdict.VALID}


def test_who_was_left_behind_is_no_log_that_stops(tmp_path: Path) -> None:
    """The others have gone on to another ring without it."""
    story = "ring(8,1){1,2}\np1: o1-9 d1-9\np2: d1-3\nring(12,1){1}\np1: o1 d1 down"
    for node in (1, 2):
        record(tmp_path, node, 1, [e for e in parse(story) if getattr(e, "node", 0) == node])
    assert isinstance(list(read_live([tmp_path]))[-1], Ended)


def test_logs_say_what_they_claim(tmp_path: Path) -> None:
    for node in (1, 2):
        TraceLog(tmp_path, node, 1, Claims(("D2",))).close()
    TraceLog(tmp_path, 0, 1).close()  # of the world
    assert live_claims([tmp_path]) == Claims(("D2",))
    TraceLog(tmp_path, 3, 1).close()
    assert live_claims([tmp_path]) is None
    (tmp_path / "3-1.trace").unlink()
    TraceLog(tmp_path, 3, 1, Claims(("D9",))).close()
    with pytest.raises(TraceError, match=r"3-1\.trace: claims other properties than .*1-1\.trace"):
        live_claims([tmp_path])
