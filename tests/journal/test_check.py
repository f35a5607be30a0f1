"""Checking and exporting journals: sound ones, each kind of damage, replicas that differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from histories import HISTORY, PLACES, SMALL, damage, entries, entry, history, write, written
from typer.testing import CliRunner

from ringcast.cli.app import app
from ringcast.core.ids import Position, ViewId
from ringcast.journal.check import holes
from ringcast.journal.format.frame import Range
from ringcast.journal.format.layout import TRANSITIONAL, VIEW, Entry, gap_entry, view_entry
from ringcast.journal.format.segment import HEAD_BYTES, SegmentFile, encode
from ringcast.journal.reader import JournalReader
from ringcast.journal.writer import Journal, Limits, commit, segment_names


def call(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["journal", *map(str, words)])
    return done.exit_code, done.output


def report(*folders: Path) -> dict[str, Any]:
    code, out = call("check", *folders, "--json")
    found: dict[str, Any] = json.loads(out)
    assert code == (0 if found["sound"] else 1)
    return found


def findings(found: dict[str, Any]) -> list[dict[str, str]]:
    """All that is wrong with the last journal, or between it and others."""
    return found["journals"][-1]["findings"] + found["differences"]  # type: ignore[no-any-return]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "a", HISTORY, list(range(0, 40, 3)))
    return tmp_path / "a"


def test_a_sound_journal(folder: Path) -> None:
    found = report(folder)
    assert found["sound"] and found["journals"][0]["records"] == len(PLACES)
    assert call("check", folder)[1].endswith("sound\n")


@pytest.mark.parametrize("at", [0, 30, HEAD_BYTES + 250])
def test_damage_is_found_and_named(folder: Path, at: int) -> None:
    path = segment_names(folder)[0]
    damage(path, at)
    found = report(folder)
    assert not found["sound"]
    assert {each["file"] for each in found["journals"][0]["findings"]} >= {str(path)}
    assert path.name in call("check", folder)[1]


def test_records_out_of_order_or_out_of_the_chain_are_found(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(entries(2))
    journal.close()
    (path,) = segment_names(tmp_path)
    (head,) = SegmentFile(path).heads()
    wrong = written([entry(5, b"x"), entry(4, b"y")])
    _, frame = encode(wrong, head.after, bytes(16), head.end)
    with path.open("ab") as file:
        file.write(b"".join(frame))
    whats = [each["what"] for each in report(tmp_path)["journals"][0]["findings"]]
    assert whats == ["does not come after (8,1):2.1", "the chain does not match"]


def test_replicas_are_identical_the_same_or_different(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "b", HISTORY, [5])
    found = report(folder, tmp_path / "b")
    assert found["sound"] and found["identical"]
    write(tmp_path / "c", HISTORY[:-3], [5])
    assert report(folder, tmp_path / "c")["identical"] is False
    other = HISTORY[9]._replace(sender=3)
    write(tmp_path / "d", [*HISTORY[:9], other, *HISTORY[10:]], [5])
    found = report(folder, tmp_path / "d")
    assert not found["sound"]
    assert [each["place"] for each in found["differences"]] == [str(other.first)]


def test_members_that_parted_differ_in_nothing_they_shared(tmp_path: Path) -> None:
    end = HISTORY[12]
    for name, view, members in (("a", ViewId(10, 1), (1,)), ("b", ViewId(10, 2), (2, 3))):
        parted = view_entry(end.last.end(view.rep), view, members, True, 0)
        last = entry(13, b"both have it")._replace(view=view)
        write(tmp_path / name, [*HISTORY[:13], parted, last], [5])
    found = report(tmp_path / "a", tmp_path / "b")
    assert found["sound"] and not found["identical"]


def test_two_histories_at_one_position_are_found_whatever_their_configurations(
    tmp_path: Path,
) -> None:
    """Neither a reader nor a node that catches up could tell which of them is meant."""
    end = HISTORY[12].last
    write(tmp_path / "a", HISTORY[:13], [5])
    for name, view, members in (("b", ViewId(10, 2), (2, 3)), ("c", ViewId(14, 2), (2,))):
        write(
            tmp_path / name,
            [*HISTORY[:13], view_entry(end.end(view.rep), view, members, True, 0)],
            [5],
        )
    found = report(*(tmp_path / name for name in "abc"))
    assert [each["place"] for each in found["differences"]] == [str(end.end(2))]


@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 4, 5, 6, 7, 8], [4], [5]])
@pytest.mark.parametrize("missing", [2, 4, 5, 8])
def test_a_hole_in_the_middle_is_found_by_what_others_have(
    tmp_path: Path, missing: int, cuts: list[int]
) -> None:
    """A member that lost an acknowledged message was called sound, whatever others had."""
    whole = history()[:10]
    lacking = [each for at, each in enumerate(whole) if at != missing]
    write(tmp_path / "a", whole, [3, 7])
    write(tmp_path / "b", lacking, cuts)
    found = report(tmp_path / "a", tmp_path / "b")
    assert [(each["place"], each["what"]) for each in found["differences"]] == [
        (str(whole[missing].first), f"a record is missing that {tmp_path / 'a'} has")
    ]
    assert "is missing that" in call("check", tmp_path / "a", tmp_path / "b")[1]


@pytest.mark.parametrize("cuts", [[], [3], [8], [7, 8, 9]])
@pytest.mark.parametrize("transitional", [True, False])
@pytest.mark.parametrize("missing", [(9, 10), (10,), (1,), ()])
def test_a_hole_at_the_end_of_a_configuration_is_found(
    missing: tuple[int, ...], transitional: bool, cuts: list[int], tmp_path: Path
) -> None:
    """Both went on to the same configuration from there, so both delivered the same before it."""

    def went_to(rep: int) -> list[Entry]:
        place, ring = Position(0, 8, 1, 10, 0).end(rep), ViewId(12, rep)
        between = view_entry(place, ViewId(10, rep), (1, 2), True, 5)
        following = view_entry(Position.at(ring, 0), ring, (1, 2), False, 5)
        return [between, following] if transitional else [following]

    whole = entries(10)
    lacking = [each for at, each in enumerate(whole) if at not in missing]
    write(tmp_path / "a", whole + went_to(1), [])
    write(tmp_path / "b", lacking + went_to(1), cuts)
    found = holes([tmp_path / "a", tmp_path / "b"])
    assert [each.place for each in found] == [str(whole[at].first) for at in missing[:1]]
    if 1 not in missing:
        write(tmp_path / "c", lacking + went_to(2), cuts)
        assert list(holes([tmp_path / "a", tmp_path / "c"])) == [], "it went elsewhere"


def changes() -> list[Entry]:
    """A ring, what the two of its members have that go on, a ring of their own, and its end."""
    some, between, ring = entries(6), ViewId(10, 1), ViewId(12, 1)
    alone = [
        each._replace(first=each.first._replace(ring_seq=12), view=ring) for each in entries(2)
    ]
    return [
        *some[:5],
        view_entry(some[4].last.end(1), between, (1, 2), True, 5),
        *(each._replace(view=between) for each in some[5:]),
        view_entry(Position.at(ring, 0), ring, (1, 2), False, 5),
        *alone[1:],
        view_entry(alone[-1].last.end(1), ViewId(14, 1), (1, 2), True, 5),
        view_entry(Position.at(ViewId(16, 1), 0), ViewId(16, 1), (1, 2, 3), False, 5),
    ]


RECORDS = [at for at, each in enumerate(changes()) if each.kind in (VIEW, TRANSITIONAL)]


@pytest.mark.parametrize("cuts", [[], list(range(20))])
@pytest.mark.parametrize("missing", RECORDS[:-1])
def test_a_configuration_without_its_record_is_found(
    missing: int, cuts: list[int], tmp_path: Path
) -> None:
    """A replica that lacked the record of a view was called sound."""
    whole = changes()
    lacking = [each for at, each in enumerate(whole) if at != missing]
    write(tmp_path / "a", whole, [3])
    write(tmp_path / "b", lacking, cuts)
    found = report(tmp_path / "a", tmp_path / "b")
    (finding,) = findings(found)
    assert finding["file"].startswith(str(tmp_path / "b"))
    empty = whole[missing + 1].kind == VIEW  # only the other journal tells of it
    assert finding["place"] == str(whole[missing if empty else missing + 1].first)
    assert report(tmp_path / "a")["sound"]


@pytest.mark.parametrize("cuts", [[], list(range(20))])
@pytest.mark.parametrize(
    ("at", "view"),
    [
        (2, ViewId(10, 1)),  # the transitional one that follows
        (2, ViewId(4, 1)),  # one that nobody has
        (9, ViewId(8, 1)),  # one before
        (9, ViewId(10, 1)),
        (9, ViewId(16, 1)),  # one after
    ],
)
def test_a_message_told_in_another_configuration_is_found(
    at: int, view: ViewId, cuts: list[int], tmp_path: Path
) -> None:
    """The view of a message may differ between members that parted, and was not looked at."""
    whole = changes()
    wrong = [each._replace(view=view) if n == at else each for n, each in enumerate(whole)]
    write(tmp_path / "a", whole, [3])
    write(tmp_path / "b", wrong, cuts)
    found = report(tmp_path / "a", tmp_path / "b")
    (finding,) = findings(found)
    assert finding["place"] == str(whole[at].first) and str(view) in finding["what"]


def test_a_message_after_a_change_of_all_members_is_not_of_the_ring_before(tmp_path: Path) -> None:
    some = entries(6)
    parted = view_entry(some[4].last.end(1), ViewId(10, 1), (1, 2, 3), True, 5)
    write(tmp_path, [*some[:5], parted, some[5]], [])
    (finding,) = findings(report(tmp_path))
    assert finding["place"] == str(some[5].first)


def test_a_journal_filled_from_members_that_parted_is_sound(tmp_path: Path) -> None:
    """Theirs were transitional configurations of one ring, at one number and at two, and one of
    them may have crashed in the ring itself."""
    some, (one, two) = entries(6), (ViewId(10, 1), ViewId(10, 2))
    views = [
        view_entry(some[4].last.end(1), one, (1,), True, 5),
        some[5]._replace(view=one),
        view_entry(some[5].last.end(2), two, (2,), True, 5),
        some[6],
        view_entry(Position.at(ViewId(12, 1), 0), ViewId(12, 1), (1, 2, 3), False, 5),
    ]
    write(tmp_path / "a", some[:5] + views, [])
    write(tmp_path / "b", [*some[:5], views[0], views[1], views[4]], [])
    write(tmp_path / "c", [*some[:6], views[2], views[4]], [])
    assert report(*(tmp_path / name for name in "abc"))["sound"]


@pytest.mark.parametrize("told", [True, False])
def test_what_others_told_may_be_of_a_configuration_that_began_before(
    tmp_path: Path, told: bool
) -> None:
    """Nothing is put below the end of a journal: what came there on another side is not asked
    for. A node's own records always have their configuration before them."""
    other = ViewId(10, 1)
    begun = view_entry(entries(3)[2].last.end(1), other, (1,), True, 5)
    rest = [each._replace(view=other) for each in entries(6)[4:]]
    after = view_entry(Position.at(ViewId(12, 1), 0), ViewId(12, 1), (1, 2, 3), False, 5)
    write(tmp_path / "other", [*entries(2), begun, *rest, after], [])
    journal = Journal(tmp_path / "away")
    journal.append(entries(3))
    for frame in JournalReader(tmp_path / "other").frames(Range(journal.last, rest[-1].last)):
        journal.take(frame, told)
    journal.append([after])
    journal.close()
    found = findings(report(tmp_path / "other", tmp_path / "away"))
    assert found == [] if told else [each["place"] for each in found] == [str(rest[0].first)]


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("cut", [0, 1])
def test_how_a_configuration_ended_those_who_told_of_it_may_not_have_known(
    tmp_path: Path, told: bool, cut: int
) -> None:
    """A member that was elsewhere was told by one that crashed before the end of it."""
    some = entries(4)
    parted = view_entry(some[4].last.end(3), ViewId(10, 3), (3,), True, 5)
    after = view_entry(Position.at(ViewId(12, 1), 0), ViewId(12, 1), (1, 2, 3), False, 5)
    write(tmp_path / "whole", [*some, *[parted][cut:], after], [])
    end = len(some) - 1 if cut else len(some)
    journal = Journal(tmp_path / "away")
    journal.append(some[:1])
    for frame in JournalReader(tmp_path / "whole").frames(Range(journal.last, some[end - 1].last)):
        journal.take(frame, told)
    journal.append([after])
    journal.close()
    found = findings(report(tmp_path / "away", tmp_path / "whole"))
    lacks = some[-1] if cut else parted
    assert found == [] if told else [each["place"] for each in found] == [str(lacks.first)]


def test_a_topology_that_members_install_each_at_its_own_place_is_no_hole(tmp_path: Path) -> None:
    """Where gateways join rings, the places of one change end in a mark of the member's own."""
    view, ring = ViewId(4_194_308_194_312, 9), ViewId(8, 1)
    told = [
        each._replace(first=Position.stamped(9 + at, ring), view=view)
        for at, each in enumerate(entries(2)[1:])
    ]
    for name, mark in (("a", 5), ("b", 7)):
        change = view_entry(Position(5, 8, 1, 3, 6, mark), view, (1, 2), False, 0)
        write(tmp_path / name, [change, *told], [])
    assert report(tmp_path / "a", tmp_path / "b")["sound"]


def test_what_lies_in_a_gap_is_no_hole(tmp_path: Path) -> None:
    whole = entries(6)
    write(tmp_path / "a", whole, [])
    gone = gap_entry(whole[5].first, "it was away", 7)
    write(tmp_path / "b", [*whole[:3], gone, *whole[5:]], [])
    assert report(tmp_path / "a", tmp_path / "b")["sound"]


def test_what_a_member_did_not_live_through_is_no_hole(tmp_path: Path) -> None:
    """The beginning and the end of a configuration, and configurations of others."""
    whole = history()
    other = [each for each in whole if each.view != ViewId(12, 2)]
    write(tmp_path / "a", whole, [])
    write(tmp_path / "b", other, [5])
    write(tmp_path / "c", whole[:7], [2])
    write(tmp_path / "d", whole, [5, 9], Limits(segment_bytes=1))
    trimming = Journal(tmp_path / "d", Limits(segment_bytes=1, keep_bytes=1))
    assert trimming.trim() == 2
    trimming.close()
    assert JournalReader(tmp_path / "d").first == whole[10].first, "in the midst of a ring"
    gone = gap_entry(whole[5].first, "it was away", 7)
    write(tmp_path / "e", [gone, *whole[5:]], [2])
    assert report(*(tmp_path / name for name in "abcde"))["sound"]


def test_a_torn_end_is_no_damage(folder: Path) -> None:
    with segment_names(folder)[-1].open("ab") as file:
        file.write(b"\0" * 17)
    assert report(folder)["journals"][0]["torn_bytes"] == 17


def test_ls(folder: Path) -> None:
    commit(folder, "spark", PLACES[4])
    code, out = call("ls", folder, "--json")
    found = json.loads(out)
    assert code == 0 and found["records"] == len(PLACES)
    assert found["readers"] == {"spark": str(PLACES[4])}
    assert (found["first"], found["last"]) == (str(PLACES[0]), str(PLACES[-1]))
    assert f"{len(PLACES)} records" in call("ls", folder)[1]


def test_cat(folder: Path, tmp_path: Path) -> None:
    lines = call("cat", folder)[1].splitlines()
    assert len(lines) == len(PLACES)
    assert lines[0].startswith("(8,1):0.0") and lines[0].endswith("view (8,1): 1 2 3")
    assert lines[1].endswith("g from 2: 1/0")
    upto = Position.parse("(8,1):4.1")
    some = call("cat", folder, "--from", "8,1:3", "--to", "(8,1):4.1", "--no-views")[1]
    assert [line.split()[0] for line in some.splitlines()] == [
        str(place) for place in PLACES if Position.parse("8,1:3") <= place <= upto
    ]
    assert call("cat", folder, "--group", "other", "--no-views")[1] == ""
    first = json.loads(call("cat", folder, "--json")[1].splitlines()[1])
    assert first["body"] == {"text": "1/0"} and first["position"] == "(8,1):1.0"
    assert call("cat", folder, "--from", "nowhere")[0] == 2
    assert "not a journal" in call("cat", tmp_path / "none")[1]


def test_binary_and_long_bodies_are_shown_as_people_can_read_them(tmp_path: Path) -> None:
    journal = Journal(tmp_path, SMALL)
    journal.append([entry(1, b"\x00\xff", b"x" * 500, "grüße".encode())])
    journal.close()
    lines = call("cat", tmp_path)[1].splitlines()
    assert lines[0].endswith(r"\x00\xff") and lines[1].endswith("x … 500 bytes")
    assert lines[2].endswith("grüße")


def test_export(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "b", HISTORY[:10], [])
    code, out = call("export", folder, tmp_path / "b", "--out", tmp_path / "p")
    assert code == 0 and f"{len(PLACES)} records" in out
    rows = pq.read_table(tmp_path / "p").to_pylist()
    assert [Position(**row["position"]) for row in rows] == PLACES
    (file,) = (tmp_path / "p").glob("*.parquet")
    assert pq.ParquetFile(file).num_row_groups == 1, "small batches share a group of rows"
    code, out = call("export", folder, "--out", tmp_path / "p")
    assert code == 2 and "exists" in out
    assert not list(tmp_path.glob("*.part"))
