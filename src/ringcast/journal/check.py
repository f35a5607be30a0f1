"""Is a journal what was written? Every checksum, every place, the chain, and the replicas."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from pathlib import Path
from typing import NamedTuple

import msgspec

from ringcast.core.ids import GAP_BRANCH, START, NodeId, Position, ViewId
from ringcast.journal.durable import torn, was_cut
from ringcast.journal.format.frame import KINDS, Frame, Range
from ringcast.journal.format.frame_writer import link
from ringcast.journal.format.layout import GAP, MESSAGE, TRANSITIONAL, VIEW
from ringcast.journal.format.segment import Head, SegmentFile, read_index
from ringcast.journal.reader import JournalReader
from ringcast.journal.writer import read_trimmed, segment_names


class JournalFinding(msgspec.Struct, frozen=True):
    """Something that is wrong: in which file, at which place, and what."""

    file: str
    place: str
    what: str


class CheckReport(msgspec.Struct):
    """One journal, looked at from end to end."""

    folder: str
    segments: int = 0
    records: int = 0
    bytes: int = 0
    first: str = ""
    last: str = ""
    torn_bytes: int = 0
    """What a node that was killed left unfinished; it is cut when the node starts again."""
    gaps: list[str] = []
    """Where records are missing since the node was away for too long. That is no damage."""
    findings: list[JournalFinding] = []


def examine(folder: Path | str) -> Iterator[CheckReport]:
    """Look at a journal segment by segment; the same report again after each, at last whole."""
    report = CheckReport(str(folder))
    trimmed = read_trimmed(folder)
    number, chain, last = trimmed.number, trimmed.chain, trimmed.place
    now = _Configurations(known=not trimmed.number)
    names = segment_names(folder)
    for path in names:
        file = SegmentFile(path)
        report.segments += 1
        report.bytes += file.size
        heads = list(file.heads())
        _compare_index(report, path, heads)
        end = heads[-1].end if heads else 0
        if end < file.size or (path == names[-1] and was_cut(path)):
            if path == names[-1] and torn(file, end):
                report.torn_bytes = file.size - end
            else:
                _add(report, path, last, f"damaged at byte {end}")
        for head in heads:
            if head.number != number:
                _add(report, path, head.first, f"record {head.number} where {number} comes next")
            number = head.after
            if not file.sound(head):
                _add(report, path, head.first, "the checksum does not match")
                chain, last, now = head.chain, head.last, _Configurations(known=False)
                continue
            frame = file.read(head, check=False)
            if (place := frame.disorder(last)) is not None:
                _add(report, path, place, f"does not come after {last}")
            if link(chain, frame.values()) != head.chain:
                _add(report, path, head.first, "the chain does not match")
            for at, each in enumerate(_records(frame)):
                members = () if each.kind == MESSAGE else frame.members(at)
                if (what := now.wrong(each, members, head.told)) is not None:
                    _add(report, path, each.place, what)
            if head.first.branch == GAP_BRANCH:
                report.gaps = [*report.gaps, f"{last} .. {head.first}"]
            report.first = report.first or str(head.first)
            report.records += head.rows
            chain, last = head.chain, head.last
        report.last = str(last) if report.records else ""
        yield report
    if not names:
        yield report


def _compare_index(report: CheckReport, path: Path, heads: list[Head]) -> None:
    index = read_index(path)
    if index is not None and list(index) != heads:
        _add(report, path.with_suffix(".index"), START, "does not agree with its segment")


def _add(report: CheckReport, path: Path, place: Position, what: str) -> None:
    report.findings = [*report.findings, JournalFinding(str(path), str(place), what)]


def compare(folders: Sequence[Path | str]) -> Iterator[JournalFinding]:
    """Where journals of one group have different records at one position, the first of each pair:
    no reader could read them as one, and no node could catch up from them."""
    for one, other in combinations([JournalReader(folder) for folder in folders], 2):
        upto = min(one.last, other.last)
        for path, head in one.heads_after():
            if head.first > upto:
                break
            span = Range(head.first.before, min(head.last, upto))
            difference = _difference(one, other, span)
            if difference is not None:
                what = f"the record differs from the one in {other.folder}"
                yield JournalFinding(str(path), str(difference), what)
                break


class Record(NamedTuple):
    """Where an entry stands, the configuration it was delivered in, and its kind."""

    place: Position
    view: ViewId
    kind: str


def _records(frame: Frame) -> Iterator[Record]:
    kinds = (KINDS[kind] for kind in frame.table["kind"].tolist())
    return map(Record, frame.firsts, frame.views(), kinds)


class _Configurations:
    """Those that a record may be of, at a place in a journal.

    A journal that was filled from members that had parted has the records of all of them, so there
    may be several: a configuration is left when all its members are known to be in a later one. On
    a single ring a regular one ends all before it. What was trimmed, lies in a gap or is damaged
    may have had records of others; then nothing is ``known`` before the next ring.

    What others told was asked for from the journal's end on. Members that had parted from the node
    may have begun a configuration at a place below that end, where nothing can be put any more, so
    its record need not be there.
    """

    def __init__(self, known: bool) -> None:
        self._known = known
        self._members: dict[ViewId, set[NodeId]] = {}
        """Who may still be in it."""

    def wrong(self, record: Record, members: tuple[NodeId, ...], told: bool) -> str | None:
        """Take the next record; what is wrong with it, if something is."""
        place, view, kind = record
        if kind == MESSAGE:
            return self._missing(view, "is of", told)
        if kind == GAP:
            self._known, self._members = False, {}
            return None
        missing = self._missing(place.ring, "follows", told) if kind == TRANSITIONAL else None
        if kind == VIEW and not place.timestamp:
            self._known, self._members = True, {}
        for left in self._members.values():
            left.difference_update(members)
        self._members = {each: left for each, left in self._members.items() if left}
        self._members[view] = set(members)
        return missing

    def _missing(self, view: ViewId, how: str, told: bool) -> str | None:
        if view in self._members or told or not self._known:
            return None
        self._members[view] = set()  # once is enough
        return f"{how} configuration {view}, which has no record before it, or was left before"


def holes(folders: Sequence[Path | str]) -> Iterator[JournalFinding]:
    """Where one journal lacks a record that another has, though its node was there and must have
    had it; the first of each pair.

    A message is missing between two records of its configuration, or between one and the next
    configuration, if the other journal has that next too. The record of a transitional
    configuration is missing between the two that stand on both sides of it in the other journal.
    Which others a node was in, only its messages tell (``examine``). How a configuration ended
    that others told of, those may not have known themselves.
    """
    for one, other in permutations([JournalReader(folder) for folder in folders], 2):
        before: Record | None = None
        told = False
        for path, head in one.heads_after():
            start = before.place if before else head.first
            mine = _within(one, Range(head.first.before, head.last))
            its = _within(other, Range(start.before, head.last))
            lacks = _lacks(mine, before, its, (told or head.told, head.told))
            if lacks is not None:
                what = f"a record is missing that {other.folder} has"
                yield JournalFinding(str(path), str(lacks), what)
                break
            before, told = mine[-1], head.told


def _within(journal: JournalReader, span: Range) -> list[Record]:
    return [each for frame in journal.frames(span, check=False) for each in _records(frame)]


def _lacks(
    mine: list[Record], before: Record | None, its: list[Record], told: tuple[bool, bool]
) -> Position | None:
    """The first entry of ``its`` that is not among mine, though those around it are. ``told``:
    whether others told what is around the first of mine, and around the rest."""
    known = {each.place for each in mine}
    then: Record | None = None  # the next configuration
    found: Position | None = None
    for number in range(len(its) - 1, -1, -1):
        each = its[number]
        if number + 1 < len(its) and its[number + 1].view != each.view:
            then = its[number + 1]
        if each.place in known:
            continue
        at = bisect_left(mine, each)
        last, following = (mine[at - 1] if at else before), mine[at] if at < len(mine) else None
        if not last or not following or not last.place < each.place or following.kind == GAP:
            continue
        if each.kind == MESSAGE:
            ended = following == then and not told[at > 0]
            missing = last.view == each.view and (following.view == each.view or ended)
        else:  # beside another transitional one it may be of members that parted
            beside = [last, following] == its[max(0, number - 1) : number + 2 : 2]
            regular = last.view == last.place.ring and following.kind == VIEW
            missing = each.kind == TRANSITIONAL and beside and regular and not told[at > 0]
        found = each.place if missing else found
    return found


def _difference(one: JournalReader, other: JournalReader, span: Range) -> Position | None:
    mine, its = (_contents(journal, span) for journal in (one, other))
    if mine == its:
        return None
    known = dict(its)
    return next((place for place, value in mine if known.get(place, value) != value), None)


def _contents(journal: JournalReader, span: Range) -> list[tuple[Position, int]]:
    """Each entry's position, and a number made of what is the same at all members."""
    found: list[tuple[Position, int]] = []
    for frame in journal.frames(span):
        found.extend(zip(frame.firsts, frame.contents(), strict=True))
    return found


def identical(folders: Sequence[Path | str]) -> bool:
    """Whether journals hold the same records, by the chain at their ends."""
    ends = [JournalReader(folder).end for folder in folders]
    return len({end and (end.last, end.chain) for end in ends}) == 1
