"""Messages are kept as they came: where their bodies lie, and what is done about other ones."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from histories import HISTORY, RING, entry, kept, write
from hypothesis import given
from hypothesis import strategies as st

from ringcast.core.ids import LAST_INDEX, Level, Position
from ringcast.journal.format import layout
from ringcast.journal.format.frame import KINDS, NameTable, Range, row_type
from ringcast.journal.format.layout import GAP, MESSAGE, VIEW, Entry, JournalError
from ringcast.journal.format.message import digest, message, room
from ringcast.journal.format.records import cut, records
from ringcast.journal.merged_reader import MergedReader, whole
from ringcast.journal.service import Records, from_records, to_records
from ringcast.journal.writer import Limits
from ringcast.wire import envelope
from ringcast.wire.envelope import Data

SIZES = st.sampled_from([0, 1, 2, 31, 32, 255, 256, 257, 65_535, 65_536, 70_000])
"""On both sides of where a head becomes longer."""

GROUPS = st.sampled_from(["g", "a" * 31, "b" * 32, "c" * 64, "\N{SNOWMAN}" * 64])


def came(group: str, bodies: tuple[bytes, ...], data: bytes, seq: int = 1) -> Entry:
    """Messages as a node delivers them."""
    lengths = array("i", map(len, bodies))
    first, level = Position(0, 8, 1, seq, 0), Level.AGREED
    return Entry(first, RING, MESSAGE, 1, level, group, (), lengths, data, digest(data), seq)


@given(st.lists(st.tuples(GROUPS, st.lists(SIZES, min_size=1, max_size=20)), min_size=1))
def test_bodies_are_found_in_what_travelled(sent: list[tuple[str, list[int]]]) -> None:
    some = []
    for seq, (group, sizes) in enumerate(sent, 1):
        bodies = tuple(bytes([65 + n % 26]) * size for n, size in enumerate(sizes))
        data = envelope.encode(Data(group, bodies))
        assert data == message(group, bodies), "there is one way to write it"
        some.append(came(group, bodies, data, seq))
    rows = records(kept(some)).to_pylist()
    assert [(row["group"], len(row["body"])) for row in rows] == [
        (group, size) for group, sizes in sent for size in sizes
    ]
    assert [row["body"][:1] for row in rows if row["body"]] == [
        bytes([65 + n % 26]) for _, sizes in sent for n, size in enumerate(sizes) if size
    ]
    assert all(len(set(row["body"])) <= 1 for row in rows), "no byte of anything else"


def test_many_bodies_have_a_longer_head() -> None:
    bodies = tuple(b"%d" % n for n in range(70_000))
    for count in (15, 16, 65_535, 65_536, 70_000):
        some = [came("g", bodies[:count], message("g", bodies[:count]))]
        assert tuple(records(kept(some)).column("body").to_pylist()) == bodies[:count]


@pytest.mark.parametrize(
    "data",
    [
        b"\x93\x01\xa1g\x92\xc5\x00\x02ab\xc4\x01c",  # a head of 3 bytes where 2 would do
        b"\x93\x01\xa1g\x92\xc4\x02ab\xc6\x00\x00\x00\x01c",
        b"\x93\x01\xa1g\xdc\x00\x02\xc4\x02ab\xc4\x01c",
        b"\x93\x01\xd9\x01g\x92\xc4\x02ab\xc4\x01c",
        b"\xdc\x00\x03\x01\xa1g\x92\xc4\x02ab\xc4\x01c",
        b"\x93\xcc\x01\xa1g\x92\xc4\x02ab\xc4\x01c",
    ],
)
def test_a_message_that_is_written_longer_is_kept_as_all_others(data: bytes) -> None:
    word = envelope.decode(data)
    assert isinstance(word, Data) and word.bodies == (b"ab", b"c")
    frame = kept([came("g", word.bodies, data), entry(2, b"next")])
    assert records(frame).column("body").to_pylist() == [b"ab", b"c", b"next"]
    assert frame.whole
    assert frame.values() == kept([came("g", word.bodies, message("g", word.bodies)),
                                  entry(2, b"next")]).values()  # fmt: skip


def test_journals_of_two_groups_are_not_merged(tmp_path: Path) -> None:
    write(tmp_path / "1", HISTORY, [3, 9, 20])
    theirs = [
        each if each.kind != MESSAGE else came("g", (b"other",) * len(each.lengths),
            message("g", (b"other",) * len(each.lengths)))._replace(first=each.first)
        for each in HISTORY
    ]  # fmt: skip
    write(tmp_path / "2", theirs, [5, 11])
    with pytest.raises(JournalError, match="different records; name journals of one group"):
        list(whole([tmp_path / "1", tmp_path / "2"]))


def answer() -> Records:
    return to_records(7, kept(HISTORY[:6]))


def test_entries_are_told_and_heard() -> None:
    frame = kept(HISTORY[:6])
    assert from_records(answer()).values() == frame.values()
    for start in range(6):
        for end in range(start + 1, 7):
            part = from_records(to_records(7, frame.part(start, end)))
            assert part.values() == frame.values()[start:end]
            assert (part.first, part.last) == (HISTORY[start].first, HISTORY[end - 1].last)


@given(st.lists(SIZES, min_size=1, max_size=30), SIZES)
def test_parts_are_as_small_as_messages_allow(sizes: list[int], most: int) -> None:
    """Also where the large ones lie together: a frame that is too long would be refused."""
    frame = kept([entry(seq, bytes(size)) for seq, size in enumerate(sizes, 1)])
    parts = list(frame.parts(most))
    assert [place for part in parts for place in part.firsts] == frame.firsts
    assert all(part.size <= most or len(part) == 1 for part in parts)


def test_parts_have_their_own_names_alone() -> None:
    """Of a turn of a busy node there are very many, and all parts of it had all of them."""
    some = [
        layout.entry(
            *(Position(0, 8, 1, seq, 0), RING, kind, sender, Level.AGREED),
            *(group, who, (b"",), 5, source),
        )
        for seq, (kind, sender, group, who, source) in enumerate(
            [
                (MESSAGE, 3, "a", (), ("w", 1, 0)),
                (VIEW, 0, "", (1, 2, 3), None),
                (MESSAGE, 3, "b", (), None),
                (MESSAGE, 3, "a", (), ("w", 2, 0)),
                (VIEW, 0, "", (1, 2), None),
                (MESSAGE, 3, "c", (), ("v", 1, 7)),
            ],
            1,
        )
    ]
    frame = kept(some)
    parts = [from_records(to_records(7, part)) for part in frame.parts(1)]
    assert [number for part in parts for number in part.values()] == frame.values()
    assert [(each.names.groups, each.names.members, each.names.sources) for each in parts] == [
        (["a"], [], [("w", 1, 0)]),
        ([""], [(1, 2, 3)], []),
        (["b"], [], []),
        (["a"], [], [("w", 2, 0)]),
        ([""], [(1, 2)], []),
        (["c"], [], [("v", 1, 7)]),
    ]
    (whole,) = frame.parts(2**20)
    assert records(whole).equals(records(frame))


@given(st.integers(0, 2000), st.integers(1, 255), st.sampled_from(["section", "data"]))
def test_of_altered_entries_none_is_taken_for_another_one(at: int, flip: int, part: str) -> None:
    told_ = answer()
    data = bytearray(getattr(told_, part))
    data[at % len(data)] ^= flip
    try:
        found = from_records(msgspec.structs.replace(told_, **{part: bytes(data)}))
    except JournalError:
        return
    records(found)  # what it says may differ, but not where it lies
    cut(Range(found.first, found.last), found)


@pytest.mark.parametrize(
    "change",
    [
        {"entries": 5},
        {"entries": 7},
        {"entries": 0},
        {"entries": -1},
        {"rows": 3},
        {"rows": -1},
        {"rows": 2**31},
        {"section": b""},
        {"data": b""},
        {"data": answer().data + b"x"},
    ],
)
def test_what_is_no_frame_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(JournalError, match="not records of a journal"):
        from_records(msgspec.structs.replace(answer(), **change))


ONE = message("g", (b"a", b"b"))
ROW = {"ring_seq": 8, "ring_rep": 1, "seq": 1, "view_seq": 8, "view_rep": 1, "sender": 2,
       "count": 2, "size": len(ONE), "digest": digest(ONE)}  # fmt: skip


def made_up(
    rows: list[dict[str, int]], lengths: list[int], data: bytes, *sources: Any, group: str = "g"
) -> Records:
    """What a program says that has the key and its own mind."""
    table = np.zeros(len(rows), row_type())
    for at, row in enumerate(rows):
        for name, number in row.items():
            table[at][name] = number
    names = msgspec.msgpack.encode(([group], [], sources))
    section = table.tobytes() + np.array(lengths, np.int32).tobytes() + names
    return Records(1, len(rows), len(lengths), section, data)


def test_what_is_made_up_may_be_right() -> None:
    rows = [ROW, {**ROW, "index": 2, "note": 1}]
    assert len(from_records(made_up(rows, [1] * 4, ONE * 2, ("s", 1, 2)))) == 2


OUT_OF_RANGE = [
    ("time", -1), ("time", 2**62), ("timestamp", -1), ("ring_seq", -1), ("ring_rep", -1),
    ("seq", -2), ("branch", -2), ("view_seq", -1), ("view_rep", 0), ("view_rep", 2**32),
    ("sender", 0), ("sender", -1), ("sender", 2**32),
]  # fmt: skip
"""What a member told was kept: trimmed.json then named a view that nobody can read, and the journal
could not be opened again."""


@pytest.mark.parametrize(
    "rows",
    [
        [{**ROW, "index": LAST_INDEX}],  # the second record has a place that is none
        [{**ROW, "index": -5}],
        [{**ROW, "seq": 5}, {**ROW, "seq": 2}],
        [ROW, {**ROW, "index": 1}],  # which the first one has, too
        [{**ROW, "kind": KINDS.index(VIEW)}],
        [{**ROW, "kind": KINDS.index(GAP)}],
        [ROW, {**ROW, "seq": 2, "index": -1}],
        *([{**ROW, name: number}] for name, number in OUT_OF_RANGE),
    ],
)
def test_entries_that_cannot_be_are_refused(rows: list[dict[str, int]]) -> None:
    with pytest.raises(JournalError, match="not records of a journal"):
        from_records(made_up(rows, [1, 1] * len(rows), ONE * len(rows)))


def test_lengths_do_not_reach_beyond_what_there_is() -> None:
    """A length so large that a sum of 32 bits is negative, and others that make up for it."""
    data, most, many = bytes(100), 2**31 - 1, 70
    less = most + 5 + 4 - 2**32  # what 32 bits make of it, with the group
    lengths = [(len(data) - less - 6) // many - 5] * many
    lengths[-1] += len(data) - less - int(room(["g"], np.array([many]), np.array(lengths))[0])
    rows = [
        {**ROW, "count": 1, "size": less, "digest": digest(b"")},
        {**ROW, "seq": 2, "count": many, "size": len(data) - less, "digest": digest(data)},
    ]
    with pytest.raises(JournalError, match="not records of a journal"):
        from_records(made_up(rows, [most, *lengths], data))


def test_of_records_only_messages_have_a_sender_and_a_group() -> None:
    one = {**ROW, "kind": KINDS.index(VIEW), "sender": 0, "count": 1}
    for sender, group, right in ((0, "", True), (2, "", False), (0, "g", False)):
        data = message(group, (b"",))
        row = {**one, "sender": sender, "size": len(data), "digest": digest(data)}
        told = made_up([row], [0], data, group=group)
        if right:
            assert len(from_records(told)) == 1
        else:
            with pytest.raises(JournalError, match="not records of a journal"):
                from_records(told)


@pytest.mark.parametrize("group", ["", "g" * 65])
def test_a_group_has_a_name_that_a_word_can_hold(group: str) -> None:
    data = message(group, (b"a", b"b"))
    row = {**ROW, "size": len(data), "digest": digest(data)}
    with pytest.raises(JournalError, match="not records of a journal"):
        from_records(made_up([row], [1, 1], data, group=group))


@pytest.mark.parametrize(
    "source",
    [
        ("s", 2**63, 0),
        ("s", 0, 2**63 - 1),
        ("s", -1, 0),
        ("s", 0, 2**62),  # it has a number, and the row behind it has none
        ("", 0, 0),
        ("s" * 65, 0, 0),
    ],
)
def test_rows_are_numbered_as_columns_can_hold(source: tuple[str, int, int]) -> None:
    """Else a writer could make a journal that nobody can read, and a member that tells of such rows
    could keep whoever takes them from ever saying its groups."""
    with pytest.raises(JournalError, match="not records of a journal"):
        from_records(made_up([{**ROW, "note": 1}], [1, 1], ONE, source))
    stream, batch, first = source
    word = [5, RING, "g", stream, batch, first, [b"a"]]
    with pytest.raises(msgspec.ValidationError):
        envelope.decode(msgspec.msgpack.encode(word))


def test_names_are_few() -> None:
    """A frame of one group names it once, however many messages it has."""
    frame = kept([entry(seq, b"x") for seq in range(1, 50)])
    assert frame.names == NameTable(["orders"], [], [])


def test_small_frames_are_bound_and_nothing_else_is(tmp_path: Path) -> None:
    """Frames of one file and one group become one batch; the records are those of each alone."""
    some = [entry(seq, b"a" * seq, b"", b"b") for seq in range(1, 60)]
    other = [came("other", (b"x",), message("other", (b"x",)), seq) for seq in range(60, 64)]
    write(tmp_path, [*some, *other], list(range(100)), Limits())
    found = list(whole([tmp_path]))
    assert [batch.num_rows for batch in found] == [59 * 3, 4]
    rows = [row for batch in found for row in batch.to_pylist()]
    assert rows == [row for each in [*some, *other] for row in records(kept([each])).to_pylist()]
    reader = MergedReader([tmp_path])
    span = Range(Position(0, 8, 1, 7, 1), Position(0, 8, 1, 30, 0))
    (batch,) = reader.within(span)
    wanted = [row for row in rows if span.after < Position(**row["position"]) <= span.upto]
    assert batch.to_pylist() == wanted


def test_a_range_may_begin_and_end_within_a_message(tmp_path: Path) -> None:
    write(tmp_path, HISTORY, [4])
    reader = MergedReader([tmp_path])
    first = next(each.first for each in HISTORY if len(each.lengths) == 3)
    span = Range(first, first._replace(index=1))
    (batch,) = reader.within(span)
    assert [row["index"] for row in batch.column("position").to_pylist()] == [1]
