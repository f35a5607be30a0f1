"""Is a journal what was written? Every checksum, every place, the chain, and the replicas."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from pathlib import Path

import msgspec

from ringcast.core.ids import GAP_BRANCH, START, Position, ViewId
from ringcast.journal.durable import torn, was_cut
from ringcast.journal.format.frame import Range
from ringcast.journal.format.frame_writer import link
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


def examine(folder: Path) -> Iterator[CheckReport]:
    """Look at a journal segment by segment; the same report again after each, at last whole."""
    report = CheckReport(str(folder))
    trimmed = read_trimmed(folder)
    number, chain, last = trimmed.number, trimmed.chain, trimmed.place
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
                chain, last = head.chain, head.last
                continue
            frame = file.read(head, check=False)
            if (place := frame.disorder(last)) is not None:
                _add(report, path, place, f"does not come after {last}")
            if link(chain, frame.values()) != head.chain:
                _add(report, path, head.first, "the chain does not match")
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


def compare(folders: Sequence[Path]) -> Iterator[JournalFinding]:
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


def holes(folders: Sequence[Path]) -> Iterator[JournalFinding]:
    """Where one journal lacks a record that another has, between two of its own of the same
    configuration, or between one and the next configuration, if the other journal has that next
    too; the first of each pair. Its node was there, and must have delivered it."""
    for one, other in permutations([JournalReader(folder) for folder in folders], 2):
        before: tuple[Position, ViewId] | None = None
        for path, head in one.heads_after():
            start = before[0] if before else head.first.before
            mine = _places(one, Range(head.first.before, head.last))
            lacks = _lacks(mine, before, _places(other, Range(start, head.last)))
            if lacks is not None:
                what = f"a record is missing that {other.folder} has"
                yield JournalFinding(str(path), str(lacks), what)
                break
            before = mine[-1]


Placed = tuple[Position, ViewId]
"""An entry's position, and the configuration it was delivered in."""


def _places(journal: JournalReader, span: Range) -> list[Placed]:
    found: list[Placed] = []
    for frame in journal.frames(span, check=False):
        found.extend(zip(frame.firsts, frame.views(), strict=True))
    return found


def _lacks(mine: list[Placed], before: Placed | None, its: list[Placed]) -> Position | None:
    """The first entry of ``its`` that is not among mine, though those around it are: others of the
    same configuration, or, at its end, the next one, to which both members came from it."""
    known = {place for place, _ in mine}
    for (place, view), then in zip(its, _next_configurations(its), strict=True):
        if place in known or place.branch == GAP_BRANCH:
            continue
        at = bisect_left(mine, (place, view))
        last, following = (mine[at - 1] if at else before), mine[at] if at < len(mine) else None
        if last is None or following is None or not last[0] < place or last[1] != view:
            continue
        if following[1] == view or following == then:
            return place
    return None


def _next_configurations(some: list[Placed]) -> list[Placed | None]:
    """For each entry the first behind it that is of another configuration."""
    found: list[Placed | None] = []
    then: Placed | None = None
    for at in range(len(some) - 1, -1, -1):
        if at + 1 < len(some) and some[at + 1][1] != some[at][1]:
            then = some[at + 1]
        found.append(then)
    return found[::-1]


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


def identical(folders: Sequence[Path]) -> bool:
    """Whether journals hold the same records, by the chain at their ends."""
    ends = [JournalReader(folder).end for folder in folders]
    return len({end and (end.last, end.chain) for end in ends}) == 1
